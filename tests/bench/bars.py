"""Judges the bars from the figures of one machine and one commit, as tests/bench/run.sh all writes
them.

usage: python3 -m bench.bars DIR

Prints a line for every bar. Exit status: 0 when all are met, 1 when one is missed. 2 when none is
missed but one has no figures, or the figures were not made together.
"""
import argparse
import glob
import operator
import os
import statistics
import sys
from dataclasses import dataclass

from bench import direct, figures, trees
from harness.run import HarnessError

SENSES = {"at most": operator.le, "at least": operator.ge, "less than": operator.lt}


class Absent(Exception):
    """A figure was not measured; the text says why."""


class Figures:
    """The figures of the files in a directory. HarnessError when they were not all made with the
    same commit on the same machine."""

    def __init__(self, directory):
        self.files = {}
        for path in sorted(glob.glob(os.path.join(directory, "*.json"))):
            self.files[os.path.basename(path)] = figures.read(path)
        if not self.files:
            raise HarnessError("%s has no figures (*.json); tests/bench/run.sh all %s measures them" % (directory, directory))
        first = next(iter(self.files))
        for name, file in self.files.items():
            other = figures.difference(self.files[first]["made"], file["made"])
            if other:
                raise HarnessError("%s and %s were not made together: %s" % (first, name, other))
        self.made = self.files[first]["made"]
        self.smoke = any("--smoke" in file["made"]["command"].split() for file in self.files.values())

    def words(self):
        """Returns the commit and the machine of the figures, in words."""
        return "%scommit %s, %d times %s, Linux %s, %s" % ("smoke run, " if self.smoke else "", *(
            self.made[name] for name in ("commit", "cpus", "cpu", "kernel", "day")))

    def results(self, kind):
        """Returns the results of every file of that kind."""
        return [file["results"] for file in self.files.values() if file["kind"] == kind]

    def whole(self, figure, least, what):
        """Returns `figure` if it was made from at least as much as the bar requires; a smoke run
        may use less."""
        if what < least and not self.smoke:
            raise Absent("measured with %d instead of %d" % (what, least))
        return figure

    def case(self, name, **fields):
        """Returns a result of the bars' own benchmarks (bench/cases.py)."""
        return self._one("no figures of %s" % name, (r for results in self.results("bars") for r in results
                                                     if r["case"] == name), fields)

    def point(self, name, **fields):
        """Returns the point of that slice of the matrix."""
        return self._one("the matrix has no %s" % name, self.points(name), fields)

    def points(self, name):
        """Returns the measured points of that slice of the matrix."""
        return [p for results in self.results("matrix") for p in results if p["slice"] == name and p["subjects"]]

    def peers(self, writers, placement):
        return self._one("no peers", (r for results in self.results("peers") for r in results),
                         {"writers": writers, "placement": placement, "size": 4096})

    def application(self, name):
        """Returns the figures of an application, packed, rows of 1 KiB."""
        runs = (run for run in self.results("applications") if run["placement"] == "packed" and run["size"] == 1024)
        result = self._one("no applications", (a for run in runs for a in run["applications"]), {"name": name})
        if "ops_per_second" not in result:
            raise Absent(result.get("skipped") or result.get("failed"))
        if result["unreadable"]:
            raise Absent("not everything can be read back: %s" % result["unreadable"])
        return result

    @staticmethod
    def _one(absent, among, fields):
        found = [one for one in among if all(one[k] == v for k, v in fields.items())]
        if len(found) > 1:
            raise Absent("measured %d times" % len(found))
        if found:
            return found[0]
        raise Absent("%s with %s" % (absent, ", ".join("%s %s" % f for f in fields.items())) if fields else absent)


def _ratio(run, over, under, figure):
    subjects = run["subjects"]
    for name in (over, under):
        if name not in subjects:
            raise Absent(run.get("skipped", {}).get(name) or "%s was not measured there" % name)
    return subjects[over]["median"][figure] / subjects[under]["median"][figure]


@dataclass
class Bar:
    work: str        # the work, in words
    sense: str       # one of SENSES
    bar: float
    value: object    # function of Figures; may raise Absent
    unit: str = ""

    def judge(self, of):
        """Returns (value or None, True, False or None, text)."""
        try:
            value = self.value(of)
        except Absent as error:
            return None, None, "not measured: %s" % str(error).partition("\n")[0].replace("|", "/")
        met = SENSES[self.sense](value, self.bar)
        close = abs(value - self.bar) < 0.01 * self.bar
        return value, met, "%.*f%s" % (3 if close else 0 if value >= 100 else 2 if value < 10 else 1, value, self.unit)

    def text(self):
        return "%s %g%s" % (self.sense, self.bar, self.unit)


