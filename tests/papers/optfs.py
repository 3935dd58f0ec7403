"""Optimistic Crash Consistency (Chidambaram and others, SOSP 2013), section 6: works that need order and
not durability, on a disk held to 100 requests a second, beside the bare ext4 there. Table 3: an editor
that saves, and SQLite. Table 2: CPU and memory of a mail server's work.

The control rows are the same mount with fsync=dsync (each fsync waits), and bare ext4 without a flush.
Both after a crash: crash_points.py. Table 1, the crashes of appends and overwrites, is a test of
its own (tests/crash/test_disk.py).
"""
import contextlib
import random
import re
from dataclasses import dataclass

from bench import disk
from bench.counters import Counters
from bench.report import markdown
from papers import crash_points
from papers.grounds import Grounds, eatmydata
from papers.table import Bar, Work, ratio
from papers.xsyncfs import Directories

TITLE = "Optimistic crash consistency: order without durability"
IOPS = 100
ORDER, DURABLE = "fsync=osync", "fsync=dsync"
BARE, IGNORED = "bare ext4", "bare ext4, no sync"


@dataclass
class Sizes:
    rounds: int = 3
    saves: int = 20
    transactions: int = 20
    text_bytes: int = 64 << 10
    mail_seconds: int = 60
    crash_points: int = 60
    versions: int = 40  # of the recorded runs
    seed: int = 1
    disk_ms: int = 1000  # for each of the disk's own figures

    @staticmethod
    def short():
        return Sizes(rounds=1, saves=2, transactions=2, mail_seconds=1, crash_points=4, versions=8, disk_ms=20)


def resident_mib(pids):
    total = 0
    for pid in pids:
        with open("/proc/%d/status" % pid) as f:
            total += next(int(line.split()[1]) for line in f if line.startswith("VmRSS:"))
    return total / 1024


def resources(sizes, directories):
    """Table 2: CPU and memory of a mail server's work. The disk is the machine's. Returns lines of
    Markdown."""
    rows = [("ground", "mails/s", "CPU, ms a mail", "of it the mount", "of it the replicas", "memory of the mount, MiB",
             "of the replicas, MiB")]
    with contextlib.closing(Grounds()) as grounds:
        for ground in (grounds.mount(ORDER, "fsync=osync"), grounds.mount(DURABLE), grounds.bare(BARE),
                       grounds.bare(IGNORED, eatmydata())):
            primary = [ground.volume.mount.pid] if ground.volume else []
            counters = Counters({"primary": primary, "replica": grounds.replicas.pids() if ground.volume else []})
            counters.start()
            seconds = ground.run(["mail", directories(ground), sizes.mail_seconds])
            mails = int(re.search(r"^mails ([0-9]+)$", ground.output, re.M).group(1))
            cost = counters.stop(mails)
            rows.append((ground.name, "%.0f" % (mails / seconds), *(
                "%.3f" % (cost["cpu_us_" + name] / 1000) for name in ("system", "primary", "replica")),
                *("%.0f" % resident_mib(pids) for pids in (primary, grounds.replicas.pids() if ground.volume else []))))
    return markdown(rows)


def measure(sizes):
    directories = Directories()
    with contextlib.closing(Grounds(disk=("--model", "iops", "--iops", str(IOPS)), disk_ms=sizes.disk_ms)) as grounds:
        own = disk.rows(grounds.disk.figures)
        grounds_ = (grounds.mount(ORDER, "fsync=osync"), grounds.mount(DURABLE), grounds.bare(BARE),
                    grounds.bare(IGNORED, eatmydata()))

        def save(ground):
            return ground.run(["save", directories(ground), sizes.saves, sizes.text_bytes])

        def sqlite(ground):
            return ground.run(["sqlite", directories(ground), sizes.transactions, sizes.transactions])

        def of(work):
            return {ground.name: (lambda ground=ground: work(ground)) for ground in grounds_}
        bar = [Bar("bare ext4 / fsync=osync", "at least", 40, ratio(BARE, ORDER))]
        works = [Work("an editor saves %d times" % sizes.saves, of(save), bar),
                 Work("SQLite WAL, %d transactions" % sizes.transactions, of(sqlite), bar)]
        for work in works:
            work.measure(sizes.rounds)
    costs = resources(sizes, directories)
    lines, good = crash_points.table(random.Random(sizes.seed), sizes.crash_points, sizes.versions)
    return works, ["", *markdown(own), "", "CPU and memory of a mail server's work (the replicas' memory is reserved at their start):", "", *costs,
                   "", "The programs after a crash:", "", *lines], good
