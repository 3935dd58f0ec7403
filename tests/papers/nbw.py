"""Non-blocking Writes to Files (Campello and others, FAST 2015), section 6: writes of parts of pages that
are not in memory, with each fetch policy, on a hard disk and on an SSD (tests/bench/disk_model).

- Figure 10: five works of Filebench on one file, by the size of an operation.
- Figure 11: the works that write, by memory, in shares of the file's size.
- Recovery of extents that were not applied, beside as many that were.
- Table 2 and figure 13: a trace with the published sizes of writes, with its fsyncs and without.

Each run begins with nothing of the disk in memory. Program and daemon share a memory control group:
80 % of the file's size, as in the paper (4 GB and 5 GB). Runs last a fixed time, so a policy that
reads pages later may end with pages that it has not read, also as in the paper. Bars compare with
fetch=blocking; bare ext4 is shown beside it.
"""
import collections
import contextlib
import os
import random
import re
import subprocess
import sys
import time
from dataclasses import dataclass

from bench import disk as disks
from bench.report import markdown, pyplot_or_none
from harness import fetch
from harness.memory_group import MemoryGroup
from harness.model_disk import ModelDisk
from harness.rig import Rig
from harness.run import HarnessError
from harness.volume import Mount, Volume
from papers import programs
from papers.grounds import PATIENT, PROGRAMS, Grounds
from papers.programs import WRITE_SIZES, write_sizes
from papers.table import Bar, Work, ratio

