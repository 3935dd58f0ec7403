# shellcheck shell=bash
# The programs with sanitizers under tests with real parts: the FUSE side is in no unit test. Asks
# Bazel for nothing while the stages of the lane `builds` run, because it would wait for these.
[ -e "$work/bin-asan" ] && [ -e "$work/bin-tsan" ] || source tests/stages/21-instrumented.sh

# sanitized_programs CONFIG TEST_FILE...: runs the programs with a sanitizer, on real mounts with real
# replicas: the FUSE side is in no unit test. A sanitizer's reports go to files, each of which is a
# failure.
sanitized_programs() {
  local config=$1 reports status=0
  shift
  reports=$(mktemp -d)
  (
    cd tests || exit
    export ASAN_OPTIONS=detect_stack_use_after_return=1:strict_string_checks=1:log_path=$reports/report
    export UBSAN_OPTIONS=print_stacktrace=1:log_path=$reports/report
    export TSAN_OPTIONS=second_deadlock_stack=1:ignore_noninstrumented_modules=1:log_path=$reports/report
    SALIUS_BIN=$(cat "$work/bin-$config") /usr/bin/python3 -m harness "$@"
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
