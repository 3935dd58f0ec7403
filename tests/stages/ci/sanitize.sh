# shellcheck shell=bash
# The unit tests with sanitizers: addresses and undefined behaviour, then data races; and the
# programs of the stage sanitized are built. Each is a build of its own, so this is for continuous
# integration and --long. With --long also the simulator, and the unit tests of code without threads.
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

# For the stage sanitized.
programs=(//client/cli:salius //client/mount:salius-mount //recovery:salius-recover //replica:salius-replica)
for config in asan tsan; do
  check "programs: build with $config" bazel build --config=$config --color=no --noshow_progress "${programs[@]}"
done