def _floor(figure, m, packed):
    return lambda f: f.case("floor", m=m, acks=2, packed=packed)["ratio_" + figure]


def _peer(name, figure, writers, placement):
    """Returns a function of the peer's figure relative to Salius: its latency divided by Salius's,
    or Salius's operations/s divided by its own."""
    over, under = (name, "salius") if figure == "p50_us" else ("salius", name)
    return lambda f: _ratio(f.peers(writers, placement), over, under, figure)


def _point(slice_, over, under, figure, **fields):
    return lambda f: _ratio(f.point(slice_, **fields), over, under, figure)


# Per slice: the quantity that grows from point to point.
GROWS = {
    "writers": lambda p: p["writers"], "many-replicas": lambda p: p["m"], "size": lambda p: BYTES[p["size"]],
    "idle-volumes": lambda p: 1 + p["other_volumes"], "busy-volumes": lambda p: 1 + p["other_volumes"],
    "open-files": lambda p: 1 + p["open_files"], "log": lambda p: p["log_mib"],
}
BYTES = {"512B": 512, "4KiB": 4096, "16KiB": 16384, "64KiB": 65536, "256KiB": 262144, "1MiB": 1 << 20}


def _growth(name, figure):
    """Returns the largest growth of the figure from a point to the next, relative to that of the
    quantity: 1 is linear."""
    def value(f):
        steps = []
        for packed in (True, False):
            points = sorted((p for p in f.points(name) if p["packed"] == packed), key=GROWS[name])
            steps += [p["subjects"]["salius"]["median"][figure] / q["subjects"]["salius"]["median"][figure]
                      / (GROWS[name](p) / GROWS[name](q)) for q, p in zip(points, points[1:])]
        if not steps:
            raise Absent("the matrix has no two points of %s" % name)
        return max(steps)
    return value


def _trees(value, full="files"):
    """Returns a function of a value of the case `trees`; `full`: the figure that says how much was
    measured."""
    least = getattr(trees.Sizes(), full)

    def of(f):
        case = f.case("trees")
        return f.whole(value(case), least, case[full])
    return of


def _trees_time(work, over=trees.SALIUS, under=trees.PASSTHROUGH):
    return _trees(lambda case: trees.ratio(case, work, over, under))


def _direct(words, sense, bar):
    """Returns the bar of the case `direct` with these words."""
    def value(f):
        for said, found, _, _ in direct.judged(f.case("direct")):
            if said == words:
                return found
        raise Absent("the case direct has no " + words)
    return Bar("direct, " + words, sense, bar, value)


def _local(f):
    case = f.case("floor", m=2, acks=2, packed=True)
    return case["floor-dir"]["p50_us"] / case["path"]["p50_us"]


