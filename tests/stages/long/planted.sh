# shellcheck shell=bash
# Every planted bug, one at a time (tests/mutations); about an hour. They are planted in this tree,
# so nothing in it may be uncommitted. In a run with --long, SALIUS_LONG_DIR keeps which were found.
planted_each() {
  local kept=${SALIUS_LONG_DIR:+$SALIUS_LONG_DIR/planted} name names number=0
  mapfile -t names < <(tests/mutations/run.py --list | awk '{ print $1 }')
  check "there are planted bugs" [ "${#names[@]}" -gt 0 ]
  for name in "${names[@]}"; do
    number=$((number + 1))
    if [ -n "$kept" ] && grep -qxF "$name" "$kept" 2>/dev/null; then
      pass "planted bug $name"
      continue
    fi
    echo "planted bug $number of ${#names[@]}"
    if tests/mutations/run.py "$name"; then
      pass "planted bug $name"
      [ -z "$kept" ] || echo "$name" >>"$kept"
    else
      fail "planted bug $name"
    fi
  done
}

planted_each
