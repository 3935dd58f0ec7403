#!/bin/sh
# The benchmarks at their smallest size: they run with the real programs and print every table and
# bar. Nothing is timed here; tests/bench/run.sh judges times on a quiet machine. Needs root and the
# built binaries (SALIUS_BIN or bazel-bin).
set -u
cd "$(dirname "$0")/.." || exit 1
log=$(mktemp)
trap 'rm -f "$log"' EXIT
passed=0
failed=0
# check WHAT COMMAND...: runs one check, which passes when the command does.
check() {
  what=$1
  shift
  if "$@"; then
    passed=$((passed + 1))
  else
    failed=$((failed + 1))
    echo "FAILED: $what"
  fi
}

check "bars are judged" /usr/bin/python3 -m unittest bench.test_bars

# Everything once, at a size too small for the bars. They are judged anyway, and some have no
# figures.
figures=$(mktemp -d)
/usr/bin/python3 -m bench.all --smoke "$figures" >"$log" 2>&1
status=$?
cat "$log"
check "the benchmarks end with exit status 0, 1 or 2, not $status" [ "$status" -le 2 ]
check "no benchmark fails" [ "$(grep -Ec '^(FAILED|bench|Traceback|NOT MEASURED)' "$log")" -eq 0 ]
for table in "floor: 2 replicas, acks=2, packed" "floor: 2 replicas, acks=2, free" \
  "floor: 3 replicas, acks=2, packed" "floor: 3 replicas, acks=2, free" "patterns" "8 writers" "slow disk" "recovery" \
  "re-attach" "trees"; do
  check "there is a table \"$table\"" grep -q "^== $table" "$log"
done
for bar in "x the floor" "x the bare file system" "SQLite at least" "MiB/s" "time of the pass-through" "ms away" \
  "waits for replicas" "cached inode"; do
  check "there is a bar \"$bar\"" grep -q "bar not judged: .*$bar" "$log"
done
for target in path floor-mount floor-udp floor-dir; do
  check "$target is measured" grep -Eq "^$target +[1-9]" "$log"
done
# The matrix: one point of each of two slices, every floor beside it.
for subject in salius "mount floor" "fuse floor" "in-process floor" "udp floor" "local disk" passthrough; do
  check "$subject is in the matrix" grep -Eq "^$subject +[1-9]" "$log"
done
# An application on all of its grounds; its rows are read back.
for application in sqlite-wal sqlite-delete; do
  check "$application is measured on six grounds" \
    grep -Eq "^$application( +[1-9][0-9]*){6}( +[0-9.]+){5}  everything" "$log"
done
check "six bars of the overwrite are judged" [ "$(grep -Ec '^4 KiB overwrite.* (met|missed)$' "$log")" -eq 6 ]
for bar in "8 writers, free: operations/s of the mount floor" "append" "slow disk: writes" "recovery: rate" "re-attach" \
  "SQLite WAL"; do
  check "\"$bar\" is judged from the figures" grep -Eq "^$bar.* (met|missed)$" "$log"
done

# The pages written from the figures.
/usr/bin/python3 -m bench.report --results "$figures/results" "$figures" >"$log" 2>&1
status=$?
cat "$log"
check "the report ends with exit status 0, not $status" [ "$status" -eq 0 ]
# has PAGE LINE: checks that a page has a line that begins so.
has() {
  check "$1 has \"$2\"" grep -q "^$2" "$figures/results/$1"
}
has README.md "    tests/bench/run.sh .*--smoke.*# matrix.json"
has floor.md "| 2 replicas, acks=2, packed |"
has bars.md "| re-attach of 8 GiB |"
has recovery.md "| median |"
has trees.md "| .tar x. |"
has size.md "| 512B, m=3, packed |"
has applications-packed.md "| sqlite-wal |"
/usr/bin/python3 -m bench.report "$figures" >"$log" 2>&1
status=$?
cat "$log"
check "figures of a smoke run are not written into the documents (exit status 2, not $status)" [ "$status" -eq 2 ]
rm -rf "$figures"

# A build beside itself, with other mount options, and the floors.
/usr/bin/python3 -m bench.compare --smoke --floors --size 16KiB --writers 2 --pattern fsync:2 \
  one="${SALIUS_BIN:-../bazel-bin}" other="${SALIUS_BIN:-../bazel-bin},threads=2" >"$log" 2>&1
status=$?
cat "$log"
check "the comparison ends with exit status 0, not $status" [ "$status" -eq 0 ]
check "both builds are compared" grep -Eq "^other +p50_us x [0-9.]+ \[.*ops_per_second x" "$log"
for subject in one other "mount floor" "in-process floor"; do
  check "$subject is in the comparison" grep -Eq "^$subject +[1-9]" "$log"
done

# A key that changes every second, beside one that never does.
/usr/bin/python3 -m bench.rotation --smoke >"$log" 2>&1
status=$?
cat "$log"
check "the measurement of key changes ends with exit status 0, not $status" [ "$status" -eq 0 ]
check "both volumes are judged" [ "$(grep -Ec "^key .* longest write / p99: median [0-9.]+, most" "$log")" -eq 2 ]

# A flood of garbage. It reaches both ends, and costs no member.
/usr/bin/python3 -m bench.flood --smoke >"$log" 2>&1
status=$?
cat "$log"
check "the measurement of a flood ends with exit status 0, not $status" [ "$status" -eq 0 ]
check "the flood is judged" grep -Eq "^rate of writes with the flood: [0-9.]+ of that without" "$log"

# The measurements of the papers, at their smallest size.
/usr/bin/python3 -m papers --short --results "$log.results" optfs nbw >"$log" 2>&1
status=$?
cat "$log"
check "the papers' measurements end with exit status 0, not $status" [ "$status" -eq 0 ]
for work in "an editor saves" "SQLite WAL"; do
  check "\"$work\" is measured on four grounds" [ "$(grep -Ec "^\| $work.* \| [0-9.]+ \|$" "$log.results/optfs.md")" -eq 4 ]
  check "\"$work\" is judged" grep -Eq "^\| $work.* at least 40 \| .*(met|missed)" "$log.results/optfs.md"
done
for ground in "bare ext4, no flush" "bare ext4" "Salius, commit=ordered"; do
  check "crash points on $ground" [ "$(grep -Ec "^\| (an editor|SQLite) \| $ground \| 4 \|" "$log.results/optfs.md")" -eq 2 ]
done
check "bare ext4 and a mount are measured with 29 works" \
  [ "$(grep -Ec "^\| (hard disk|SSD), .* \| (bare ext4|fetch=async-bg) \| [0-9.]+ \|$" "$log.results/nbw.md")" -eq 58 ]
check "a recovery is judged" grep -Eq "^\| recovery of 4 MiB.* at least 0.9 \| .*(met|missed)" "$log.results/nbw.md"
for page in optfs nbw; do
  check "the disk's own figures are in $page.md" grep -q "^| random reads of 4 KiB |" "$log.results/$page.md"
done
rm -rf "$log.results"

echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
