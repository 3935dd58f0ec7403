#!/usr/bin/env bash
# Installs missing packages, builds everything, runs every test, and ends with "N passed, N failed".
#
#   tests/run.sh [--long] [--ci] [STAGE...]
#
# A stage is a file tests/stages/[NN-]name.sh. Named stages run one after another. Without names
# these run:
# - all stages except those in $only_ci below
# - with --ci or --long those too, and then the stages in tests/stages/ci (sanitizers)
# - with --long also those in tests/stages/long (every planted bug)
#
# Lanes: after `programs`, each lane (lane_of) runs its stages one after another, and the lanes run
# side by side: the suites with real parts mostly wait, and the builds use the CPUs meanwhile, at
# idle priority. A stage of the last lane may need that stages of the others have ended (needs_of);
# until then the later ones of its lane go first. A stage without a lane runs alone: `programs`
# before the lanes, the others after them. The output of a stage in a lane is printed whole when it
# ends.
#
# An executable stage is a program: it gets --long if that is given. Its last line "N passed, N
# failed" is added to the counts. Any other stage is sourced in a shell of its own, with the
# functions below. It counts every check with `pass NAME` or `fail NAME`. A stage that ends with an
# error, or counts nothing, is one failure.
#
# The random choices of an ordinary run follow from SALIUS_SEED, a number; by default it follows from
# the commit. So a commit is judged by the same cases each time, and the next one by others. With
# --long each run draws new ones.
#
# An interrupted run with --long continues when it is started again on the same commit. Stages that
# passed do not run again, and the others continue where they were. The progress is kept in
# SALIUS_LONG_DIR (default: .long/COMMIT).
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 1

only_ci=" clang instrumented bench fuzz machine "

# lane_of STAGE: prints the lane that the stage runs in; nothing: alone.
lane_of() {
  case "$1" in
    build | clang | unit | instrumented | sim | fuzz | sanitize) echo builds ;;
    integration | posix) echo faults ;;
    crash | campaign | apps | load | differential | machine | bench | sanitized) echo cuts ;;
  esac
}
# needs_of STAGE: prints the stages of other lanes that must have ended before this one begins. The
# benchmarks call sync(2), and what the whole machine syncs no power cut loses: they run beside no
# suite that cuts the power of a real disk. (Guests of `machine` have disks of their own.)
needs_of() {
  case "$1" in
    bench) echo build integration posix ;;
    sanitized) echo instrumented ;;
  esac
}
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
if [ $SALIUS_LONG = 0 ] && [ -z "${SALIUS_SEED:-}" ] && commit=$(git rev-parse --short=8 HEAD 2>/dev/null); then
  export SALIUS_SEED=$((16#${commit:0:8}))
fi
[ -z "${SALIUS_SEED:-}" ] || echo "seed of this run: $SALIUS_SEED"
if [ $SALIUS_LONG = 1 ]; then
  tested=$(git rev-parse --short=12 HEAD 2>/dev/null || echo unknown)
  # A result under other changes says nothing about these.
  [ -z "$(git status --porcelain 2>/dev/null)" ] || tested+=-$(
    { git diff HEAD && git ls-files -z --others --exclude-standard | xargs -0r sha256sum; } | sha256sum | head -c 12
  )
  export SALIUS_LONG_DIR=${SALIUS_LONG_DIR:-$PWD/.long/$tested}
  mkdir -p "$SALIUS_LONG_DIR"
  echo "long run: $SALIUS_LONG_DIR keeps what is done; remove it to start again"
fi

work=$(mktemp -d)
# One line per check of all ended stages, or, within a stage, of this one: "pass NAME" or "fail NAME".
results=$work/results
: >"$results"
lane_pids=()
trap 'rm -rf "$work"' EXIT
# A program may handle the signal and end as usual. Then the shell would go on without this.
trap 'exit 130' INT TERM HUP

pass() { echo "pass $*" >>"$results"; }
fail() {
  echo "fail $*" >>"$results"
  echo "FAILED: $*" >&2
}
# check NAME COMMAND...: runs one check, which passes when the command does.
check() {
  local name=$1
  shift
  if "$@"; then pass "$name"; else fail "$name"; fi
}
# is_long: true for a run with --long: more seeds, longer fuzzing, the slow suites.
is_long() { [ "$SALIUS_LONG" = 1 ]; }

# print_skips TARGET: prints the tests that a passed target skipped, and why, from Bazel's log.
print_skips() {
  local path=${1#//}
  local logs=bazel-testlogs/${path/:/\/}
  [ -d "$logs" ] || return 0
  find "$logs/" -name test.log -exec awk -v target="$1" '
    /: Skipped$/ { getline why }
    /^\[  SKIPPED \] .* ms\)$/ { print "skipped: " target " " $4 ": " why }' {} +
}

# bazel_test NAME TARGETS/OPTIONS...: builds and runs test targets, and counts each of them.
bazel_test() {
  local name=$1 log status target
  shift
  log=$(mktemp)
  # RC_PARAMS: of RapidCheck.
  bazel test --keep_going --test_summary=short --color=no --noshow_progress \
    ${SALIUS_SEED:+"--test_env=RC_PARAMS=seed=$SALIUS_SEED"} "$@" 2>&1 | tee "$log"
  status=${PIPESTATUS[0]}
  while read -r target status_word rest; do
    case "$status_word $rest" in
      "PASSED "* | "(cached) PASSED"*)
        pass "$target"
        print_skips "$target"
        ;;
      "FAILED "* | "TIMEOUT "* | "(cached) FAILED"* | "NO STATUS"* | "FLAKY"*) fail "$target" ;;
    esac
  done < <(grep -E '^//[^ ]+ +(\(cached\) )?(PASSED|FAILED|TIMEOUT|NO STATUS|FLAKY)' "$log")
  # 3: some test failed, and was counted. Any other code is a failed build or a wrong usage.
  [ "$status" -eq 0 ] || [ "$status" -eq 3 ] || fail "$name (bazel exit code $status)"
  rm -f "$log"
}

