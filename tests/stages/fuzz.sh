#!/usr/bin/env bash
# Fuzzes every decoder of bytes from the network or the disk (tests/fuzz): builds them with clang and
# libFuzzer and lets each explore, starting from its corpus. A crash, a hang or a broken property fails
# and leaves the input in SALIUS_FUZZ_ARTIFACTS (default: a new directory, which is named).
#
#   tests/stages/fuzz.sh [--long]
#
# SALIUS_FUZZ_SECONDS: how long each fuzzer runs; 5 by default, 300 with --long. What it learns is kept in
# SALIUS_FUZZ_CORPUS if that is set. Ends with "N passed, N failed".
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit 1

seconds=${SALIUS_FUZZ_SECONDS:-5}
for argument in "$@"; do
  case "$argument" in
    --long) seconds=${SALIUS_FUZZ_SECONDS:-300} ;;
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

# Copies: another build may take the binaries away under a running fuzzer.
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
artifacts=${SALIUS_FUZZ_ARTIFACTS:-$(mktemp -d)}
mkdir -p "$artifacts"

for fuzzer in "$bin"/*_fuzzer; do
  name=$(basename "$fuzzer" _fuzzer)
  cp "$fuzzer" "$work/$name"
  corpus=${SALIUS_FUZZ_CORPUS:-$work/corpus}/$name
  mkdir -p "$corpus"
  log=$work/$name.log
  "$work/$name" -max_total_time="$seconds" -timeout=20 -rss_limit_mb=3000 -max_len=20000 \
    -print_final_stats=1 -artifact_prefix="$artifacts/$name-" \
    "$corpus" "tests/fuzz/corpus/$name" >"$log" 2>&1
  status=$?
  runs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")
  if [ "$status" -eq 0 ] && [ "${runs:-0}" -gt 0 ]; then
    echo "ok      $name: $runs inputs in $seconds s"
    passed=$((passed + 1))
  else
    tail -n 60 "$log"
    echo "FAILED  $name (exit code $status); the input is in $artifacts"
    failed=$((failed + 1))
  fi
done
finish
