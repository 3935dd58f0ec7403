# shellcheck shell=bash
# Simulated lifetimes of a cluster (tests/sim/cluster_sim.h), of a volume (tests/sim/volume_sim.h) and
# of a direct volume (tests/sim/direct_sim.h): the seeds that ever failed, whether a seed repeats, and
# new seeds on every core.
#
# An ordinary run lasts 20 seconds for each (SALIUS_SIM_SECONDS). With --long it runs ten million
# lifetimes of a cluster (SALIUS_SIM_LIFETIMES; 0: until it is interrupted or a seed breaks) and a
# tenth as many of each other one, in parts. SALIUS_LONG_DIR keeps the finished ones. SALIUS_SIM_FIRST: the
# first seed; by default it follows from SALIUS_SEED (tests/run.sh), or is drawn.
#
# Afterwards two things are checked. The totals must show enough lifetimes, with events of each kind.
# A busy machine runs few lifetimes in a time: an ordinary run then adds more of them. And if
# nothing is uncommitted, five bugs of tests/mutations are planted, and the seeds that they break
# must replay and shrink.
if ! bazel build --color=no --noshow_progress //tests/sim:{cluster,volume,direct}_sim_run; then
  fail "the simulators do not build"
  return 0
fi
# Copies: another build may remove the binaries while they run.
sim_dir=$(mktemp -d)
cp -L "$(bazel info -c opt bazel-bin 2>/dev/null)"/tests/sim/{cluster,volume,direct}_sim_run "$sim_dir/"

# sim_use NAME: lets the functions below run this simulator.
sim_use() {
  sim_name=$1
  sim_target=//tests/sim:${sim_name}_sim_run
  sim=$sim_dir/${sim_name}_sim_run
  # A lifetime of a direct volume takes longer.
  sim_repeated=400
  [ "$sim_name" != direct ] || sim_repeated=50
}

# sim_tell SEED: prints how to replay a broken seed, with a trace of the faults that it needs.
sim_tell() {
  local shrunk=$sim_dir/shrunk changed=
  [ -z "$(git status --porcelain 2>/dev/null)" ] || changed=", with changes"
  echo "commit $(git rev-parse HEAD 2>/dev/null)$changed: $sim_target --seed $1 --trace replays it; what it needs:"
  "$sim" --shrink "$1" >"$shrunk" 2>&1
  # A seed that ends the process does not shrink: print all of it.
  if grep -q "^seed $1 with .* faults BROKEN" "$shrunk"; then
    tail -n 80 "$shrunk"
  else
    "$sim" --seed "$1" --trace 2>&1 | tail -n 80
  fi
}
sim_seeds() {
  local seed
  "$sim" --seeds "tests/sim/regressions/$sim_name" | tee "$sim_dir/seeds"
  [ "${PIPESTATUS[0]}" -eq 0 ] && return 0
  seed=$(sed -n 's/^seed \([0-9]*\) BROKEN.*/\1/p' "$sim_dir/seeds")
  [ -n "$seed" ] && sim_tell "$seed"
  return 1
}

sim_digest() { "$sim" --first 1 --count "$sim_repeated" | grep -o 'digest [0-9a-f]*'; }
sim_repeats() {
  local first second
  first=$(sim_digest)
  second=$(sim_digest)
  echo "seeds 1 to $sim_repeated: $first, again: $second"
  [ -n "$first" ] && [ "$first" = "$second" ]
}

# sim_round FIRST COUNT SECONDS: runs one process per core, each with COUNT seeds of its own;
# SECONDS 0: all of them.
sim_round() {
  local core log seed failed=0 pids=()
  for ((core = 0; core < $(nproc); core++)); do
    "$sim" --first $(($1 + core * $2)) --count "$2" --seconds "$3" >"$sim_dir/log.$core" 2>&1 &
    pids+=($!)
  done
  for core in "${!pids[@]}"; do
    wait "${pids[$core]}" || failed=1
    log=$sim_dir/log.$core
    tail -n 2 "$log" | tee -a "$sim_dir/totals"
    seed=$(sed -n 's/^seed \([0-9]*\) BROKEN.*/\1/p' "$log")
    [ -z "$seed" ] || sim_tell "$seed"
  done
  [ $failed -eq 0 ]
}
sim_first=${SALIUS_SIM_FIRST:-$((${SALIUS_SEED:-$((RANDOM * RANDOM))} * 1000 + 1000))}
# sim_for_a_while NUMBER: runs other seeds for each number.
sim_for_a_while() {
  sim_round $((sim_first + $1 * $(nproc) * 1000000000)) 1000000000 "${SALIUS_SIM_SECONDS:-20}"
}
sim_millions() {
  local wanted=${SALIUS_SIM_LIFETIMES:-10000000} kept=$SALIUS_LONG_DIR/simulated-$sim_name had=0 part=50000
  [ "$sim_name" = cluster ] || wanted=$((wanted / 10))
  if [ -e "$kept" ]; then read -r sim_first had <"$kept"; fi
  while [ "$wanted" -eq 0 ] || [ "$had" -lt "$wanted" ]; do
    : >"$sim_dir/totals"
    sim_round $((sim_first + had)) $part 0 || return 1
    had=$((had + part * $(nproc)))
    echo "$sim_first $had" >"$kept"
    cp "$sim_dir/totals" "$kept-totals"
    echo "seeds $sim_first to $((sim_first + had - 1)): $had of ${wanted/#0/no end of} lifetimes, none broken"
  done
}

# sim_totals: checks the totals, summed over the processes (with --long of the last round): a
# simulator without events finds nothing. It demands no number of lifetimes in less than 20 s.
sim_totals() {
  local least=2000
  [ "$sim_name" != direct ] || least=200
  is_long || [ "${SALIUS_SIM_SECONDS:-20}" -ge 20 ] || least=1
  if is_long; then
    tests/sim/totals.py "$sim_name" "$least" <"$SALIUS_LONG_DIR/simulated-$sim_name-totals"
  else
    tests/sim/totals.py "$sim_name" "$least" <"$sim_dir/totals"
  fi
}

# sim_everything: checks the totals. An ordinary run adds more lifetimes until they are enough.
sim_everything() {
  local more most=30
  for ((more = 1; more <= most; more++)); do
    ! sim_totals || return 0
    ! is_long || return 1
    echo "more lifetimes: round $more of at most $most"
    sim_for_a_while $more || return 1
  done
  sim_totals
}

for sim_each in cluster volume direct; do
  sim_use "$sim_each"
  : >"$sim_dir/totals"
  check "sim, $sim_name: seeds that failed once" sim_seeds
  check "sim, $sim_name: a seed repeats" sim_repeats
  if is_long; then
    check "sim, $sim_name: new lifetimes" sim_millions
  else
    check "sim, $sim_name: new lifetimes" sim_for_a_while 0
  fi
  check "sim, $sim_name: everything happened" sim_everything
done

if [ "$ci" -eq 0 ]; then
  echo "skipped: sim: replay of planted bugs, which is five builds: with --ci or --long"
elif [ -n "$(git status --porcelain 2>&1)" ]; then
  echo "skipped: sim: replay of planted bugs: the tree has uncommitted changes, and nothing is planted among them"
else
  check "sim: planted bugs replay and shrink" \
    tests/mutations/run.py --check-replay one_ack_too_few replica_forgets_its_promise applied_mark_kept_until_a_sync_has_failed \
      object_removed_before_its_removal_is_durable direct_stripe_names_no_file
fi
rm -rf "$sim_dir"
