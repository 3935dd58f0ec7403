"""The benchmarks and their bars. Each returns a Result; none asserts a time."""
import contextlib
import json
import mmap
import os
import resource
import statistics
import struct
import time
from dataclasses import dataclass, field

from bench import direct as direct_work
from bench import disk, rounds
from bench import trees as tree_work
from bench.driver import Driver
from bench.quiet import cpu_times, shares, wait_quiet
from bench.scenario import Ground, Scenario
from bench.setup import MountedVolume, Replicas, Serving, SlowDisk, place, salius_bench
from bench.tools import tool
from harness.image import Image
from harness.run import HarnessError

MIB = 1 << 20


@dataclass
class Result:
    name: str
    lines: list = field(default_factory=list)   # for people
    figures: dict = field(default_factory=dict)  # for a program
    bars: list = field(default_factory=list)    # (text, met)

    def bar(self, text, met):
        self.bars.append((text, bool(met)))

    def table(self, targets):
        self.lines.append("%-12s %10s %9s %9s %9s %7s  %s" % (
            "target", "ops/s", "p50 us", "p99 us", "p99.9 us", "ratio", "what"))
        path = targets["path"]["median"]["p50_us"]
        for name, target in targets.items():
            m = target["median"]
            self.lines.append("%-12s %10.0f %9.1f %9.1f %9.1f %7.2f  %s" % (
                name, m["ops_per_second"], m["p50_us"], m["p99_us"], m["p999_us"], path / m["p50_us"],
                target["label"] if name.startswith("floor-udp") else ""))
        self.figures.update({name: target["median"] for name, target in targets.items()})


@dataclass
class Sizes:
    """Lengths and sizes: of the real run, or of one that only shows that everything works."""
    seconds: int = 4
    rounds: int = 4
    starts: int = 5
    slow_seconds: int = 300
    sqlite_seconds: int = 20
    records: int = 256 * 1024
    flush_ms: int = 8
    disk_ms: int = 1000  # for each of the model disk's own figures
    repeats: int = 3
    log_mib: int = 8192
    trees: object = field(default_factory=tree_work.Sizes)
    direct: object = field(default_factory=direct_work.Sizes)
    wait: bool = False  # for a quiet machine, before each start or round

    @staticmethod
    def smoke():
        return Sizes(seconds=1, rounds=2, starts=1, slow_seconds=1, sqlite_seconds=1, records=2048, flush_ms=8, disk_ms=20, repeats=1, log_mib=64,
                     trees=tree_work.Sizes.smoke(), direct=direct_work.Sizes.smoke())


@contextlib.contextmanager
def watch_steal(result):
    """Adds a line to the result when a hypervisor took the CPUs away meanwhile."""
    before = cpu_times()
    yield
    stolen = shares(before, cpu_times())[1]
    result.figures["stolen_share"] = round(stolen, 4)
    if stolen > 0.02:
        result.lines.append("DISTURBED: %.0f%% of the CPU time was stolen" % (100 * stolen))


def _floor_start(sizes, m, acks, cpu, tag):
    """Starts everything once and measures it; returns {target: {label, median, rounds}}."""
    with contextlib.ExitStack() as stack:
        own = stack.enter_context
        replicas = own(contextlib.closing(Replicas(m, "128MiB", cpu)))
        volume = own(contextlib.closing(MountedVolume(place("volume-" + tag), replicas, acks, cpu=cpu)))
        bare = own(contextlib.closing(Serving(
            "floor-" + tag, [tool("mount_floor"), "--replicas", str(m), "--acks", str(acks),
                             place("floor-backing-" + tag)], cpu)))
        if sizes.wait:
            wait_quiet(rounds.QUIET_BOUND_S)
        targets = salius_bench(volume.path, "--floor-mount", bare.path, "--replicas", m, "--acks", acks,
                               "--floor-dir", place("plain-" + tag), "--seconds", sizes.seconds,
                               "--rounds", sizes.rounds, cpu=cpu)
        mode = volume.mount.mode()
        if mode != "replicated":
            raise HarnessError("the volume ended in mode %s: this measured something else" % mode)
    return targets


def _medians(runs):
    """Returns {target: {label, median}} over the medians of every run."""
    return {name: {"label": target["label"],
                   "median": {figure: statistics.median(run[name]["median"][figure] for run in runs)
                              for figure in target["median"]}}
            for name, target in runs[0].items()}


