"""Measures applications with the sync they really do, each on six grounds in turn.

The grounds:
1. a plain directory of the local disk
2. a Salius volume
3. a direct Salius volume, under salius-run
4. the plain directory without any sync (eatmydata): the limit of a faster sync
5. a FUSE file system that passes everything through and syncs nothing (passthrough_fs): the limit
   of a mount
6. the same, with synced data sent to as many echo servers as there are replicas, and their answers
   awaited: the limit of replication through a mount

usage: python3 -m bench.applications [--smoke] [--seconds S] [--rounds N] [--size BYTES] [--cpu N]
                                     [--placement packed|free] [--json FILE] [--no-wait]
                                     [--control] [NAME...]

Run with tests/ as working directory, as root, after `bazel build -c opt //...`. The names are those
of APPLICATIONS in bench/programs.py. An application that is not installed is named with its
package; PACKAGES lists them all, nothing is installed. The placement is free by default: an
application is measured as it runs.

Exit status:
- 0: all were measured
- 1: one could not be measured, or lost acknowledged data
- 3: the machine is not quiet

With --control each check expects one operation more than were acknowledged, and must notice. Exit
status 0 then means that all did.
"""
import argparse
import contextlib
import os
import statistics
import sys

from bench import command, figures
from bench.direct import DirectVolume
from bench.programs import APPLICATIONS, Unreadable
from bench.quiet import NotQuiet, wait_quiet
from bench.rounds import QUIET_BOUND_S
from bench.servers import free_name, program
from bench.setup import MountedVolume, Replicas, Serving, pinned
from bench.tools import tool
from harness.run import HarnessError

PACKAGES = ("eatmydata", "mariadb-server", "postgresql", "redis-server", "rocksdb-tools")
REPLICAS = ACKS = 2
GROUNDS = {"disk": "local disk", "salius": "Salius", "direct": "Salius, direct", "no-sync": "local disk, no sync", "fuse": "FUSE, no sync",
           "fuse-replicated": "FUSE, replicated"}
TIMES = {"salius_to_disk": "salius", "direct_to_disk": "direct", "no_sync_to_disk": "no-sync", "fuse_to_disk": "fuse",
         "fuse_replicated_to_disk": "fuse-replicated"}


def directory(kind):
    path = free_name(kind)
    os.mkdir(path, 0o755)
    return path


class Grounds:
    """The application's instances, one per ground, ready for rounds: `instances` {ground:
    Application}."""

    def __init__(self, application, size, cpu):
        self._stack = contextlib.ExitStack()
        self.instances = {}
        try:
            own = self._own
            replicas = own(Replicas(REPLICAS, "384MiB", cpu))
            self.volume = own(MountedVolume(directory("volume"), replicas, ACKS, cpu=cpu))
            self.direct = own(DirectVolume(directory("direct"), replicas, ACKS, cpu=cpu, user=application.user))
            paths = {"disk": directory("disk"), "salius": self._below(self.volume.path), "direct": self.direct.path,
                     "no-sync": directory("no-sync"),
                     "fuse": self._passthrough("fuse", cpu),
                     "fuse-replicated": self._passthrough("fuse-replicated", cpu, "--replicas", str(REPLICAS), "--acks",
                                                          str(ACKS))}
            wrappers = {"no-sync": (program("eatmydata"),), "direct": self.direct.words}
            for ground in GROUNDS:
                self.instances[ground] = own(application(paths[ground], size, pinned(cpu), wrappers.get(ground, ())))
        except BaseException:
            self.close()
            raise

    @staticmethod
    def _below(mountpoint):
        path = os.path.join(mountpoint, "application")
        os.mkdir(path)
        return path

    def _passthrough(self, name, cpu, *options):
        serving = self._own(Serving(os.path.basename(free_name(name)), [tool("passthrough_fs"), *options, directory(name)],
                                    cpu))
        return self._below(serving.path)

    def _own(self, thing):
        return self._stack.enter_context(contextlib.closing(thing))

    def check(self):
        """Returns {ground: None, or the data that cannot be read back}."""
        found = {}
        for ground, instance in self.instances.items():
            try:
                found[ground] = instance.check()
            except Unreadable as error:
                found[ground] = str(error)
        status = self.volume.mount.status()
        if status["mode"] != "replicated":
            raise HarnessError("the volume ended in mode %(mode)s (%(mode_detail)s)" % status)
        self.direct.check()
        return found

    def close(self):
        self._stack.close()


