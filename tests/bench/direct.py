"""Direct volumes (case `direct`): synchronous writes of programs under salius-run, beside the mount
and the floors, all in turn; SQLite on a slow disk; the cost of the library where no volume is
touched; the coordinator at rest."""
import contextlib
import json
import os
import pwd
import statistics
import subprocess
import threading
import time
from dataclasses import dataclass

from bench import disk, rounds
from bench.driver import Driver
from bench.scenario import Ground, Scenario
from bench.setup import Replicas, SlowDisk, pinned, place
from harness.keys import Keys
from harness.proc import Proc, tail
from harness.run import HarnessError, binary, current, sh, wait_until

DIRECT, PROCESSES, MOUNT, DISK = "direct", "direct processes", "salius", "local disk"
SEALED = "direct, sealed"
IN_PROCESS, KEPT = "in-process floor", "kept floor"

WRITERS = 8
OWN_THREADS = "salius-run"  # the name of the coordinator's own threads
TIMER_HZ = 10               # of its policy: the longest sleep is 100 ms

# Programs that write no file of a volume: name, a shell command that runs one of them.
UNTOUCHED = (
    ("Python start-up", "/usr/bin/python3 -c pass"),
    ("tar", "tar -cf - /usr/lib/python3.11 2> /dev/null | cat > /dev/null"),
    ("compile", "g++ -O1 -c -o /dev/null $SOURCE"),
)

# The bars: words, figure, bar.
ONE_WRITER = (("4 KiB, one writer, 2 of %d: p50 of the in-process floor's", "p50_of_floor", 1.2),
              ("4 KiB, one writer, 2 of %d: p99 of the in-process floor's", "p99_of_floor", 1.5),
              ("4 KiB, one writer, 2 of %d: p50 of the mount's", "p50_of_mount", 0.75))
MANY_WRITERS = (("%d %s, free: operations/s of the mount's", "_of_mount", 1.5),
                ("%d %s, free: operations/s of the local disk's", "_of_disk", 1))
LARGE = "1 MiB, 2 of 3: rate of the kept floor's"
SLOW = "slow disk: SQLite's transactions/s of the bare file system's"
LOADED = "library loaded, no volume touched: time of %s"
IDLE = "coordinator idle: wake-ups a second beyond the policy's timer"
MEMORY = "coordinator idle: MiB beside the window"
BARS = (
    *((words % m, "at most", bar) for m in (2, 3) for words, _, bar in ONE_WRITER),
    *((words % (WRITERS, kind), "at least", bar) for kind in ("threads", "processes") for words, _, bar in MANY_WRITERS),
    (LARGE, "at least", 0.8), (SLOW, "at least", 200),
    *((LOADED % name, "at most", 1.02) for name, _ in UNTOUCHED),
    (IDLE, "at most", 0), (MEMORY, "at most", 16),
)

SOURCE = """#include <iostream>
int main(int count, char** words) { for (int i = 0; i < count; ++i) std::cout << words[i]; return 0; }
"""


@dataclass
class Sizes:
    runs: int = 20          # of a program in a round of `loaded`
    idle_seconds: float = 10
    slow_seconds: float = 20

    @staticmethod
    def smoke():
        return Sizes(runs=1, idle_seconds=0.5, slow_seconds=1)


class DirectVolume:
    """A new direct volume in the empty directory `path`, of `user`, in mode replicated. A salius-run
    keeps it in use; `words` before a command have it join. `keys`: the primary's file of keys; None:
    it has none."""

    _serial = 0

    def __init__(self, path, replicas, acks, *init_options, cpu=None, user=None, keys=None):
        DirectVolume._serial += 1
        self.path = path
        as_user = []
        if user is not None:
            found = pwd.getpwnam(user)
            os.chown(path, found.pw_uid, found.pw_gid)
            as_user = ["setpriv", "--reuid", user, "--regid", user, "--init-groups"]
        sh(*as_user, binary("salius"), "init", "--direct", path, "--replicas", ",".join(replicas.addresses), "--acks",
           str(acks), *(["--keys", keys] if keys else []), *init_options)
        self.words = [binary("salius-run"), *([] if keys else ["--insecure"]), "--direct", path, "--"]
        self._status = [*as_user, binary("salius"), "status", path, "--json"]
        self._log = os.path.join(current().dir, "direct%d.log" % DirectVolume._serial)
        self._proc = Proc([*pinned(cpu), *as_user, *self.words, "cat"], self._log, netns=replicas.network.primary,
                          pipe_in=True)
        try:
            wait_until(lambda: self.status().get("mode") == "replicated", 60,
                       lambda: "the direct volume is not replicated:\n" + tail(self._log))
        except BaseException:
            self.close()
            raise

    @property
    def pid(self):
        """The process of the coordinator."""
        return self._proc.pid

    def status(self):
        done = sh(*self._status, check=False)
        try:
            return json.loads(done.stdout)
        except ValueError:
            return {}

    def check(self):
        """Raises unless replication was measured."""
        status = self.status()
        if status.get("mode") != "replicated":
            raise HarnessError("the direct volume ended in mode %s:\n%s" % (status.get("mode"), tail(self._log)))

    def close(self):
        """Ends the command, and waits until the volume is closed."""
        self._proc.popen.stdin.close()
        try:
            self._proc.wait(60)
        finally:
            self._proc.kill()