# run_program FILE NAME: runs an executable stage and adds the counts of its closing line.
run_program() {
  local file=$1 name=$2 log status line passed failed
  local arguments=()
  is_long && arguments+=(--long)
  log=$(mktemp)
  "$file" "${arguments[@]+"${arguments[@]}"}" 2>&1 | tee "$log"
  status=${PIPESTATUS[0]}
  line=$(grep -E '^[0-9]+ passed, [0-9]+ failed$' "$log" | tail -n 1)
  grep -E '^passed at the second try' "$log" >>"$work/second-tries"
  rm -f "$log"
  read -r passed _ failed _ <<<"${line:-0 passed, 0 failed}"
  for ((i = 0; i < passed; i++)); do pass "$name"; done
  for ((i = 0; i < failed; i++)); do fail "$name"; done
  [ "$status" -eq 0 ] || [ "$failed" -gt 0 ] || fail "stage $name (exit code $status)"
}

# run_stage FILE NUMBER: runs the stage, the NUMBER-th of all; adds its checks to $results.
run_stage() {
  local file=$1 number=$2 name kept all=$results results
  name=$(stage_name "$file")
  kept=${SALIUS_LONG_DIR:-}/passed-$(basename "$file" .sh)
  results=$work/results-$number
  : >"$results"
  echo "=== $name (stage $number of $stage_count, $((SECONDS / 60)) min)"
  if is_long && [ -e "$kept" ]; then
    echo "$(wc -l <"$kept") passed in an earlier part of this run"
    cat "$kept" >>"$all"
    return
  fi
  if [ -x "$file" ]; then
    run_program "$file" "$name"
  else
    # shellcheck disable=SC1090
    (trap 'exit 130' INT TERM HUP && source "$file") || fail "stage $name"
  fi
  [ -s "$results" ] || fail "stage $name made no check"
  if is_long && ! grep -q '^fail ' "$results"; then
    cp "$results" "$kept.new" && mv "$kept.new" "$kept"
  fi
  cat "$results" >>"$all"
}

stage_name() { basename "$1" .sh | sed 's/^[0-9][0-9]-//'; }

# may_begin STAGE: true if every stage of this run that it needs has ended, or the lanes that began
# before this one have.
may_begin() {
  local need
  for need in $(needs_of "$1"); do
    [[ ! -e "$work/ended-$need" && $stage_names == *" $need "* ]] || continue
    ! kill -0 "${lane_pids[@]}" 2>/dev/null || return 1
  done
}

# next_of NUMBER...: sets `next` to the first of these stages that may begin, when one may.
next_of() {
  while true; do
    for next in "$@"; do
      ! may_begin "$(stage_name "${files[next - 1]}")" || return 0
    done
    sleep 1
  done
}