def floor(sizes, m, acks, cpu):
    """(a) Measures overwrites of 4 KiB through the mount beside the bare FUSE floor. `cpu`:
    everything on it; None: free. The programs are started several times: each start has its own
    speed throughout."""
    where = "free" if cpu is None else "packed on CPU %d" % cpu
    result = Result("floor: %d replicas, acks=%d, %s" % (m, acks, where))
    result.figures.update(case="floor", m=m, acks=acks, packed=cpu is not None)
    tag = "%d%s" % (m, "p" if cpu is not None else "")
    with watch_steal(result):
        runs = [_floor_start(sizes, m, acks, cpu, "%s-%d" % (tag, start)) for start in range(sizes.starts)]
    targets = _medians(runs)
    result.table(targets)

    def ratio(of, name):
        return of["path"]["median"][name] / of["floor-mount"]["median"][name]

    for name, bar in (("p50_us", 1.25 if cpu is None else 1.3), ("p99_us", None if cpu is None else 1.5)):
        each = sorted(ratio(run, name) for run in runs)
        result.lines.append("%s as a multiple of the floor's, of every start: %s" % (
            name[:3], " ".join("%.2f" % r for r in each)))
        result.figures["ratio_" + name] = ratio(targets, name)
        result.figures["ratios_" + name] = [round(r, 3) for r in each]
        if bar:
            result.bar("%s at most %.2fx the floor's: %.2fx" % (name[:3], bar, ratio(targets, name)),
                       ratio(targets, name) <= bar)
    return result


def _in_turn(sizes, scenario, cpu, choose):
    """Returns {subject: {figure: median over the starts of the medians over the rounds}} for the
    subjects that `choose(ground)` returns."""
    runs = []
    for _ in range(sizes.starts):
        with contextlib.closing(Ground(scenario, cpu)) as ground:
            subjects = choose(ground)
            rounds.measure(subjects, sizes.rounds, min(sizes.seconds, 1), wait=sizes.wait, count_calls=False)
            ground.check()
            runs.append({s.name: {"label": s.name, "median": s.median()} for s in subjects})
    return {name: target["median"] for name, target in _medians(runs).items()}


def patterns(sizes, cpu):
    """(e) Measures appends, and writes with an `fdatasync` each, in turn with overwrites in one
    mount. `cpu`: everything on it."""
    result = Result("patterns: 2 replicas, acks=2, packed on CPU %d" % cpu)

    def choose(ground):
        chosen = [ground.subjects[0]]
        for name, options in (("append", ["--append"]), ("fdatasync", ["--fsync-every", "1"])):
            path = os.path.join(ground.mount.path, name)
            os.mkdir(path)
            chosen.append(rounds.Subject(name, ground.own_driver(["files", path, "--size", "4KiB", *options])))
        return chosen

    with watch_steal(result):
        medians = _in_turn(sizes, Scenario(), cpu, choose)
    overwrite = medians.pop("salius")["p50_us"]
    result.figures.update(case="patterns", overwrite_p50_us=overwrite)
    for name, median in medians.items():
        times = median["p50_us"] / overwrite
        result.figures[name] = times
        result.lines.append("%-10s p50 %.1f us, overwrite %.1f us" % (name, median["p50_us"], overwrite))
        result.bar("%s at most 1.4x the overwrite: %.2fx" % (name, times), times <= 1.4)
    return result


def writers(sizes):
    """(f) Measures eight writers, free, in turn with the mount floor and the local disk."""
    result = Result("8 writers: 2 replicas, acks=2, free")
    names = ("salius", "mount floor", "local disk")
    with watch_steal(result):
        medians = _in_turn(sizes, Scenario(writers=8, packed=False), None,
                           lambda ground: [s for s in ground.subjects if s.name in names])
    result.figures.update(case="writers")
    ours = medians["salius"]["ops_per_second"]
    for name, bar in (("mount floor", 0.9), ("local disk", 2)):
        theirs = medians[name]["ops_per_second"]
        result.figures[name] = ours / theirs
        result.lines.append("%-12s %.0f operations/s, Salius %.0f" % (name, theirs, ours))
        result.bar("operations/s at least %.1fx the %s's: %.2fx" % (bar, name, ours / theirs), ours / theirs >= bar)
    return result


