# shellcheck shell=bash
# The unit tests with sanitizers: addresses and undefined behaviour, then data races. Each is a build
# of its own, so this is for continuous integration and --long. With --long also the simulator, and
# the unit tests of code without threads.
# The preload library's tests are left out: a program under it is not built with the sanitizer.
asan_targets=(//tests/unit/... -//tests/unit/preload/...)
tsan_targets=(//tests/unit/session/... //tests/unit/volume/... //tests/unit/fuse/... //tests/unit/replica/...
              //tests/unit/storage/...)
# There is no race in a test that starts no thread (strace shows no clone() with CLONE_THREAD). Code
# that threads share is run with threads by the other tests. --long leaves out none.
single_threaded=(
  session:configurations session:control_check session:gathering session:heard_set
  session:late_ticks session:peer_path session:places session:promises session:replicator
  session:replicator_members session:replicator_memory session:replicator_patience
  session:session_core session:stable_cursor session:waiters session:window
  volume:bindings volume:bindings_property volume:ext4_watch volume:extents_property volume:health
  volume:names_acl
  volume:prediction volume:prediction_apply
  fuse:dir_offsets fuse:groups fuse:launcher fuse:mount_command fuse:mount_options
  fuse:mount_table fuse:open_state fuse:raw_request fuse:write_back_limit
  replica:acceptor_memory replica:acceptor_records replica:acceptor_sessions replica:arena
  replica:arena_file replica:log_store replica:log_store_restart replica:memory_room
  replica:promise replica:small_parts
  storage:compact_handle storage:file_fds storage:memory_backing storage:volume_tree
)
for test in "${single_threaded[@]}"; do tsan_targets+=("-//tests/unit/${test}_test"); done
if is_long; then
  asan_targets+=(//tests/sim/...)
  tsan_targets=(//tests/unit/... -//tests/unit/preload/...)
fi
bazel_test "addresses, undefined behaviour" --config=asan --build_tests_only -- "${asan_targets[@]}"

# sanitized_digest OPTION...: builds the simulator with these options, runs it on the seeds that
# once failed, and prints the digest of 200 seeds. The run must be clean. The digest must be the
# same in this build, in one for debugging, and in the ordinary one.
sanitized_digest() {
  local sim said
  bazel build --color=no --noshow_progress "$@" //tests/sim:cluster_sim_run >&2 || return
  sim=$(bazel info "$@" bazel-bin 2>/dev/null)/tests/sim/cluster_sim_run
  "$sim" --seeds tests/sim/regressions/cluster >&2 && said=$("$sim" --first 1 --count 200) || return
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

bazel_test "data races" --config=tsan --build_tests_only -- "${tsan_targets[@]}"
