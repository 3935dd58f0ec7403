# shellcheck shell=bash
# The unit tests and simulated sessions. Checks also that each planted bug still finds its place in
# the code.
bazel_test "unit tests" //tests/unit/... //tests/sim/...
check "planted bugs have their place" tests/mutations/run.py --patterns