def slow_disk(sizes, cpu):
    """(b) Measures synchronous writes, and SQLite, on a disk with slow flushes, with and without
    Salius. `cpu`: everything except the disk on it."""
    result = Result("slow disk: flush %d ms, 2 replicas, acks=2, packed on CPU %d, %d s" % (
        sizes.flush_ms, cpu, sizes.slow_seconds))
    result.figures.update(case="slow-disk", seconds=sizes.slow_seconds)
    with contextlib.ExitStack() as stack:
        own = stack.enter_context
        slow = own(contextlib.closing(SlowDisk("--flush-ms", str(sizes.flush_ms), figures_ms=sizes.disk_ms)))
        result.figures["disk"] = slow.figures
        result.lines += ["%-30s %25s %18s" % row for row in disk.rows(slow.figures)]
        replicas = own(contextlib.closing(Replicas(2, "128MiB", cpu)))
        backing, bare = os.path.join(slow.path, "data"), os.path.join(slow.path, "bare")
        os.mkdir(backing)
        os.mkdir(bare)
        volume = own(contextlib.closing(MountedVolume(backing, replicas, 2, cpu=cpu)))
        # One round: sustained means without a pause in which the disk could catch up.
        with watch_steal(result):
            targets = salius_bench(volume.path, "--floor-dir", bare, "--replicas", 0, "--seconds",
                                   sizes.slow_seconds, "--rounds", 1, timeout_s=120 + 3 * sizes.slow_seconds, cpu=cpu)
            sqlite = {path: _sqlite(path, sizes.sqlite_seconds, cpu) for path in (volume.path, bare)}
        status = volume.mount.status()
    if status["mode"] != "replicated":
        raise HarnessError("the volume ended in mode %(mode)s (%(mode_detail)s)" % status)
    result.table(targets)
    fast, slow = (targets[name]["median"]["ops_per_second"] for name in ("path", "floor-dir"))
    result.figures["times"] = fast / slow
    result.bar("at least 200x the bare file system: %.0fx" % (fast / slow), fast >= 200 * slow)
    fast, slow = sqlite[volume.path], sqlite[bare]
    result.lines.append("SQLite (WAL, FULL), transactions/s: %.0f through the mount, %.1f on the bare file system" % (
        fast, slow))
    result.figures.update(sqlite_times=fast / slow, sqlite={"path": fast, "floor-dir": slow})
    result.bar("SQLite at least 100x: %.0fx" % (fast / slow), fast >= 100 * slow)
    return result


def _sqlite(directory, seconds, cpu):
    """Returns transactions a second, each a row of 1 KiB, synchronous=FULL."""
    with contextlib.closing(Driver(["sqlite", os.path.join(directory, "db"), "--journal", "wal", "--size", "1024"],
                                   cpu=cpu)) as driver:
        return driver.round(seconds)["ops_per_second"]