TITLE = "Non-blocking writes"
BARE = "bare ext4"
DISKS = {"hard-disk": "hard disk", "ssd": "SSD"}
WRITES = ("sequential-write", "random-write", "random-readwrite")
READS = ("random-read", "sequential-read")
CACHED = "cached-write"
OTHERS = (*READS, CACHED)  # no page is fetched for a write
MEMORY = 0.8
FIXED_BYTES = 2048  # of an operation, where another thing varies
# patch_memory in KiB, by the file's MiB, so that it is full in both: a small one, and the paper's share
# of the file, 64 MB of 5 GB.
FULL = {"random-write, patch memory full": lambda file_mb: 1024,
        "random-write, patch memory 1/80 of the file": lambda file_mb: file_mb * 1024 // 80}
TRACES = {"trace with fsync": 1, "trace without fsync": 0}
DRAIN_S = 600
# How late answers of a model may be on average: 5 % of what a page takes, on the SSD half of it.
LATE_US = {"hard disk": 500, "SSD": 45}
# Random reads a second with one outstanding, as the models make them: below half of them the way to the
# model waited for CPUs.
READS_A_SECOND = {"hard disk": 75, "SSD": 10_000}
# The limits of the bars, for the page.
LIMITS = """
## What limits these figures

- **Patch memory of 1 MiB, hard disk.** It holds 512 pages of 2 KiB writes. The model alone needs
  3.5 ms for each of 512 pages in the order of the writes, 2.26 ms in the order of their places
  with 32 requests outstanding, and 1.85 ms if it knows all 512. Ten times needs 1.08 ms. Tried:
  the order of places; nothing put off at the limit. With more pages the same order is faster: 1.0
  ms for each of 5,000, the row with 1/80 of the file.
- **Sequential writes.** With `blocking` the kernel reads ahead, so a page costs little more than
  its transfer. `async-bg` and `lazy` save that time alone; the rest is the mount's own. Tried:
  only the two pages at the ends of a batch of records are fetched (before: each page).
- **The SSD.** A read takes 0.09 ms, less than some writes through a mount on a busy machine. The
  table of the disk alone says whether the CPUs were free.
- **Where no page is fetched** (4 KiB, reads, cached) all policies run the same code. Differences
  there come from the machine and the order of the runs.
""".strip().split("\n")
UNAPPLIED, APPLIED = "nothing applied", "all applied before"


@dataclass
class Sizes:
    rounds: int = 3
    seconds: float = 3
    bytes: tuple = (512, 1024, 2048, 4096)
    read_bytes: tuple = (512, 1024, 2048, 4096)
    memory: tuple = (0.4, 0.6, 1.0)  # shares of the file, beside MEMORY
    file_mb: int = 768
    trace: int = 1000  # operations
    recovery_mib: int = 64
    disk_ms: int = 1000
    only: str = ""  # a pattern (re): works with other names are left out

    @staticmethod
    def short():
        return Sizes(rounds=1, seconds=0.5, bytes=(512, 4096), read_bytes=(FIXED_BYTES,), memory=(1.0,), file_mb=320, trace=50,
                     recovery_mib=4, disk_ms=20)


class Machine:
    """Two directories on a model disk, each with a file: the backing directory of a volume, and a
    bare one. They are made for the first run(); `disk` is None before. run() starts each time with
    nothing of them in memory."""

    def __init__(self, model, sizes):
        self._model, self._file_mb, self._disk_ms = model, sizes.file_mb, sizes.disk_ms
        self.limited = _can_limit()
        self.disk = None
        self._stack = contextlib.ExitStack()

    def _make(self):
        try:
            self._grounds = self._stack.enter_context(contextlib.closing(
                Grounds(disk=("--model", self._model), disk_ms=self._disk_ms)))
            self.disk = self._grounds.disk
            with self.disk.at_once():
                self._bare, below = self._grounds.bare(BARE), self._grounds.bare("backing")
                for ground in (self._bare, below):
                    ground.run(["fill", ground.path, self._file_mb])
                replicas = self._grounds.replicas
                self._volume = Volume(below.path, netns=replicas.network.primary)
                self._volume.init(replicas.addresses, 2, *PATIENT)
        except BaseException:
            self.close()
            raise

    def run(self, options, command, memory=MEMORY):
        """Runs a command of programs.py on a mount with `options`, or bare if they are None. Returns
        the seconds of 1000 operations."""
        if self.disk is None:
            self._make()
        with contextlib.ExitStack() as stack:
            wrapper = ()
            if self.limited:
                wrapper = stack.enter_context(contextlib.closing(MemoryGroup(int(memory * self._file_mb)))).wrapper
            with self.disk.at_once():
                self.disk.forget()
                path = self._bare.path
                if options is not None:
                    words = ",".join(filter(None, ("recover=auto", options)))
                    mount = stack.enter_context(contextlib.closing(Mount(self._volume, words, wrapper=wrapper)))
                    mount.wait_mode("replicated", 60)
                    path = mount.path
            try:
                took = self._run([*wrapper, sys.executable, PROGRAMS, command[0], path, *map(str, command[1:])])
                if options is not None and mount.status()["mode"] != "replicated":
                    raise HarnessError("the volume is in mode %(mode)s (%(mode_detail)s)" % mount.status())
            finally:
                with self.disk.at_once():
                    if options is not None:
                        mount.umount(DRAIN_S)
        return took

    def _run(self, words):
        """Returns the seconds that a program says. Requests of the disk that it still waits for take no
        time."""
        with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as program:
            lines = []
            for line in program.stdout:
                lines.append(line)
                if line.startswith("seconds "):
                    break
            with self.disk.at_once():
                lines += program.stdout.readlines()
                program.wait()
        if program.returncode != 0:
            raise HarnessError("%s: exit %d\n%s" % (" ".join(words), program.returncode, "".join(lines)))
        return float(next(line.split()[1] for line in lines if line.startswith("seconds ")))

    def close(self):
        self._stack.close()


def _can_limit():
    try:
        MemoryGroup(64).close()
    except HarnessError:
        return False
    return True


def work(machine, name, sizes, command, more="", **kwargs):
    """Returns a measured Work on every ground that the programs know; None: it is left out."""
    if not re.search(sizes.only, name):
        return None
    grounds = {"fetch=" + policy: ",".join(filter(None, (words, more))) for policy, words in fetch.options().items()}
    made = Work(name, {ground: (lambda options=options: machine.run(options, command, **kwargs))
                       for ground, options in [(BARE, None), *grounds.items()]})
    made.measure(sizes.rounds)
    print("%s: %s" % (name, ", ".join("%s %.4g ms" % item for item in made.seconds.items())), flush=True)
    return made


def judge(made, words, limit, over, under):
    """Adds the bar: the seconds with policy `over` are at least `limit` times those with `under`. A
    bar is not judged where a policy is missing."""
    if made is None:
        return
    over, under = "fetch=" + over, "fetch=" + under
    if over in made.seconds and under in made.seconds:
        made.bars.append(Bar(words, "at least", limit, ratio(over, under)))
    else:
        made.missing["bar: %s at least %g" % (words, limit)] = "a policy of it is missing"


def judge_all(made, disk, pattern, size):
    """Adds the bars of figure 10."""
    hard = disk == DISKS["hard-disk"]

    def faster(limit, policy=fetch.BACKGROUND):
        judge(made, "blocking / %s" % policy, limit, fetch.BLOCKING, policy)
    if size == 4096 or pattern in OTHERS:
        faster(0.97)
        faster(0.97, fetch.LAZY)
    elif pattern == "random-write":
        faster(6.7 if hard else 2.9)
        if hard:
            faster(40, fetch.LAZY)
    elif pattern == "random-readwrite" and hard:
        faster(3.4)
    elif pattern == "sequential-write" and size == FIXED_BYTES:
        faster(1.45 if hard else 1.04)


def figure_10(machine, disk, sizes):
    works = []
    sizes_of = {**dict.fromkeys(WRITES, sizes.bytes), **dict.fromkeys(READS, sizes.read_bytes), CACHED: (FIXED_BYTES,)}
    for pattern, each in sizes_of.items():
        for size in each:
            made = work(machine, "%s, %s, %d B" % (disk, pattern, size), sizes, ["file", pattern, size, sizes.seconds])
            judge_all(made, disk, pattern, size)
            works.append(made)
    return works


def full(machine, disk, sizes, name, kib):
    """The weakness of lazy in the paper: there is no patch memory left. Programs without policies have
    no limit of it."""
    more = "patch_memory=%dKiB" % kib if fetch.known() else ""
    made = work(machine, "%s, %s, %d B" % (disk, name, FIXED_BYTES), sizes, ["file", "random-write", FIXED_BYTES, sizes.seconds],
                more)
    if disk == DISKS["hard-disk"]:
        judge(made, "blocking / lazy", 10, fetch.BLOCKING, fetch.LAZY)
    else:
        judge(made, "async-bg / lazy", 0.95, fetch.BACKGROUND, fetch.LAZY)
    return made


def figure_11(machine, disk, sizes):
    return [work(machine, "%s, %s, %d B, memory %g of the file" % (disk, pattern, FIXED_BYTES, share), sizes,
                 ["file", pattern, FIXED_BYTES, sizes.seconds], memory=share)
            for pattern in WRITES for share in sizes.memory]


def table_2(count):
    """Returns lines of Markdown: the published shares of sizes, and those of the trace."""
    drawn = collections.Counter(low for _, (low, _, _) in zip(range(count), write_sizes(1)))
    rows = [("bytes of a write", "published, %", "in %d writes of the trace, %%" % count)]
    for low, high, percent in WRITE_SIZES:
        rows.append((str(low) if low == high else "%d to %d" % (low, high), str(percent), "%.1f" % (100 * drawn[low] / count)))
    return markdown(rows)


def recover(mib, applied):
    """Cuts the power after `mib` MiB of synced writes of parts of cold pages, each of another page and
    in random order, which were applied before or not. Returns the seconds of salius-recover on the
    hard disk."""
    writes = (mib << 20) // FIXED_BYTES
    with contextlib.ExitStack() as stack:
        disk = stack.enter_context(contextlib.closing(ModelDisk("--model", "hard-disk", size_mb=4 * mib + 768)))
        with disk.at_once():
            rig = stack.enter_context(contextlib.closing(Rig(
                2, 2, init_options=("--delta", "2s", "--log-max", "%dMiB" % (8 * mib), "--tau", "600s"),
                memory="%dMiB" % (10 * mib + 64), image=disk.image)))
            programs.fill(rig.backing, 2 * mib)
            disk.image.umount()
            disk.image.mount()
            # Lazy ones stay unapplied however fast the disk is: less than half of patch_memory and than a
            # quarter of the log is used.
            lazy = not applied and fetch.known()
            more = ",fetch=lazy,patch_memory=%dMiB" % (4 * mib) if lazy else ""
            mount = rig.mount("recover=auto" + more, mode="replicated")
        fd = os.open(rig.file("file"), os.O_RDWR)
        for number, page in enumerate(random.Random(5).sample(range(writes), writes)):
            os.pwrite(fd, bytes(FIXED_BYTES), page * 2 * FIXED_BYTES + 1)
            if number % 256 == 255:
                os.fsync(fd)
        status = mount.status()
        if not applied and status["applied"] >= status["issued"]:
            raise HarnessError("every write was applied before the cut")
        with disk.at_once():
            if applied:
                mount.wait_status(lambda now: now["applied"] >= status["issued"], DRAIN_S, "everything applied")
            rig.power_cut(also=lambda: os.close(fd))
        began = time.monotonic()
        done = rig.volume.recover(timeout=DRAIN_S)
        took = time.monotonic() - began
        if done.returncode != 0:
            raise HarnessError("salius-recover: exit %d\n%s%s" % (done.returncode, done.stdout, done.stderr))
        with disk.at_once():
            rig.close()
        return took


def recovery(sizes):
    """Returns the Work: recovery of unapplied extents beside as many that had been applied."""
    made = Work("recovery of %d MiB" % sizes.recovery_mib, {
        name: (lambda applied=applied: recover(sizes.recovery_mib, applied))
        for name, applied in ((UNAPPLIED, False), (APPLIED, True))}, [Bar("applied / unapplied", "at least", 0.9,
                                                                           ratio(APPLIED, UNAPPLIED))])
    if not re.search(sizes.only, made.name):
        return None
    made.measure(sizes.rounds)
    print("%s: %s" % (made.name, ", ".join("%s %.4g s" % item for item in made.seconds.items())), flush=True)
    return made


def served(disk, words, figures):
    """Returns lines of Markdown on the model's own service, from what it printed at its end, and from
    its figures (bench/disk.py)."""
    reads = next(rate for call, pattern, depth, _, rate in figures if (call, pattern, depth) == ("read", "random", 1))
    found = re.search(r"late by (\d+) us on average and (\d+) us at most, (\d+) us of CPU each", words)
    if not found:
        return ["**The model did not say how late its answers were.**"]
    late, most, cpu = map(int, found.groups())
    lines = ["Answers of the model were %d µs late on average and %d µs at most; each took %d µs of CPU." % (late, most, cpu)]
    if late > LATE_US[disk]:
        lines += ["", "**The model had too little CPU:** its rows are those of a slower disk."]
    usual = READS_A_SECOND[disk]
    if reads < usual / 2:
        lines += ["", "**The machine was too busy for this disk:** %d random reads a second where %d were to be" % (reads, usual),
                  "expected. Its rows show the machine more than the policies."]
    return lines


def measure(sizes):
    recovered = recovery(sizes)  # first: a failure is known after a minute
    works, more = [], []
    for model, disk in DISKS.items():
        with contextlib.closing(Machine(model, sizes)) as machine:
            works += figure_10(machine, disk, sizes)
            works += [full(machine, disk, sizes, name, kib(sizes.file_mb)) for name, kib in FULL.items()]
            if disk == DISKS["hard-disk"]:
                works += figure_11(machine, disk, sizes)
            for name, synced in TRACES.items():
                works.append(work(machine, "%s, %s" % (disk, name), sizes, ["trace", sizes.trace, synced]))
        if machine.disk is not None:
            more += ["", "The %s:" % disk, "", *markdown(disks.rows(machine.disk.figures)), "", *served(disk, machine.disk.served, machine.disk.figures)]
            if not machine.limited:
                more += ["", "**Memory was not limited:** this machine has no memory control groups."]
    works.append(recovered)
    works = [made for made in works if made is not None]
    if fetch.unknown():
        more += ["", fetch.unknown() + "."]
    return works, ["", "Seconds are those of 1000 operations: the milliseconds of one. Of a recovery they are all.", *more, "", "Sizes of writes in the trace:", "",
                   *table_2(10_000), "", *LIMITS], True


def _lines(works, begin, value):
    """Returns {ground: [(x, operations a second)]} of the works whose name is `begin` and then x, as
    value() reads it (None: another work)."""
    points = {}
    for each in works:
        x = value(each.name[len(begin):]) if each.name.startswith(begin) else None
        if x is not None:
            for ground, seconds in each.seconds.items():
                points.setdefault(ground, []).append((x, 1000 / seconds))
    return {ground: sorted(line) for ground, line in points.items()}


def _bytes(words):
    found = re.fullmatch(r"(\d+) B", words)
    return int(found.group(1)) if found else None


def _share(words):
    found = re.fullmatch(r"%d B(?:, memory ([0-9.]+) of the file)?" % FIXED_BYTES, words)
    return float(found.group(1) or MEMORY) if found else None


def plot(works, path):
    """Writes a picture: figure 10 in a row for each disk, with figure 13 behind it, and figure 11.
    Returns the file's name, or None without Matplotlib."""
    pyplot = pyplot_or_none()
    if pyplot is None:
        print("skipped: the plot: no python3-matplotlib")
        return None
    rows = [*((disk, _bytes, "bytes of an operation") for disk in DISKS.values()),
            (DISKS["hard-disk"], _share, "memory, share of the file; %d B" % FIXED_BYTES)]
    patterns = (*WRITES, *READS)
    columns = len(patterns) + 1
    figure, panels = pyplot.subplots(len(rows), columns, figsize=(4 * columns, 3.2 * len(rows)), squeeze=False, layout="constrained")
    for row, (disk, value, words) in zip(panels, rows):
        measured = WRITES if value is _share else patterns
        for axes, pattern in zip(row, measured):
            for ground, line in _lines(works, "%s, %s, " % (disk, pattern), value).items():
                axes.plot(*zip(*line), marker="o", label=ground)
            axes.set_yscale("log")
            axes.set_title("%s, %s" % (pattern, disk), fontsize=9)
            axes.set_xlabel(words, fontsize=8)
        row[0].set_ylabel("operations a second")
        for axes in row[len(measured):-1]:
            axes.set_axis_off()
        if value is _share:
            row[-1].set_axis_off()
            continue
        for number, name in enumerate(TRACES):
            seconds = next(each.seconds for each in works if each.name == "%s, %s" % (disk, name))
            row[-1].bar([i + 0.4 * number for i in range(len(seconds))], list(seconds.values()), 0.4, label=name)
        row[-1].set_xticks(range(len(seconds)), list(seconds), rotation=30, ha="right", fontsize=7)
        row[-1].set_title("trace, %s: ms of an operation" % disk, fontsize=9)
        row[-1].legend(fontsize=7)
    panels[0][0].legend(fontsize=7)
    figure.suptitle(TITLE)
    figure.savefig(path, dpi=80)
    pyplot.close(figure)
    return os.path.basename(path)
