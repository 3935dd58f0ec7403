#!/usr/bin/env bash
# Fuzzes every decoder of bytes from the network or the disk (tests/fuzz). Builds the fuzzers with
# clang and libFuzzer and lets each explore, starting from its corpus. A crash, a hang or a broken
# property fails and leaves the input in SALIUS_FUZZ_ARTIFACTS (default: a new directory, which is
# named).
#
#   tests/stages/fuzz.sh [--long]
#
# An ordinary run tries the same inputs every time, as many as its time allows. SALIUS_FUZZ_SEED
# chooses others; 0 draws a seed, and --long draws a new one.
#
# SALIUS_FUZZ_SECONDS: how long each fuzzer runs; 3 by default, an hour with --long, in parts. With
# SALIUS_LONG_DIR set, each fuzzer's time and findings are kept there, and the next run continues.
# Ends with "N passed, N failed".
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit 1

seconds=${SALIUS_FUZZ_SECONDS:-3}
seed=${SALIUS_FUZZ_SEED:-1}
for argument in "$@"; do
  case "$argument" in
    --long) seconds=${SALIUS_FUZZ_SECONDS:-3600} seed=${SALIUS_FUZZ_SEED:-0} ;;
    *)
      echo "unknown option: $argument" >&2
      exit 2
      ;;
  esac
done

passed=0
failed=0
finish() {
  echo "$passed passed, $failed failed"
  [ "$failed" -eq 0 ]
  exit
}

if ! bazel build --config=fuzz --color=no --noshow_progress //tests/fuzz/...; then
  echo "FAILED: the fuzzers do not build"
  failed=1
  finish
fi
bin=$(bazel info --config=fuzz bazel-bin 2>/dev/null)/tests/fuzz

# Copies: another build may remove the binaries under a running fuzzer.
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
artifacts=${SALIUS_FUZZ_ARTIFACTS:-$(mktemp -d)}
mkdir -p "$artifacts"

# run_part NAME SECONDS CORPUS: sets `runs` to the number of inputs tried; false when one of them
# failed.
run_part() {
  local name=$1 log=$work/$1.log status
  "$work/$name" -seed="$seed" -max_total_time="$2" -timeout=20 -rss_limit_mb=3000 -max_len=20000 \
    -print_final_stats=1 -artifact_prefix="$artifacts/$name-" \
    "$3" "tests/fuzz/corpus/$name" >"$log" 2>&1
  status=$?
  runs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")
  [ "$status" -eq 0 ] && [ "${runs:-0}" -gt 0 ] && return
  tail -n 60 "$log"
  echo "FAILED  $name (exit code $status); the input is in $artifacts"
  return 1
}

# explore NAME: lets the fuzzer run for what is left of its time. False when an input failed.
explore() {
  local name=$1 corpus kept had inputs part runs
  corpus=${SALIUS_LONG_DIR:-$work}/corpus/$name
  kept=${SALIUS_LONG_DIR:-$work}/fuzzed-$name # "seconds inputs" so far
  mkdir -p "$corpus"
  read -r had inputs < <(cat "$kept" 2>/dev/null || echo "0 0")
  while [ "$had" -lt "$seconds" ]; do
    part=$((seconds - had > 300 ? 300 : seconds - had))
    run_part "$name" "$part" "$corpus" || return
    had=$((had + part)) inputs=$((inputs + runs))
    echo "$had $inputs" >"$kept"
    [ "$had" -ge "$seconds" ] || echo "        $name: $inputs inputs, $had of $seconds s"
  done
  echo "ok      $name: $inputs inputs in $had s"
}

# One fuzzer on each CPU.
mkdir "$work/passed"
for fuzzer in "$bin"/*_fuzzer; do
  name=$(basename "$fuzzer" _fuzzer)
  cp "$fuzzer" "$work/$name"
  [ "$(jobs -rp | wc -l)" -lt "$(nproc)" ] || wait -n
  { explore "$name" && : >"$work/passed/$name"; } &
  failed=$((failed + 1))
done
wait
passed=$(find "$work/passed" -type f | wc -l)
failed=$((failed - passed))
finish