def recovery(sizes):
    """(c) Measures salius-recover from three replicas after a power cut of the primary with a full
    log."""
    body = 4096
    total = sizes.records * body
    # A checkpoint begins when half of log-max is in use: twice the wanted log, with headers.
    log_max = 2 * (total + sizes.records * 256) // MIB + 16
    result = Result("recovery: %d records of 4 KiB (%d MiB) from 3 replicas" % (sizes.records, total // MIB))
    result.figures.update(case="recovery", records=sizes.records, runs=[])
    speeds, floors = [], []
    for repeat in range(sizes.repeats):
        with contextlib.ExitStack() as stack:
            own = stack.enter_context
            image = own(contextlib.closing(Image("recovery", size_mb=total // MIB * 2 + 2 * log_max + 512,
                                                 as_disk=True)))
            replicas = own(contextlib.closing(Replicas(3, "%dMiB" % (log_max * 5 // 4 + 64))))
            backing = os.path.join(image.path, "data")
            os.mkdir(backing)
            volume = own(contextlib.closing(MountedVolume(
                backing, replicas, 2, "--log-max", "%dMiB" % log_max, "--tau", "600s",
                "--stable-log", "%dMiB" % (log_max * 5 // 4 + 2), "--delta", "1s")))
            file = os.path.join(volume.path, "file")
            _write_records(file, sizes.records, body)
            status = volume.mount.status()
            if status["uncheckpointed_bytes"] < total:
                raise HarnessError("only %(uncheckpointed_bytes)d bytes are still in the log" % status)
            volume.mount.kill()
            image.power_cut()
            began, cpu_began = time.monotonic(), _children_cpu_s()
            code, report = volume.volume.recover_json()
            seconds, cpu_s = time.monotonic() - began, _children_cpu_s() - cpu_began
            if code != 0:
                raise HarnessError("salius-recover: exit %d: %s" % (code, json.dumps(report)))
            _check_records(os.path.join(backing, "file"), sizes.records, body)
            floors.append(total / MIB / _plain_writes(os.path.join(image.path, "plain"), sizes.records, body))
        speeds.append(total / MIB / seconds)
        result.lines.append("run %d: %.2f s (%.2f s of CPU), %.0f MiB/s; %s; plain writes from memory: %.0f MiB/s" % (
            repeat + 1, seconds, cpu_s, speeds[-1],
            ", ".join("%s %.2f" % (phase, ms / 1000) for phase, ms in report["phase_ms"].items()), floors[-1]))
        result.figures["runs"].append({"seconds": seconds, "cpu_s": cpu_s, "phase_ms": report["phase_ms"],
                                       "mib_per_second": speeds[-1], "plain_mib_per_second": floors[-1]})
    median, plain = (sorted(figures)[len(figures) // 2] for figures in (speeds, floors))
    result.figures.update(mib_per_second=round(median, 1), plain_mib_per_second=round(plain, 1))
    result.bar("at least 0.7x of plain writes from memory: %.0f and %.0f MiB/s, %.2fx" % (median, plain, median / plain),
               median >= 0.7 * plain)
    return result


def reattach(sizes):
    """(d) Measures how long a replica that is killed and restarted needs for the log still in its
    memory."""
    result = Result("re-attach: a replica with %d MiB of log" % sizes.log_mib)
    result.figures["case"] = "reattach"
    seconds = []
    with contextlib.ExitStack() as stack:
        own = stack.enter_context
        writers = 2
        # A full log would wait for ever: more than a round can write.
        log_max = sizes.log_mib // writers + 256
        replicas = own(contextlib.closing(Replicas(1, "%dMiB" % (writers * log_max * 5 // 4 + 64))))
        driver = own(contextlib.closing(Driver(["volumes", place("volumes"), replicas.addresses[0], "--writers",
                                                str(writers), "--size", "64KiB", "--log-max", "%dMiB" % log_max,
                                                "--keep"])))
        written = 0
        while written < sizes.log_mib << 20:
            written += driver.round(0.1)["operations"] * (64 << 10)
        driver.kill()
        for _ in range(sizes.repeats):
            replicas.procs[0].kill()
            began = time.monotonic()
            replicas.start(0)
            seconds.append(time.monotonic() - began)
        lines = [line for line in replicas.procs[0].tail().splitlines() if "records" in line]
        result.lines += ["%.2f s" % s for s in seconds] + lines[-1:]
    median = sorted(seconds)[len(seconds) // 2]
    result.figures.update(seconds=seconds, written=written)
    result.bar("in less than 2 s: %.2f s for %d MiB" % (median, written >> 20), median < 2)
    return result


def trees(sizes):
    """(g) Measures work on trees of small files beside an empty pass-through and the bare file
    system."""
    result = Result("trees: 2 replicas, acks=2, free")
    with watch_steal(result):
        result.figures.update(tree_work.measure(sizes.trees, sizes.wait))
    for row in tree_work.rows(result.figures):
        result.lines.append("%-40s" % row[0] + " ".join("%12s" % cell for cell in row[1:]))
    result.lines.append(tree_work.stores_row(result.figures))
    _judge(result, tree_work)
    return result


def _judge(result, work):
    for words, value, sense, bar in work.judged(result.figures):
        met = value <= bar if sense == "at most" else value >= bar
        result.bar("%s %s %g: %.2f" % (words, sense, bar, value), met)


def direct(sizes, cpu):
    """(h) Measures direct volumes beside the mount and the floors. `cpu`: everything that is packed
    on it."""
    result = Result("direct volumes: packed on CPU %d where nothing else is said" % cpu)
    with watch_steal(result):
        result.figures.update(direct_work.measure(sizes, cpu))
    result.lines += direct_work.lines(result.figures)
    _judge(result, direct_work)
    return result


def _children_cpu_s():
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _record(number, body):
    return struct.pack("<Q", number) * (body // 8)


def _write_records(path, count, body):
    """Writes each record with a synchronous write of its own; the content has its number."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_SYNC, 0o600)
    try:
        for i in range(count):
            os.pwrite(fd, _record(i + 1, body), i * body)
    finally:
        os.close(fd)


def _plain_writes(path, count, body):
    """Returns the seconds for writing the same records from memory: a pwrite each, and one
    fsync."""
    with mmap.mmap(-1, count * body) as memory:
        for i in range(count):
            memory[i * body:(i + 1) * body] = _record(i + 1, body)
        view = memoryview(memory)
        fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            began = time.monotonic()
            for i in range(count):
                os.pwrite(fd, view[i * body:(i + 1) * body], i * body)
            os.fsync(fd)
            return time.monotonic() - began
        finally:
            os.close(fd)
            view.release()


def _check_records(path, count, body):
    """Checks that every acknowledged record is there."""
    with open(path, "rb") as f:
        for i in range(count):
            if f.read(body) != _record(i + 1, body):
                raise HarnessError("record %d is not what was acknowledged" % (i + 1))
