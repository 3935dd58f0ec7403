# shellcheck shell=bash
# Every planted bug, one at a time; about an hour. The simulator must find some
# (tests/sim/mutations.py), and a test must notice the others (tests/mutations/run.py). They are
# planted in this tree, so nothing in it may be uncommitted. In a run with --long, SALIUS_LONG_DIR
# keeps which were found.

# planted_each SCRIPT COLUMN: runs the bugs that SCRIPT lists; COLUMN of the list has the names.
planted_each() {
  local script=$1 column=$2 kept=${SALIUS_LONG_DIR:+$SALIUS_LONG_DIR/planted} name names number=0
  mapfile -t names < <("$script" --list | awk -v column="$column" '{ print $column }')
  check "$script has a list" [ "${#names[@]}" -gt 0 ]
  for name in "${names[@]}"; do
    number=$((number + 1))
    if [ -n "$kept" ] && grep -qxF "$script $name" "$kept" 2>/dev/null; then
      pass "$script $name"
      continue
    fi
    echo "planted bug $number of ${#names[@]}, $script"
    if "$script" "$name"; then
      pass "$script $name"
      [ -z "$kept" ] || echo "$script $name" >>"$kept"
    else
      fail "$script $name"
    fi
  done
}

planted_each tests/sim/mutations.py 1
planted_each tests/mutations/run.py 2
