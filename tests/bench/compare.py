"""Measures builds beside each other: all of them alive at once, a round of each in turn, so that
other load on the machine falls on all.

usage: python3 -m bench.compare [--rounds N] [--seconds S] [--FIELD VALUE]... [--floors]
                                [--json FILE] NAME=BINDIR...

BINDIR is a directory like bazel-bin; NAME=BINDIR,OPTION,... adds mount options for that build. The
option `sealed` is not mount's: all programs of that build get keys, so its datagrams are sealed. A
field is one of bench.scenario.Scenario: --size 64KiB, --writers 8, --m 3, --acks 2, --pattern
fsync:8, --network veth1500, ...; --free instead of packed. Prints the table of medians. For each
build it prints p50, p99 and rate as multiples of the first build's in the same round: median, and
the quartiles in brackets. Run with tests/ as working directory, as root.
"""
import argparse
import contextlib
import dataclasses
import os
import statistics
import sys

from bench import command, figures, rounds
from bench.scenario import Ground, Scenario
from harness.run import REPO


def parse():
    parser = argparse.ArgumentParser(prog="bench.compare", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("builds", nargs="+", metavar="NAME=BINDIR")
    parser.add_argument("--seconds", type=float, default=0.5, help="of a round")
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--free", action="store_true", help="where the scheduler wants it")
    parser.add_argument("--floors", action="store_true", help="the floors, too")
    for field in dataclasses.fields(Scenario):
        if field.type is not bool:
            parser.add_argument("--" + field.name.replace("_", "-"), type=field.type, default=field.default)
        elif field.name != "packed":
            parser.add_argument("--" + field.name.replace("_", "-"), action="store_true")
    command.add_options(parser)
    args = parser.parse_args()
    if not all("=" in build for build in args.builds):
        parser.error("a build is NAME=BINDIR")
    if args.multicast and len(args.builds) > 1:
        parser.error("with multicast every build's replicas would get what all builds send: give one")
    if args.smoke:
        args.seconds, args.rounds, args.no_wait = 0.2, 1, True
    return args


@contextlib.contextmanager
def _binaries(directory):
    """Sets SALIUS_BIN within the block."""
    before = os.environ.get("SALIUS_BIN")
    os.environ["SALIUS_BIN"] = os.path.abspath(directory)
    try:
        yield
    finally:
        if before is None:
            del os.environ["SALIUS_BIN"]
        else:
            os.environ["SALIUS_BIN"] = before


def _quarters(values):
    ordered = sorted(values)
    return statistics.median(ordered), ordered[len(ordered) // 4], ordered[len(ordered) * 3 // 4]


def run(args):
    fields = {field.name: getattr(args, field.name) for field in dataclasses.fields(Scenario) if field.name != "packed"}
    scenario = Scenario(packed=not args.free, **fields)
    print("== %s" % scenario.label(), flush=True)
    os.environ.setdefault("SALIUS_TOOLS", os.environ.get("SALIUS_BIN", os.path.join(REPO, "bazel-bin")))
    subjects = []
    with contextlib.ExitStack() as stack:
        grounds = []
        for i, build in enumerate(args.builds):
            name, _, rest = build.partition("=")
            directory, _, options = rest.partition(",")
            with _binaries(directory):
                ground = stack.enter_context(contextlib.closing(
                    Ground(scenario, args.cpu, options, floors=args.floors and i == 0)))
            grounds.append(ground)
            ground.subjects[0].name = name
            subjects += ground.subjects
        rounds.measure(subjects, args.rounds, args.seconds, wait=not args.no_wait, count_calls=False)
        for ground in grounds:
            ground.check()
    base = subjects[0]
    print("\n".join(rounds.table(subjects, base.name)))
    for subject in subjects[1:]:
        ratios = []
        for figure in ("p50_us", "p99_us", "ops_per_second"):
            ratios.append("%s x %.3f [%.3f %.3f]" % (figure, *_quarters(
                mine[figure] / its[figure] for mine, its in zip(subject.rounds, base.rounds))))
        print("%-22s %s" % (subject.name, ", ".join(ratios)))
    figures.File(args.json, "compare").save(
        [{**dataclasses.asdict(scenario), "label": scenario.label(),
          "subjects": {s.name: {"median": s.median(), "rounds": s.rounds} for s in subjects}}], complete=True)
    return 0


if __name__ == "__main__":
    sys.exit(command.main("bench.compare", parse(), run))
