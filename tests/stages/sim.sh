# shellcheck shell=bash
# Simulated cluster lifetimes (tests/sim/cluster_sim.h): the seeds that ever failed, whether a seed repeats, and new
# seeds on every core. SALIUS_SIM_SECONDS: how long the new ones run; 60 by default, 3600 with --long.
# SALIUS_SIM_FIRST: the first of them; drawn and printed by default.
sim_target=//tests/sim:cluster_sim_run
if ! bazel build --color=no --noshow_progress "$sim_target"; then
  fail "cluster_sim_run does not build"
  return 0
fi
# A copy: another build may take the binary away while it runs.
sim_dir=$(mktemp -d)
cp -L "$(bazel info -c opt bazel-bin 2>/dev/null)/tests/sim/cluster_sim_run" "$sim_dir/"
sim=$sim_dir/cluster_sim_run

# How to see a broken seed again, with a trace of what it needs.
sim_tell() {
  echo "commit $(git rev-parse HEAD 2>/dev/null): $sim_target --seed $1 --trace replays it; what it needs:"
  "$sim" --shrink "$1" | tail -n 80
}
sim_seeds() {
  local seed
  "$sim" --seeds tests/sim/regressions/seeds | tee "$sim_dir/seeds"
  [ "${PIPESTATUS[0]}" -eq 0 ] && return 0
  seed=$(sed -n 's/^seed \([0-9]*\) BROKEN.*/\1/p' "$sim_dir/seeds")
  [ -n "$seed" ] && sim_tell "$seed"
  return 1
}
check "sim: seeds that failed once" sim_seeds

sim_digest() { "$sim" --first 1 --count 400 | grep -o 'digest [0-9a-f]*'; }
sim_repeats() {
  local first second
  first=$(sim_digest)
  second=$(sim_digest)
  echo "seeds 1 to 400: $first, again: $second"
  [ -n "$first" ] && [ "$first" = "$second" ]
}
check "sim: a seed repeats" sim_repeats

if is_long; then sim_seconds=${SALIUS_SIM_SECONDS:-3600}; else sim_seconds=${SALIUS_SIM_SECONDS:-60}; fi
sim_first=${SALIUS_SIM_FIRST:-$((RANDOM * RANDOM * 1000 + 1000))}
# One process per core, each with a range of seeds of its own.
sim_lifetimes() {
  local core log seed failed=0 pids=()
  for ((core = 0; core < $(nproc); core++)); do
    "$sim" --first $((sim_first + core * 1000000000)) --count 1000000000 --seconds "$sim_seconds" \
      >"$sim_dir/log.$core" 2>&1 &
    pids+=($!)
  done
  for core in "${!pids[@]}"; do
    wait "${pids[$core]}" || failed=1
    log=$sim_dir/log.$core
    tail -n 1 "$log"
    seed=$(sed -n 's/^seed \([0-9]*\) BROKEN.*/\1/p' "$log")
    [ -z "$seed" ] || sim_tell "$seed"
  done
  [ $failed -eq 0 ]
}
check "sim: new lifetimes" sim_lifetimes
rm -rf "$sim_dir"
