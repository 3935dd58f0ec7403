"""Runs the benchmarks and prints their tables and bars.

usage: python3 -m bench [--smoke] [--seconds S] [--rounds N] [--starts N] [--slow-seconds S]
                        [--sqlite-seconds S] [--repeats N] [--records N] [--cpu N] [--json FILE]
                        [--no-wait] [floor|patterns|writers|slow-disk|recovery|reattach|trees|direct]...

Run with tests/ as working directory or in PYTHONPATH, as root. Exit status: 0 all ran and every bar
is met (with --smoke: all ran), 1 a bar is missed or something failed, 2 usage, 3 the machine is not
quiet.
"""
import argparse
import sys

from bench import cases, command, figures
from bench.quiet import wait_quiet

QUIET_BOUND_S = 180
CASES = ("floor", "patterns", "writers", "slow-disk", "recovery", "reattach", "trees", "direct")
SIZES = ("seconds", "rounds", "starts", "slow_seconds", "sqlite_seconds", "repeats", "records")


def plan(names, sizes, cpu):
    """Returns [(name, function)] in the order in which they run."""
    steps = []
    if "floor" in names:
        for m, acks in ((2, 2), (3, 2)):
            for on in (cpu, None):
                steps.append(lambda m=m, acks=acks, on=on: cases.floor(sizes, m, acks, on))
    if "patterns" in names:
        steps.append(lambda: cases.patterns(sizes, cpu))
    if "writers" in names:
        steps.append(lambda: cases.writers(sizes))
    if "slow-disk" in names:
        steps.append(lambda: cases.slow_disk(sizes, cpu))
    if "recovery" in names:
        steps.append(lambda: cases.recovery(sizes))
    if "reattach" in names:
        steps.append(lambda: cases.reattach(sizes))
    if "trees" in names:
        steps.append(lambda: cases.trees(sizes))
    if "direct" in names:
        steps.append(lambda: cases.direct(sizes, cpu))
    return steps


def show(result, smoke):
    print("\n== " + result.name)
    for line in result.lines:
        print(line)
    for text, met in result.bars:
        print("%s: %s" % ("smoke, bar not judged" if smoke else "BAR MET" if met else "BAR MISSED", text), flush=True)


def parse():
    parser = argparse.ArgumentParser(prog="bench", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", choices=[*CASES, []])
    for option in SIZES:
        parser.add_argument("--" + option.replace("_", "-"), type=int)
    command.add_options(parser)
    return parser.parse_args()


def run(args):
    sizes = cases.Sizes.smoke() if args.smoke else cases.Sizes()
    for name in SIZES:
        if getattr(args, name) is not None:
            setattr(sizes, name, getattr(args, name))
    if args.rounds is not None:
        sizes.trees.rounds = args.rounds
    sizes.wait = not args.smoke and not args.no_wait
    results = []
    file = figures.File(args.json, "bars")
    steps = plan(args.names or CASES, sizes, args.cpu)
    for step in steps:
        if sizes.wait:
            wait_quiet(QUIET_BOUND_S)
        results.append(step())
        show(results[-1], args.smoke)
        file.save([{"name": r.name, "bars": r.bars, **r.figures} for r in results], complete=len(results) == len(steps))
    met = all(ok for r in results for _, ok in r.bars)
    return 0 if met or args.smoke else 1


if __name__ == "__main__":
    sys.exit(command.main("bench", parse(), run))