BARS = [
    *(Bar("4 KiB overwrite, one writer, %s: %s of the mount floor's" % (shape, name), "at most", bar, _floor(figure, m, packed))
      for m, shape in ((2, "2 of 2"), (3, "2 of 3"))
      for name, figure, packed, bar in (("p50", "p50_us", True, 1.3), ("p99", "p99_us", True, 1.5),
                                        ("free, p50", "p50_us", False, 1.25))),
    Bar("8 writers, free: operations/s of the mount floor's", "at least", 0.9,
        lambda f: f.case("writers")["mount floor"]),
    Bar("8 writers, free: of the local disk's overwrites/s", "at least", 2, lambda f: f.case("writers")["local disk"]),
    Bar("8 writers, free: of Redis `WAIT 2`'s operations/s", "at least", 1.3, _peer("redis", "ops_per_second", 8, "free")),
    Bar("append: p50 of the overwrite's", "at most", 1.4, lambda f: f.case("patterns")["append"]),
    Bar("write and `fdatasync`: p50 of the overwrite's", "at most", 1.4, lambda f: f.case("patterns")["fdatasync"]),
    Bar("one writer: latency of Redis `WAIT 2`'s", "at most", 0.9, lambda f: 1 / _peer("redis", "p50_us", 1, "packed")(f)),
    Bar("one writer, free: latency of Redis `WAIT 2`'s", "at most", 0.75, lambda f: 1 / _peer("redis", "p50_us", 1, "free")(f)),
    *(Bar("%s: its latency of ours" % name, "at least", 9, _peer(peer, "p50_us", 1, "packed"))
      for peer, name in (("glusterfs", "GlusterFS"), ("etcd", "etcd"))),
    *(Bar("%s, 8 writers: our operations/s of its" % name, "at least", 12, _peer(peer, "ops_per_second", 8, "packed"))
      for peer, name in (("glusterfs", "GlusterFS"), ("etcd", "etcd"))),
    Bar("local disk, one writer: overwrite's latency of ours", "at least", 5, _local),
    Bar("local disk, one writer: append's latency of ours", "at least", 7,
        _point("pattern", "local disk", "salius", "p50_us", pattern="append", packed=True)),
    Bar("slow disk: writes/s of the bare file system's", "at least", 200,
        lambda f: f.whole(f.case("slow-disk")["times"], 300, f.case("slow-disk")["seconds"])),
    Bar("slow disk: SQLite's transactions/s of the bare file system's", "at least", 100,
        lambda f: f.case("slow-disk")["sqlite_times"]),
    Bar("1 MiB, 2 of 3: rate of the in-process floor's", "at least", 0.6,
        _point("size", "salius", "in-process floor", "ops_per_second", size="1MiB", packed=True)),
    *(Bar("CPU of the whole system for a 4 KiB write, %s" % shape, "at most", 25,
          lambda f, where=where: f.point(where[0], **where[1])["subjects"]["salius"]["median"]["cpu_us_system"], " µs")
      for shape, where in (("2 of 2", ("pattern", {"pattern": "overwrite", "packed": True})),
                           ("2 of 3", ("size", {"size": "4KiB", "packed": True})))),
    Bar("recovery: rate of plain writes from memory", "at least", 0.7,
        lambda f: f.whole(f.case("recovery")["mib_per_second"] / f.case("recovery")["plain_mib_per_second"], 262144,
                          f.case("recovery")["records"])),
    Bar("re-attach of 8 GiB", "less than", 2,
        lambda f: f.whole(statistics.median(f.case("reattach")["seconds"]), 8 << 30, f.case("reattach")["written"]), " s"),
    *(Bar("%s, %s: rate of an empty passthrough's" % (words, size), "at least", 0.9,
          _point("cached", "salius", "passthrough", "ops_per_second", pattern=pattern, size=size, packed=True))
      for pattern, words in (("read", "reads"), ("plain", "plain writes")) for size in ("4KiB", "64KiB")),
    *(Bar("%s: of the local disk's operations/s" % words, "at least", bar,
          lambda f, name=name: f.application(name)["salius_to_disk"])
      for name, words, bar in (("sqlite-wal", "SQLite WAL `FULL`", 3), ("rocksdb", "RocksDB `fillsync`", 6),
                               ("pgbench", "`pgbench -N -c1`", 2))),
    *(Bar("direct, %s: of the local disk's operations/s" % words, "at least", bar,
          lambda f, name=name: f.application(name)["direct_to_disk"])
      for name, words, bar in (("sqlite-wal", "SQLite WAL `FULL`", 3), ("rocksdb", "RocksDB `fillsync`", 6),
                               ("pgbench", "`pgbench -N -c1`", 1.8))),
    *(_direct(*bar) for bar in direct.BARS),
    *(Bar("%s: time of an empty passthrough's" % words, "at most", bar, _trees_time(work))
      for work, words, bar in trees.WORKS),
    *(Bar("%s, replicas %d ms away: time of without" % (words, trees.DELAY_MS), "at most", trees.DELAY_BAR,
          _trees_time(work, trees.DELAYED, trees.RELAYED)) for work, words, _ in trees.WORKS),
    Bar("waits for replicas in 1000 times create, write, close, chmod, utimens", "at most", 0,
        _trees(lambda case: case["waits"], "calls")),
    Bar("memory of the daemon for a cached inode", "at most", trees.INODE_BYTES,
        _trees(lambda case: case["inode_bytes"], "inodes"), " B"),
    Bar("share of it given back after forget", "at least", trees.RETURNED, _trees(lambda case: case["returned"], "inodes")),
    *(Bar("%s: the most that it grows with %s (1: linearly)" % (words, name), "at most", 1, _growth(name, figure))
      for name in GROWS for figure, words in (("p50_us", "p50"), ("cpu_us_system", "CPU of a write"))),
]

WORDS = {True: "met", False: "**missed**", None: "?"}


def table(of):
    """Returns [(work, bar, measured, met)] in words."""
    rows = []
    for bar in BARS:
        _, met, text = bar.judge(of)
        rows.append((bar.work, bar.text(), text, WORDS[met]))
    return rows


def judge_all(directory):
    """Prints the table; returns the exit status. HarnessError as in Figures."""
    of = Figures(directory)
    print(of.words())
    for row in table(of):
        print("%-70s %-16s %-12s %s" % (*row[:3], row[3].strip("*")))
    judged = [bar.judge(of)[1] for bar in BARS]
    return 1 if False in judged else 2 if None in judged else 0


def main():
    parser = argparse.ArgumentParser(prog="bench.bars", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", metavar="DIR")
    try:
        return judge_all(parser.parse_args().directory)
    except HarnessError as error:
        print("bench: %s" % error, file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
