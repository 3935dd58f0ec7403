#!/usr/bin/env bash
# Installs what is missing, builds everything, runs every test, and ends with "N passed, N failed".
#
#   tests/run.sh [--long] [--ci] [STAGE...]
#
# A stage is a file tests/stages/[NN-]name.sh; without names all run, in order, and with --ci or --long those in
# tests/stages/ci (sanitizers) after them. An executable one is a
# program: it gets --long if given, and its last line "N passed, N failed" is what it adds. Any other
# is sourced in a shell of its own, with the functions below, and counts every check it makes with
# `pass NAME` or `fail NAME`. A stage that ends with an error, or counts nothing, is one failure.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 1

SALIUS_LONG=0
ci=0
stages=()
for argument in "$@"; do
  case "$argument" in
    --long) SALIUS_LONG=1 ci=1 ;;
    --ci) ci=1 ;;
    -h | --help)
      sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p}' "${BASH_SOURCE[0]}"
      exit 0
      ;;
    -*)
      echo "unknown option: $argument (see --help)" >&2
      exit 2
      ;;
    *) stages+=("$argument") ;;
  esac
done
export SALIUS_LONG

# One line per check: "pass NAME" or "fail NAME".
results=$(mktemp)
trap 'rm -f "$results"' EXIT

pass() { echo "pass $*" >>"$results"; }
fail() {
  echo "fail $*" >>"$results"
  echo "FAILED: $*" >&2
}
# check NAME COMMAND...: one check that passes when the command does.
check() {
  local name=$1
  shift
  if "$@"; then pass "$name"; else fail "$name"; fi
}
# True for a run with --long: more seeds, longer fuzzing, the slow suites.
is_long() { [ "$SALIUS_LONG" = 1 ]; }

# bazel_test NAME TARGETS/OPTIONS...: builds and runs test targets, and counts each of them.
bazel_test() {
  local name=$1 log status target
  shift
  log=$(mktemp)
  bazel test --keep_going --test_summary=short --color=no --noshow_progress "$@" 2>&1 | tee "$log"
  status=${PIPESTATUS[0]}
  while read -r target status_word rest; do
    case "$status_word $rest" in
      "PASSED "* | "(cached) PASSED"*) pass "$target" ;;
      "FAILED "* | "TIMEOUT "* | "(cached) FAILED"* | "NO STATUS"* | "FLAKY"*) fail "$target" ;;
    esac
  done < <(grep -E '^//[^ ]+ +(\(cached\) )?(PASSED|FAILED|TIMEOUT|NO STATUS|FLAKY)' "$log")
  # 3: some test failed, and was counted. Anything else is a build or a usage that broke.
  [ "$status" -eq 0 ] || [ "$status" -eq 3 ] || fail "$name (bazel exit code $status)"
  rm -f "$log"
}

# Runs an executable stage and takes over the counts of its closing line.
run_program() {
  local file=$1 name=$2 log status line passed failed
  local arguments=()
  is_long && arguments+=(--long)
  log=$(mktemp)
  "$file" "${arguments[@]+"${arguments[@]}"}" 2>&1 | tee "$log"
  status=${PIPESTATUS[0]}
  line=$(grep -E '^[0-9]+ passed, [0-9]+ failed$' "$log" | tail -n 1)
  rm -f "$log"
  read -r passed _ failed _ <<<"${line:-0 passed, 0 failed}"
  for ((i = 0; i < passed; i++)); do pass "$name"; done
  for ((i = 0; i < failed; i++)); do fail "$name"; done
  [ "$status" -eq 0 ] || [ "$failed" -gt 0 ] || fail "stage $name (exit code $status)"
}

run_stage() {
  local file=$1 name before
  name=$(basename "$file" .sh)
  before=$(wc -l <"$results")
  echo "=== $name"
  if [ -x "$file" ]; then
    run_program "$file" "$name"
  else
    # shellcheck disable=SC1090
    (source "$file") || fail "stage $name"
  fi
  [ "$(wc -l <"$results")" -gt "$before" ] || fail "stage $name made no check"
}

# shellcheck source=deploy/packages.sh
source deploy/packages.sh
salius_install "${salius_build_packages[@]}" "${salius_check_packages[@]}" || fail "packages"

if [ ${#stages[@]} -eq 0 ]; then
  for file in tests/stages/*.sh; do run_stage "$file"; done
  if [ $ci -eq 1 ]; then
    for file in tests/stages/ci/*.sh; do run_stage "$file"; done
  fi
else
  for name in "${stages[@]}"; do
    found=0
    for file in tests/stages/"$name".sh tests/stages/[0-9]*-"$name".sh tests/stages/ci/"$name".sh; do
      if [ -e "$file" ]; then
        run_stage "$file"
        found=1
      fi
    done
    [ $found -eq 1 ] || fail "no stage $name"
  done
fi

passed=$(grep -c '^pass ' "$results")
failed=$(grep -c '^fail ' "$results")
if [ "$failed" -gt 0 ]; then
  echo "--- failed:"
  sed -n 's/^fail /  /p' "$results"
fi
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
