# shellcheck shell=bash
# The unit tests and the programs with sanitizers: addresses and undefined behaviour, then data
# races. Each is a build of its own, so this is for continuous integration and --long. With --long
# also the simulator, and the unit tests of code without threads.
asan_targets=(//tests/unit/...)
tsan_targets=(//tests/unit/session/... //tests/unit/volume/... //tests/unit/fuse/... //tests/unit/replica/...
              //tests/unit/storage/...)
if is_long; then
  asan_targets+=(//tests/sim/...)
  tsan_targets=(//tests/unit/...)
fi
bazel_test "addresses, undefined behaviour" --config=asan --build_tests_only "${asan_targets[@]}"

# sanitized_digest OPTION...: builds the simulator with these options, runs it on the seeds that
# once failed, and prints the digest of 200 seeds. The run must be clean. The digest must be the
# same in this build, in one for debugging, and in the ordinary one.
sanitized_digest() {
  local sim said
  bazel build --color=no --noshow_progress "$@" //tests/sim:cluster_sim_run >&2 || return
  sim=$(bazel info "$@" bazel-bin 2>/dev/null)/tests/sim/cluster_sim_run
  "$sim" --seeds tests/sim/regressions/seeds >&2 && said=$("$sim" --first 1 --count 200) || return
  grep -o 'digest [0-9a-f]*' <<<"$said"
}
same_in_both_builds() {
  local ordinary sanitized debug
  ordinary=$(sanitized_digest -c opt)
  sanitized=$(sanitized_digest --config=asan)
  debug=$(sanitized_digest -c dbg)
  echo "seeds 1 to 200: $ordinary; with sanitizers: $sanitized; for debugging: $debug"
  [ -n "$ordinary" ] && [ "$ordinary" = "$sanitized" ] && [ "$ordinary" = "$debug" ]
}
! is_long || check "sim: a seed does the same in another build" same_in_both_builds

bazel_test "data races" --config=tsan --build_tests_only "${tsan_targets[@]}"

# sanitized_programs CONFIG TEST_FILE...: runs the programs with a sanitizer, on real mounts with real
# replicas: the FUSE side is in no unit test. A sanitizer's reports go to files, each of which is a
# failure.
sanitized_programs() {
  local config=$1 reports status=0
  shift
  bazel build --config="$config" --color=no --noshow_progress //client/... //replica/... //recovery/... || return
  reports=$(mktemp -d)
  (
    cd tests || exit
    export ASAN_OPTIONS=detect_stack_use_after_return=1:strict_string_checks=1:log_path=$reports/report
    export UBSAN_OPTIONS=print_stacktrace=1:log_path=$reports/report
    export TSAN_OPTIONS=second_deadlock_stack=1:ignore_noninstrumented_modules=1:log_path=$reports/report
    SALIUS_BIN=$(bazel info --config="$config" bazel-bin 2>/dev/null) /usr/bin/python3 -m harness "$@"
  ) || status=1
  if [ -n "$(ls "$reports")" ]; then
    cat "$reports"/*
    status=1
  fi
  rm -rf "$reports"
  return $status
}
asan_files=(fault/test_partition.py posix/posix_files.py posix/posix_access.py)
tsan_files=(fault/test_replicas.py posix/posix_files.py)
if is_long; then
  asan_files+=(posix/posix_names.py)
  tsan_files+=(fault/test_partition.py posix/posix_access.py posix/posix_names.py)
fi
check "programs: addresses, undefined behaviour" sanitized_programs asan "${asan_files[@]}"
check "programs: data races" sanitized_programs tsan "${tsan_files[@]}"