class Processes:
    """Several drivers as one: a round of all at once."""

    def __init__(self, drivers):
        self._drivers = drivers
        self.pid = drivers[0].pid

    def round(self, seconds):
        figures = [None] * len(self._drivers)

        def one(i):
            try:
                figures[i] = self._drivers[i].round(seconds)
            except HarnessError as error:
                figures[i] = error
        threads = [threading.Thread(target=one, args=(i,)) for i in range(len(self._drivers))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for one_of in figures:
            if isinstance(one_of, HarnessError):
                raise one_of
        merged = {name: statistics.median(f[name] for f in figures) for name in figures[0]}
        for name in ("operations", "ops_per_second"):
            merged[name] = sum(f[name] for f in figures)
        return merged

    def close(self):
        for driver in self._drivers:
            driver.close()


class DirectGround(Ground):
    """A ground with a direct volume on the same replicas; its subject is the first. With
    add_sealed() there is another one, on replicas with keys."""

    MEMORY_MIB = 384

    def _salius(self):
        super()._salius()
        self.sealed = []
        self.volume = self._own(DirectVolume(place("direct-" + self._tag), self.replicas, self.scenario.acks, cpu=self.cpu))
        self.add(DIRECT, self.volume.path, self.volume.words)
        self.subjects.insert(0, self.subjects.pop())

    def add(self, name, path, words=()):
        """Adds a driver's files in `path` as a subject."""
        driver = self._own(Driver(self._files(path), cpu=self.cpu, netns=self.network.primary, wrapper=words))
        self.subjects.append(rounds.Subject(name, driver, {"primary": [self.volume.pid]} if words else {}))

    def add_sealed(self):
        """Adds a direct volume whose datagrams are sealed as a subject."""
        keys = Keys()
        replicas = self._own(Replicas(self.scenario.m, "192MiB", self.cpu, keys=keys))
        volume = self._own(DirectVolume(place("sealed-" + self._tag), replicas, self.scenario.acks, cpu=self.cpu,
                                        keys=keys.issue("client/sealed")))
        self.sealed.append(volume)
        self.add(SEALED, volume.path, volume.words)

    def add_processes(self, name, path, words=()):
        """Adds as many drivers as the scenario has writers, with a directory each, as one
        subject."""
        drivers = []
        for i in range(self.scenario.writers):
            directory = os.path.join(path, "process%d" % i)
            os.mkdir(directory)
            drivers.append(Driver(["files", directory, "--size", self.scenario.size], cpu=self.cpu,
                                  netns=self.network.primary, wrapper=words))
        self.subjects.append(rounds.Subject(name, self._own(Processes(drivers)), {}))

    def check(self):
        super().check()
        for volume in (self.volume, *self.sealed):
            volume.check()


def in_turn(sizes, scenario, cpu, choose):
    """Returns {subject: figures}, medians over the starts."""
    runs = []
    for _ in range(sizes.starts):
        with contextlib.closing(DirectGround(scenario, cpu)) as ground:
            subjects = choose(ground)
            rounds.measure(subjects, sizes.rounds, min(sizes.seconds, 1), wait=sizes.wait, count_calls=False)
            ground.check()
            runs.append({s.name: s.median() for s in subjects})
    return {name: {figure: statistics.median(run[name][figure] for run in runs) for figure in runs[0][name]}
            for name in runs[0]}


def named(*names):
    def choose(ground):
        if SEALED in names:
            ground.add_sealed()
        return [s for s in ground.subjects if s.name in names]
    return choose


def one_writer(sizes, m, cpu):
    """Returns the figures of 4 KiB writes by one writer, packed."""
    found = in_turn(sizes, Scenario(m=m), cpu, named(DIRECT, SEALED, MOUNT, IN_PROCESS, DISK))
    return {"m": m, "subjects": found,
            "p50_of_floor": found[DIRECT]["p50_us"] / found[IN_PROCESS]["p50_us"],
            "p99_of_floor": found[DIRECT]["p99_us"] / found[IN_PROCESS]["p99_us"],
            "p50_of_mount": found[DIRECT]["p50_us"] / found[MOUNT]["p50_us"]}


def many_writers(sizes):
    """Returns the figures of eight threads, and of eight processes, free."""
    def choose(ground):
        ground.add_processes(PROCESSES, ground.volume.path, ground.volume.words)
        ground.add_processes("mount processes", ground.mount.path)
        ground.add_processes("disk processes", place("processes-" + ground._tag))
        return named(DIRECT, MOUNT, DISK, PROCESSES, "mount processes", "disk processes")(ground)
    found = in_turn(sizes, Scenario(writers=WRITERS, packed=False), None, choose)

    def rate(name):
        return found[name]["ops_per_second"]
    return {"subjects": found,
            "threads_of_mount": rate(DIRECT) / rate(MOUNT), "threads_of_disk": rate(DIRECT) / rate(DISK),
            "processes_of_mount": rate(PROCESSES) / rate("mount processes"),
            "processes_of_disk": rate(PROCESSES) / rate("disk processes")}


def large_writes(sizes, cpu):
    """Returns the figures of 1 MiB writes by one writer, 2 of 3, packed."""
    found = in_turn(sizes, Scenario(size="1MiB", m=3), cpu, named(DIRECT, SEALED, MOUNT, KEPT, IN_PROCESS))
    return {"subjects": found, "of_floor": found[DIRECT]["ops_per_second"] / found[KEPT]["ops_per_second"]}


def slow_disk(sizes, cpu):
    """Returns SQLite's transactions a second on a disk with slow flushes, direct and bare."""
    rates = {}
    with contextlib.ExitStack() as stack:
        def own(thing):
            return stack.enter_context(contextlib.closing(thing))
        slow = own(SlowDisk("--flush-ms", str(sizes.flush_ms), figures_ms=sizes.disk_ms))
        volume_path, bare = os.path.join(slow.path, "direct"), os.path.join(slow.path, "bare")
        os.mkdir(volume_path)
        os.mkdir(bare)
        volume = own(DirectVolume(volume_path, own(Replicas(2, "192MiB", cpu)), 2, cpu=cpu))
        for name, path, words in ((DIRECT, volume_path, volume.words), (DISK, bare, [])):
            driver = Driver(["sqlite", os.path.join(path, "db"), "--journal", "wal", "--size", "1024"], cpu=cpu, wrapper=words)
            with contextlib.closing(driver):
                rates[name] = driver.round(sizes.direct.slow_seconds)["ops_per_second"]
        volume.check()
    return {"disk": slow.figures, "rates": rates, "times": rates[DIRECT] / rates[DISK]}


def loaded(sizes, volume):
    """Returns {program: its time with the library as a multiple of that without}. The programs run
    in a loop of one shell, which is under salius-run or not; the two take turns. The shell takes
    the time, so the start of salius-run is not in it."""
    source = os.path.join(current().dir, "loaded.cc")
    with open(source, "w") as f:
        f.write(SOURCE)
    times = {}
    for name, command in UNTOUCHED:
        script = "date +%%s%%N; i=0; while [ $i -lt %d ]; do %s || exit; i=$((i+1)); done; date +%%s%%N" % (
            sizes.direct.runs, command)
        taken = {True: [], False: []}
        for turn in range(4 * max(sizes.rounds, 1)):
            under = turn % 2 == 0
            done = subprocess.run([*(volume.words if under else ()), "sh", "-c", script], capture_output=True, text=True,
                                  env={**os.environ, "SOURCE": source}, cwd="/")
            if done.returncode != 0:
                raise HarnessError("%s: exit %d\n%s" % (command, done.returncode, done.stderr))
            began, ended = map(int, done.stdout.split())
            taken[under].append(ended - began)
        times[name] = statistics.median(taken[True]) / statistics.median(taken[False])
    return times


def switches(pid):
    """Returns {(thread, its name): its voluntary context switches} of a process."""
    counts = {}
    for thread in os.listdir("/proc/%d/task" % pid):
        with open("/proc/%d/task/%s/status" % (pid, thread)) as f:
            lines = dict(line.rstrip("\n").split(":\t", 1) for line in f)
        counts[thread, lines["Name"]] = int(lines["voluntary_ctxt_switches"])
    return counts


def memory_mib(pid, beside):
    """Returns the memory of a process without its maps of a file whose name contains `beside`."""
    total = 0
    counted = False
    with open("/proc/%d/smaps" % pid) as f:
        for line in f:
            words = line.split()
            if "-" in words[0] and not words[0].endswith(":"):
                counted = beside not in line
            elif words[0] == "Pss:" and counted:
                total += int(words[1])
    return total / 1024


def idle(sizes, volume):
    """Returns the coordinator's wake-ups a second, and its memory, while nothing is written. `own`:
    the wake-ups of its own threads; the others are of gRPC's timers."""
    before = switches(volume.pid)
    time.sleep(sizes.direct.idle_seconds)
    after = switches(volume.pid)
    grown = {thread: (after[thread] - before.get(thread, 0)) / sizes.direct.idle_seconds for thread in after}
    own = sum(count for (_, name), count in grown.items() if name == OWN_THREADS)
    return {"wakeups": sum(grown.values()), "own": own, "beyond": max(0, round(own - TIMER_HZ)),
            "mib": memory_mib(volume.pid, "memfd:")}


def at_rest(sizes):
    with contextlib.ExitStack() as stack:
        def own(thing):
            return stack.enter_context(contextlib.closing(thing))
        volume = own(DirectVolume(place("rest"), own(Replicas(2, "192MiB")), 2))
        return {"loaded": loaded(sizes, volume), "idle": idle(sizes, volume)}


def measure(sizes, cpu):
    """Returns the figures of the case."""
    return {"case": "direct", "one_writer": [one_writer(sizes, m, cpu) for m in (2, 3)],
            "many_writers": many_writers(sizes), "large_writes": large_writes(sizes, cpu),
            "slow_disk": slow_disk(sizes, cpu), **at_rest(sizes)}


def tables(figures):
    """Returns [(title, {subject: figures})]."""
    return [*(("4 KiB, one writer, 2 of %d, packed" % one["m"], one["subjects"]) for one in figures["one_writer"]),
            ("4 KiB, %d writers, 2 of 2, free" % WRITERS, figures["many_writers"]["subjects"]),
            ("1 MiB, one writer, 2 of 3, packed", figures["large_writes"]["subjects"])]


def rest(figures):
    """Returns what no table has, in words."""
    return "SQLite (WAL, FULL) on the slow disk: %s transactions/s. The idle coordinator: %s." % (
        ", ".join("%s %.1f" % item for item in figures["slow_disk"]["rates"].items()),
        "%(wakeups).1f wake-ups a second, %(own).1f of them of its own threads; %(mib).1f MiB beside the window" %
        figures["idle"])


def lines(figures):
    """Returns the figures as lines of text."""
    text = []
    for title, subjects in tables(figures):
        text.append(title)
        text += ["  %-18s %9.0f operations/s, p50 %8.1f us, p99 %8.1f us" % (name, f["ops_per_second"], f["p50_us"], f["p99_us"])
                 for name, f in subjects.items()]
    return [*text, rest(figures), *("  ".join(row) for row in disk.rows(figures["slow_disk"]["disk"]))]


def values(figures):
    """Returns {words: value} for the words of BARS."""
    found = {}
    for one in figures["one_writer"]:
        found.update({text % one["m"]: one[figure] for text, figure, _ in ONE_WRITER})
    for kind in ("threads", "processes"):
        found.update({text % (WRITERS, kind): figures["many_writers"][kind + figure] for text, figure, _ in MANY_WRITERS})
    found.update({LOADED % name: value for name, value in figures["loaded"].items()})
    return found | {LARGE: figures["large_writes"]["of_floor"], SLOW: figures["slow_disk"]["times"],
                    IDLE: figures["idle"]["beyond"], MEMORY: figures["idle"]["mib"]}


def judged(figures):
    """Returns [(words, value, "at most" or "at least", bar)]."""
    found = values(figures)
    return [(words, found[words], sense, bar) for words, sense, bar in BARS]