def measure(application, args, cpu):
    """Returns the figures of one application, for a program to read."""
    rounds = {}
    with contextlib.closing(Grounds(application, args.size, cpu)) as grounds:
        for _ in range(args.rounds):
            for ground, instance in grounds.instances.items():
                if not args.no_wait:
                    wait_quiet(QUIET_BOUND_S)
                rounds.setdefault(ground, []).append(instance.round(args.seconds))
        if args.control:
            for instance in grounds.instances.values():
                instance.pretend()
        unreadable = grounds.check()
    rates = {ground: statistics.median(r["ops_per_second"] for r in of) for ground, of in rounds.items()}
    return {"name": application.name, "ops_per_second": rates, "rounds": rounds,
            **{name: rates[ground] / rates["disk"] for name, ground in TIMES.items()},
            "unreadable": {ground: text for ground, text in unreadable.items() if text}}


def as_expected(result, control):
    """Returns whether it was measured and everything is readable; for a control, nothing."""
    return "failed" not in result and len(result["unreadable"]) == (len(GROUNDS) if control else 0)


def run(args):
    if program("eatmydata") is None:
        raise HarnessError("no eatmydata (apt-get install eatmydata)")
    cpu = args.cpu if args.placement == "packed" else None
    print("applications, %d bytes, %s" % (args.size, "free" if cpu is None else "packed on CPU %d" % cpu))
    line = "%-15s" + " %12s" * len(GROUNDS) + " %9s" * len(TIMES) + "  %s"
    print(line % ("", "disk ops/s", "Salius", "direct", "no sync", "FUSE", "replicated", "Salius/d", "direct/d", "no sync/d",
                  "FUSE/d", "repl./d", "read back"), flush=True)
    results, failed = [], False
    file = figures.File(args.json, "applications")
    for name in args.names or list(APPLICATIONS):
        application = APPLICATIONS[name]
        if application.missing():
            print("%-15s %s" % (name, application.missing()), flush=True)
            results.append({"name": name, "skipped": application.missing()})
            continue
        try:
            result = measure(application, args, cpu)
        except NotQuiet:
            raise
        except HarnessError as error:
            result = {"name": name, "failed": str(error)}
            print("%-15s FAILED: %s" % (name, error), flush=True)
        else:
            print(line % (
                name, *("%.0f" % result["ops_per_second"][g] for g in GROUNDS), *("%.2f" % result[t] for t in TIMES),
                "; ".join("%s: %s" % (GROUNDS[g], text) for g, text in result["unreadable"].items()) or "everything"),
                  flush=True)
        failed = failed or not as_expected(result, args.control)
        results.append(result)
        file.save({"placement": args.placement, "size": args.size, "applications": results})
    file.save({"placement": args.placement, "size": args.size, "applications": results}, complete=True)
    return 1 if failed else 0


def parse():
    parser = argparse.ArgumentParser(prog="bench.applications", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, default=1024, help="bytes of a row or value (pgbench has its own)")
    parser.add_argument("--placement", choices=["packed", "free"], default="free")
    parser.add_argument("--control", action="store_true", help="check the checks")
    return command.parse(parser, APPLICATIONS, "NAME", seconds=3.0, rounds=5, smoke_seconds=1)


if __name__ == "__main__":
    sys.exit(command.main("bench.applications", parse(), run))
