"""Measures what changes of the key cost: two volumes with sealed datagrams on one CPU, one whose key
never changes and one whose key changes every second; a round of each in turn.

usage: python3 -m bench.rotation [--rounds N] [--seconds S] [--size BYTES] [--json FILE]

Prints the table of medians, and for each volume the longest write as a multiple of the p99 of its
round: median, and the largest of all rounds. Fails if a volume left its mode or lost a member, or if
its key did not change as it should. Run with tests/ as working directory, as root.
"""
import argparse
import contextlib
import dataclasses
import statistics
import sys

from bench import command, figures, rounds
from bench.scenario import Ground, Scenario
from harness.run import HarnessError

NEVER, EACH_SECOND = "key never changes", "key changes every second"
BAR = 3  # times p99


def parse():
    parser = argparse.ArgumentParser(prog="bench.rotation", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=3.0, help="of a round")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--size", default="4KiB")
    command.add_options(parser)
    args = parser.parse_args()
    if args.smoke:
        args.seconds, args.rounds, args.no_wait = 1.5, 1, True
    return args


def _check(ground, name, before):
    """Checks that the volume kept its mode and its members since `before`; returns how often its key
    changed."""
    if name == EACH_SECOND:
        ground.mount.wait_status(lambda s: s["sealing"]["key_changes"] > before["sealing"]["key_changes"], 60, "a change of the key")
    status = ground.mount.status()
    if status["mode_since_unix_ms"] != before["mode_since_unix_ms"] or not all(r["member"] for r in status["replicas"]):
        raise HarnessError("%s: the volume left its mode or lost a member: %s" % (name, status))
    changes = status["sealing"]["key_changes"] - before["sealing"]["key_changes"]
    if name == NEVER and changes > 0:
        raise HarnessError("%s: %d changes" % (name, changes))
    return changes


def run(args):
    # On a busy machine a wait for the CPU must not pass for a partition: `busy` makes delta 10 s.
    scenario = Scenario(size=args.size, m=3, acks=2, busy=True)
    print("== %s, sealed" % scenario.label(), flush=True)
    with contextlib.ExitStack() as stack:
        grounds = {}
        for name, seconds in ((NEVER, 0), (EACH_SECOND, 1)):
            ground = stack.enter_context(contextlib.closing(
                Ground(scenario, args.cpu, "sealed,key-rotation=%d" % seconds, floors=False)))
            ground.subjects[0].name = name
            grounds[name] = ground
        for ground in grounds.values():
            ground.mount.wait_whole(60)
        before = {name: ground.mount.status() for name, ground in grounds.items()}
        subjects = [ground.subjects[0] for ground in grounds.values()]
        rounds.measure(subjects, args.rounds, args.seconds, wait=not args.no_wait, count_calls=False)
        changes = {name: _check(ground, name, before[name]) for name, ground in grounds.items()}
    print("\n".join(rounds.table(subjects, NEVER)))
    for subject in subjects:
        longest = [one["max_us"] / one["p99_us"] for one in subject.rounds]
        print("%-25s longest write / p99: median %.1f, most %.1f; rounds over %d: %d of %d; key changes: %d" % (
            subject.name, statistics.median(longest), max(longest), BAR, sum(one > BAR for one in longest), len(longest),
            changes[subject.name]))
    figures.File(args.json, "rotation").save(
        [{**dataclasses.asdict(scenario), "changes": changes,
          "subjects": {s.name: {"median": s.median(), "rounds": s.rounds} for s in subjects}}], complete=True)
    return 0


if __name__ == "__main__":
    sys.exit(command.main("bench.rotation", parse(), run))
