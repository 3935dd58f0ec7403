#!/usr/bin/env python3
"""Adds up the totals that a simulator printed, from standard input, and checks them.

Fails when they show fewer lifetimes than the argument says, or no event of some kind. For faults,
every kind in the simulator's sources must have happened.

    cat LOG... | tests/sim/totals.py cluster|volume|direct LEAST"""
import collections
import pathlib
import re
import sys

# The words of the simulators (seed_runner.cc, Totals). RARE, and some faults, happen in one lifetime
# of some hundreds, and are only required after ENOUGH lifetimes.
RARE, ENOUGH = "records met a full one", 20000
ALL = ["lifetimes", "faults", "records", "recoveries in"]
BOTH = ALL + ["disks failed", "operations cancelled", "recoveries in the same life"]
KINDS = {"direct": ALL + ["mode changes", "memories lost", "volumes failed"],
         "cluster": BOTH + ["mode changes", "memories lost", "records met a full one", "records by frozen primaries"],
         "volume": BOTH}


def faults(simulator):
    """Returns the names of all kinds of faults in the simulator's sources."""
    here = pathlib.Path(__file__).parent
    sources = set(here.glob(simulator + "_*.cc"))
    if simulator == "cluster":
        sources = set(here.glob("*.cc")) - set(here.glob("volume_*.cc")) - set(here.glob("direct_*.cc"))
    texts = [source.read_text() for source in sources]
    found = {name for text in texts for call in re.findall(r"\b(?:Fault|Happens|Count)\(([^;{]*)", text)
             for name in re.findall(r'"([^"]+)"', call.partition("options_")[0])}
    if simulator == "volume":  # the moments at which the process may die
        found |= {name for text in texts for name in re.findall(r'"((?:before|after|while|at) [^"]+)"', text)}
    return found


def missing_faults(simulator, text, lifetimes):
    """Returns the kinds of faults that never happened; none for too few lifetimes."""
    happened = collections.Counter()
    for name, times in re.findall(r"(?<=[:;] )([^=;:]+)=(\d+);", text):
        happened[name] += int(times)
    print("of each kind of fault: " + ", ".join("%d %s" % (times, name) for name, times in sorted(happened.items())))
    if lifetimes < ENOUGH:
        print("%d lifetimes are too few to ask for each kind of fault" % lifetimes)
        return set()
    return faults(simulator) - set(happened)


def main(argv):
    simulator, least = argv[0], int(argv[1])
    text = sys.stdin.read()
    wrong = lifetimes = 0
    said = []
    for kind in KINDS[simulator]:
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
    for name in sorted(missing_faults(simulator, text, lifetimes)):
        print("TOO FEW: never: %s" % name)
        wrong += 1
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
