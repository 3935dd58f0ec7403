"""Measures Salius beside its floors over the whole matrix, one dimension at a time around 4 KiB,
one writer, two of two.

usage: python3 -m bench.matrix [--smoke] [--seconds S] [--rounds N] [--cpu N] [--json FILE]
                               [--no-wait] [SLICE...]

Run with tests/ as working directory, as root. With --json every figure of every round is written,
after each scenario. An interrupted run continues after the scenarios in the file. A scenario that
this machine cannot hold (memory, descriptors) is reported, and the rest continues. Exit status: 0,
1 when something could not be measured, 3 when the machine is not quiet.
"""
import argparse
import contextlib
import dataclasses
import sys

from bench import command, figures, rounds
from bench.quiet import NotQuiet, wait_quiet
from bench.scenario import SIZES, Ground, Scenario
from harness.run import HarnessError


def matrix():
    """Returns {slice: [Scenario]}: one dimension at a time around 4 KiB, one writer, two of two."""
    both = (True, False)
    return {
        "size": [Scenario(size=size, m=3, packed=packed) for size in SIZES for packed in both],
        "writers": [Scenario(writers=n, packed=packed) for n in (1, 2, 4, 8, 16, 32, 64) for packed in both],
        "replicas": [Scenario(m=m, acks=f, packed=packed) for m in (1, 2, 3, 4) for f in range(1, min(m, 3) + 1)
                     for packed in both],
        "multicast": [Scenario(m=m, acks=2, multicast=True, network=network, packed=packed)
                      for network in ("loopback", "veth1500") for m in (2, 3, 4) for packed in both],
        "pattern": [Scenario(pattern=pattern, packed=packed) for pattern in ("overwrite", "append", "fsync:1", "fsync:8")
                    for packed in both],
        "network": [Scenario(network=network, size=size, packed=packed)
                    for network in ("loopback", "veth1500", "veth9000") for size in ("4KiB", "64KiB") for packed in both],
        "cached": [Scenario(pattern=pattern, size=size, packed=packed)
                   for pattern in ("plain", "read") for size in ("4KiB", "64KiB") for packed in both],
        # How the cost grows.
        "many-replicas": [Scenario(m=m) for m in (2, 4, 6, 8)],
        "idle-volumes": [Scenario(other_volumes=n) for n in (0, 10, 100, 1000)],
        "busy-volumes": [Scenario(other_volumes=n, busy=True, packed=False) for n in (1, 10, 100, 1000)],
        "open-files": [Scenario(open_files=n) for n in (0, 1000, 9000, 100000)],
        "log": [Scenario(log_mib=n) for n in (16, 256, 2048)],
    }


def parse():
    parser = argparse.ArgumentParser(prog="bench.matrix", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    return command.parse(parser, matrix(), "SLICE", seconds=1.0, rounds=5)


# The share of two CPUs that a thousand idle sessions may take between rounds (13% with all else was
# seen).
IDLE_SESSIONS = 0.10


def measure(scenario, args):
    """Measures one scenario and prints its table; returns {subject: {median, rounds}}."""
    if scenario.other_volumes and not args.no_wait:
        wait_quiet(rounds.QUIET_BOUND_S)  # afterwards their own load would hide the load of others
    with contextlib.closing(Ground(scenario, args.cpu)) as ground:
        own = 1.0 if scenario.busy else IDLE_SESSIONS * min(1.0, scenario.other_volumes / 1000)
        rounds.measure(ground.subjects, args.rounds, args.seconds, wait=not args.no_wait, own=own)
        ground.check()
        print("\n".join(rounds.table(ground.subjects, "salius")), flush=True)
        return {s.name: {"median": s.median(), "rounds": s.rounds} for s in ground.subjects}


def run(args):
    failed, missed = False, []
    file = figures.File(args.json, "matrix")
    done = [point for point in file.earlier() if "failed" not in point]
    for name, scenarios in matrix().items():
        if args.names and name not in args.names:
            continue
        for scenario in scenarios[:1] if args.smoke else scenarios:
            what = {"slice": name, **dataclasses.asdict(scenario)}
            if any(all(d.get(k) == v for k, v in what.items()) for d in done):
                continue
            print("\n== %s: %s" % (name, scenario.label()), flush=True)
            try:
                subjects = measure(scenario, args)
            except NotQuiet:
                raise
            except (HarnessError, OSError) as error:
                print("NOT MEASURED: %s" % error, flush=True)
                failed = True
                missed.append({**what, "label": scenario.label(), "subjects": {}, "failed": str(error)})
                continue
            done.append({**what, "label": scenario.label(), "subjects": subjects})
            file.save(done)
    file.save(done + missed, complete=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(command.main("bench.matrix", parse(), run))