# run_lane LANE: runs its stages, one after another.
run_lane() {
  local lane=$1 number=0 name next
  local waiting=() # the names of its stages, by their number
  trap 'exit 130' INT TERM HUP
  for name in $stage_names; do
    number=$((number + 1))
    [ "$(lane_of "$name")" != "$lane" ] || waiting[$number]=$name
  done
  while [ ${#waiting[@]} -gt 0 ]; do
    next_of "${!waiting[@]}"
    name=${waiting[$next]}
    unset "waiting[$next]"
    run_stage "${files[next - 1]}" "$next" >"$work/output-$next" 2>&1
    : >"$work/ended-$name"
    echo "--- $name ended ($((SECONDS / 60)) min)" >>"$work/output-$next"
    flock "$work" cat "$work/output-$next"
  done
}

# set_priority idle|normal PID...: sets the priority of processes, all their threads and what these
# start later. Only root can raise a priority again, so for others nothing changes.
set_priority() {
  local nice=0 policy=--other pid tasks
  if [ "$1" = idle ]; then nice=19 policy=--idle; fi
  shift
  [ "$(id -u)" -eq 0 ] || return 0
  for pid in "$@"; do
    chrt --all-tasks $policy --pid 0 "$pid"
    tasks=("/proc/$pid/task"/*)
    renice -n $nice -p "${tasks[@]##*/}"
  done >/dev/null 2>&1
}

# set_bazel_priority idle|normal: sets that of the Bazel server, which remains when its client ends,
# with the priority of the client that started it. It has a session of its own, which may have a
# priority too (autogroup).
set_bazel_priority() {
  local server nice=0
  server=$(bazel info server_pid 2>/dev/null) || return 0
  set_priority "$1" "$server"
  [ "$1" = normal ] || nice=19
  [ "$(id -u)" -ne 0 ] || [ ! -e "/proc/$server/autogroup" ] || echo $nice >"/proc/$server/autogroup"
}

run_builds() {
  set_bazel_priority idle
  set_priority idle $BASHPID
  run_lane builds
}

# end_lanes: interrupts them, and kills what remains after 30 s.
end_lanes() {
  trap '' INT TERM HUP
  # shellcheck disable=SC2046
  set_priority normal $(pgrep -g "${lane_pids[0]}") # the builds, so that they can end
  kill -INT -- "${lane_pids[@]/#/-}" 2>/dev/null
  for ((i = 0; i < 300; i++)); do
    kill -0 -- "${lane_pids[@]/#/-}" 2>/dev/null || break
    sleep 0.1
  done
  kill -KILL -- "${lane_pids[@]/#/-}" 2>/dev/null
  set_bazel_priority normal
  exit 130
}

run_lanes() {
  local lane pid
  # Without it the suites would ask Bazel, which a build keeps busy.
  SALIUS_BIN=${SALIUS_BIN:-$(bazel info -c opt bazel-bin 2>/dev/null)}
  export SALIUS_BIN
  trap end_lanes INT TERM HUP
  set -m # each lane is a process group of its own
  (set +m && run_builds) </dev/null &
  lane_pids+=($!)
  for lane in faults cuts; do
    (set +m && run_lane "$lane") </dev/null &
    lane_pids+=($!)
  done
  set +m
  for pid in "${lane_pids[@]}"; do wait "$pid" || fail "a lane ended with exit code $?"; done
  trap 'exit 130' INT TERM HUP
  set_bazel_priority normal
}

# shellcheck source=deploy/packages.sh
source deploy/packages.sh
salius_install "${salius_build_packages[@]}" "${salius_check_packages[@]}" || fail "packages"

files=()
if [ ${#stages[@]} -eq 0 ]; then
  for file in tests/stages/*.sh; do
    name=$(basename "$file" .sh)
    [[ $ci -eq 0 && $only_ci == *" ${name#[0-9][0-9]-} "* ]] || files+=("$file")
  done
  [ $ci -eq 0 ] || files+=(tests/stages/ci/*.sh)
  [ $SALIUS_LONG = 0 ] || files+=(tests/stages/long/*.sh)
fi
for name in "${stages[@]+"${stages[@]}"}"; do
  found=0
  for file in tests/stages/"$name".sh tests/stages/[0-9]*-"$name".sh tests/stages/{ci,long}/"$name".sh; do
    if [ -e "$file" ]; then
      files+=("$file")
      found=1
    fi
  done
  [ $found -eq 1 ] || fail "no stage $name"
done
stage_count=${#files[@]}
stage_names=" "
for file in "${files[@]+"${files[@]}"}"; do stage_names+="$(stage_name "$file") "; done
number=0
for file in "${files[@]+"${files[@]}"}"; do
  number=$((number + 1))
  if [ ${#stages[@]} -gt 0 ] || [ -z "$(lane_of "$(stage_name "$file")")" ]; then
    run_stage "$file" $number
  elif [ ${#lane_pids[@]} -eq 0 ]; then
    run_lanes
  fi
done

passed=$(grep -c '^pass ' "$results")
failed=$(grep -c '^fail ' "$results")
if [ "$failed" -gt 0 ]; then
  echo "--- failed:"
  sed -n 's/^fail /  /p' "$results"
fi
[ ! -s "$work/second-tries" ] || cat "$work/second-tries"
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
