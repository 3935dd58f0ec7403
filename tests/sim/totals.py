#!/usr/bin/env python3
"""Adds up the totals that cluster_sim_run printed, from standard input, and fails when they show that too little
happened: fewer lifetimes than the argument says, or nothing of some kind.

    cat LOG... | tests/sim/totals.py LEAST"""
import re
import sys

# In the words of Sum::Tell (cluster_sim_main.cc); RARE happens in one lifetime of some hundreds, and is only asked for
# where there were enough of them.
RARE, ENOUGH = "records met a full one", 20000
KINDS = ["lifetimes", "faults", "records", "recoveries in", "mode changes", "memories lost", "records met a full one",
         "disks failed", "operations cancelled", "recoveries in the same life", "records by frozen primaries"]


def main(argv):
    least = int(argv[0])
    text = sys.stdin.read()
    wrong = lifetimes = 0
    said = []
    for kind in KINDS:
        counts = re.findall(r"(?:: |, )(\d+) %s(?=[,;])" % re.escape(kind), text)
        if kind == "recoveries in":
            counts = re.findall(r", (\d+) recoveries in \d+ runs,", text)
        total = sum(int(count) for count in counts)
        needed = least if kind == "lifetimes" else 1
        if kind == "lifetimes":
            lifetimes = total
        if kind == RARE and counts and lifetimes < ENOUGH:
            needed = 0
        if not counts or total < needed:
            print("TOO FEW: %d %s, of at least %d" % (total, kind, needed))
            wrong += 1
        said.append("%d %s" % (total, kind.removesuffix(" in")))
    print("in all: " + ", ".join(said))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
