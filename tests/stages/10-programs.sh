# shellcheck shell=bash
# The programs that the suites with real parts run, so that these can begin while the rest compiles.
check "build the programs" bazel build -c opt --color=no --noshow_progress //client/cli:salius \
  //client/mount:salius-mount //recovery:salius-recover //replica:salius-replica //tests/crash:kill_at \
  //client/run:salius-run //tests/bench/disk_model/... //tests/bench/driver //tests/differential
