# shellcheck shell=bash
# The unit tests and the simulator with sanitizers: addresses and undefined behaviour, then data races. Each is a build of
# its own, so this is for continuous integration and --long.
bazel_test "addresses, undefined behaviour" --config=asan --build_tests_only //tests/unit/... //tests/sim/...

# The simulator as a program: clean, and a seed does the same in this build, and in one for debugging, as in the
# ordinary one.
sanitized_digest() {
  bazel build --color=no --noshow_progress "$@" //tests/sim:cluster_sim_run >&2 || return
  "$(bazel info "$@" bazel-bin 2>/dev/null)/tests/sim/cluster_sim_run" --first 1 --count 200 |
    grep -o 'digest [0-9a-f]*'
}
same_in_both_builds() {
  local ordinary sanitized debug
  ordinary=$(sanitized_digest -c opt)
  sanitized=$(sanitized_digest --config=asan)
  debug=$(sanitized_digest -c dbg)
  echo "seeds 1 to 200: $ordinary; with sanitizers: $sanitized; for debugging: $debug"
  [ -n "$ordinary" ] && [ "$ordinary" = "$sanitized" ] && [ "$ordinary" = "$debug" ]
}
check "sim: a seed does the same in another build" same_in_both_builds

bazel_test "data races" --config=tsan --build_tests_only //tests/unit/...
