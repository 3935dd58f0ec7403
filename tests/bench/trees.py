"""Work on trees of small files (case `trees`): through the mount, through an empty pass-through
with the same options, and on the bare file system. Two more mounts have replicas behind relays. The
relays of one delay each packet, those of the other pass it on at once, so that nothing but the
delay differs between the two. The grounds take turns in every round."""
import contextlib
import mmap
import os
import random
import shutil
import statistics
import subprocess
import tarfile
import time
import urllib.request
from dataclasses import dataclass

from bench.networks import Delayed
from bench.quiet import wait_quiet
from bench.rounds import QUIET_BOUND_S
from bench.setup import MountedVolume, Replicas, Serving, place
from bench.tools import tool
from harness.run import HarnessError, sh

SALIUS, PASSTHROUGH, BARE = "salius", "passthrough", "bare"
RELAYED, DELAYED = "salius relayed", "salius delayed"
DELAY_MS = 1
# A volume in mode local is another ground. With this link delay bound a pause of a busy machine is
# no partition.
PATIENT = ("--delta", "2s")
METRICS = "127.0.0.1:9631"
WAITS = "salius_durable_waits_total"
PAGE = 4096
FILES_PER_DIRECTORY = 100
REPOSITORY_DIRECTORIES = 50

CHANGED, READ = 1.5, 1.25  # bars: the time of the pass-through's
DELAY_BAR = 1.1
INODE_BYTES = 256
RETURNED = 0.75            # share of the memory of forgotten inodes

# The works, in their order: name, words, bar against the pass-through.
WORKS = (
    ("tar", "`tar x`", CHANGED),
    ("find", "`find -ls`", READ),
    ("du", "`du`", READ),
    ("read cold", "reading all, cold", READ),
    ("read warm", "reading all, warm", READ),
    ("rm", "`rm -r`", CHANGED),
    ("npm", "npm-like tree", CHANGED),
    ("clone", "`git clone`", CHANGED),
    ("switch", "`git switch`", CHANGED),
    ("cp", "`cp -a`", CHANGED),
    ("calls", "create, write, close, chmod, utimens", CHANGED),
)


@dataclass
class Sizes:
    """How much of everything; `rounds` of all."""
    rounds: int = 5
    files: int = 20_000
    npm: int = 30_000
    git: int = 5_000
    copy_mib: int = 2048
    calls: int = 1000
    repeats: int = 5  # of the calls in a round: they take less than a second
    map_mib: int = 256
    stores: int = 200_000
    inodes: int = 200_000

    @staticmethod
    def smoke():
        return Sizes(rounds=1, files=200, npm=150, git=50, copy_mib=4, calls=20, repeats=1, map_mib=1, stores=500, inodes=500)


class Sources:
    """The data that the works read. It lies in memory, so it costs every ground the same."""

    def __init__(self, sizes):
        self.path = "/dev/shm/trees"
        os.mkdir(self.path)
        self.tar = os.path.join(self.path, "files.tar")
        self.repository = os.path.join(self.path, "repository")
        self.big = os.path.join(self.path, "big")
        try:
            self._make_tar(sizes.files)
            self._make_repository(sizes.git)
            self._make_big(sizes.copy_mib)
        except BaseException:
            self.close()
            raise

    def _make_tar(self, files):
        tree = os.path.join(self.path, "files")
        write_files(tree, files)
        with tarfile.open(self.tar, "w") as tar:
            tar.add(tree, "files")
        shutil.rmtree(tree)

    def _make_repository(self, files):
        """Makes two branches that differ in every file."""
        os.mkdir(self.repository)
        self._git("init", "-q", "-b", "one")
        for branch in ("one", "two"):
            if branch == "two":
                self._git("switch", "-q", "-c", "two")
            for i in range(files):
                directory = os.path.join(self.repository, "d%d" % (i % REPOSITORY_DIRECTORIES))
                os.makedirs(directory, exist_ok=True)
                with open(os.path.join(directory, "f%d" % i), "w") as f:
                    f.write("%s %d\n" % (branch, i) * (20 + i % 100))
            self._git("add", "-A")
            self._git("commit", "-q", "-m", branch)

    def _git(self, *words):
        git(self.repository, *words)

    def _make_big(self, mib):
        for i in range(mib):
            directory = os.path.join(self.big, "d%d" % (i // FILES_PER_DIRECTORY))
            os.makedirs(directory, exist_ok=True)
            with open(os.path.join(directory, "f%d" % i), "wb") as f:
                f.write(os.urandom(PAGE) * ((1 << 20) // PAGE))

    def close(self):
        shutil.rmtree(self.path, ignore_errors=True)


def git(directory, *words):
    sh("git", "-C", directory, "-c", "user.name=bench", "-c", "user.email=bench@localhost", "-c", "gc.auto=0",
       "-c", "safe.directory=*", *words, timeout=1800)


def write_files(tree, files):
    """Writes `files` files of 100 B to 8 KiB below a new directory."""
    for i in range(files):
        directory = os.path.join(tree, "d%d" % (i // FILES_PER_DIRECTORY))
        if i % FILES_PER_DIRECTORY == 0:
            os.makedirs(directory)
        with open(os.path.join(directory, "f%d" % i), "wb") as f:
            f.write(b"x" * (100 + i * 997 % 8000))


def install_packages(tree, files):
    """Makes packages of ten files as npm does: each in a directory of another name, which is then
    renamed; some of them lie in others."""
    os.mkdir(tree)
    for package in range(files // 10):
        if package % 20 == 0:
            modules = tree
        elif package % 20 == 10:
            modules = os.path.join(tree, "package-%d" % (package - 1), "node_modules")
            os.mkdir(modules)
        staged = os.path.join(modules, ".package-%d" % package)
        os.mkdir(staged)
        os.mkdir(os.path.join(staged, "lib"))
        for i in range(10):
            path = os.path.join(staged, "lib" if i % 2 else "", "file%d.js" % i)
            fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
            os.write(fd, b"y" * (200 + (package * 10 + i) * 613 % 6000))
            os.close(fd)
            os.utime(path, (1, 1))
        os.rename(staged, os.path.join(modules, "package-%d" % package))


def drop_caches(what):
    """Drops caches of the kernel: 2 inodes and names, 3 data too."""
    os.sync()
    with open("/proc/sys/vm/drop_caches", "w") as f:
        f.write(str(what))


def quietly(*words, cwd=None):
    """Runs a program whose output goes nowhere. HarnessError when it fails."""
    done = subprocess.run(words, cwd=cwd, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                          timeout=3600)
    if done.returncode != 0:
        raise HarnessError("%s: exit %d\n%s" % (" ".join(words), done.returncode, done.stderr.decode(errors="replace")))


def many_calls(directory, count):
    """Does create, write 1 KiB, close, chmod and utimens on each of `count` new files."""
    os.mkdir(directory)
    for i in range(count):
        path = os.path.join(directory, "f%d" % i)
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        os.write(fd, b"z" * 1024)
        os.close(fd)
        os.chmod(path, 0o644)
        os.utime(path, (1, 1))


def map_stores(path, mib, stores):
    """Returns stores a second, each into a page at random of a shared map."""
    with open(path, "w+b") as f:
        for _ in range(mib):
            f.write(bytes(1 << 20))
        f.flush()
        os.fsync(f.fileno())
        chance = random.Random(1)
        places = [chance.randrange(mib << 20 >> 12) * PAGE for _ in range(stores)]
        with mmap.mmap(f.fileno(), mib << 20) as memory:
            began = time.monotonic()
            for at in places:
                memory[at] = 1
            rate = stores / (time.monotonic() - began)
    os.unlink(path)
    return rate


class Ground:
    """A place where the works run. `metrics`: returns the count of waits for replicas, or None."""

    def __init__(self, name, path, metrics=lambda: None):
        self.name, self.path, self.metrics = name, path, metrics
        self.seconds = {work: [] for work, _, _ in WORKS}
        self.stores, self.waits = [], []

    def _timed(self, work, do, drop=None):
        if drop is None:
            os.sync()  # dirty data of the work before
        else:
            drop_caches(drop)
        began = time.monotonic()
        do()
        self.seconds[work].append(time.monotonic() - began)

    def round(self, sizes, sources):
        """Does every work once, and leaves nothing behind."""
        at = os.path.join(self.path, "work")
        os.mkdir(at)
        files, clone, copy = (os.path.join(at, name) for name in ("files", "clone", "copy"))
        self._timed("tar", lambda: quietly("tar", "-xf", sources.tar, "-C", at))
        self._timed("find", lambda: quietly("find", files, "-ls"), drop=2)
        self._timed("du", lambda: quietly("du", "-s", files), drop=2)
        read = ("sh", "-c", "find . -type f -print0 | xargs -0 cat | wc -c")
        self._timed("read cold", lambda: quietly(*read, cwd=files), drop=3)
        self._timed("read warm", lambda: quietly(*read, cwd=files))
        self._timed("rm", lambda: quietly("rm", "-r", files))
        self._timed("npm", lambda: install_packages(os.path.join(at, "node_modules"), sizes.npm))
        self._timed("clone", lambda: git("/", "clone", "-q", "--no-hardlinks", "-b", "one", sources.repository, clone))
        self._timed("switch", lambda: git(clone, "switch", "-q", "two"))
        self._timed("cp", lambda: quietly("cp", "-a", sources.big, copy))
        for repeat in range(sizes.repeats):
            os.sync()
            before = self.metrics()
            self._timed("calls", lambda: many_calls(os.path.join(at, "calls%d" % repeat), sizes.calls))
            if before is not None:
                self.waits.append(self.metrics() - before)
        self.stores.append(map_stores(os.path.join(at, "map"), sizes.map_mib, sizes.stores))
        shutil.rmtree(at)

    def median(self, work):
        return statistics.median(self.seconds[work])


def scraped_waits():
    """Returns the count of waits that the mount's metrics give."""
    with urllib.request.urlopen("http://%s/metrics" % METRICS, timeout=10) as answer:
        for line in answer.read().decode().splitlines():
            if line.startswith(WAITS):
                return int(float(line.split()[-1]))
    raise HarnessError("the metrics have no " + WAITS)


def resident_kib(pid):
    with open("/proc/%d/status" % pid) as f:
        return next(int(line.split()[1]) for line in f if line.startswith("VmRSS:"))


def inodes(sizes, replicas):
    """Returns (bytes of the daemon for each inode that the kernel caches, the share of them that it
    gives back when the kernel has forgotten the inodes)."""
    backing = place("inodes")
    for i in range(sizes.inodes):
        if i % 1000 == 0:
            directory = os.path.join(backing, "d%d" % (i // 1000))
            os.mkdir(directory)
        os.close(os.open(os.path.join(directory, "f%d" % i), os.O_WRONLY | os.O_CREAT, 0o644))
    with contextlib.closing(MountedVolume(backing, replicas, 2)) as volume:
        drop_caches(2)
        before = resident_kib(volume.mount.pid)
        quietly("find", volume.path, "-ls")
        cached = resident_kib(volume.mount.pid)
        drop_caches(2)
        left = least_resident_kib(volume.mount.pid)
    grown = max(1, cached - before)
    return grown * 1024 / sizes.inodes, min(1.0, (cached - left) / grown)


def least_resident_kib(pid, seconds=5):
    """Returns the least memory of the process within some seconds: it waits for a calm moment
    before it gives memory back."""
    least = resident_kib(pid)
    for _ in range(seconds * 10):
        time.sleep(0.1)
        least = min(least, resident_kib(pid))
    return least


@contextlib.contextmanager
def grounds():
    """Gives the grounds, and the replicas of the first."""
    with contextlib.ExitStack() as stack:
        def own(thing):
            return stack.enter_context(contextlib.closing(thing))

        def behind_relays(name, delay_ms):
            network = own(Delayed(2, delay_ms))
            return volume(name, own(Replicas(network, "512MiB")))

        def volume(name, replicas, *options):
            return own(MountedVolume(place(name), replicas, 2, *PATIENT, mount_options=",".join(("names=async", *options))))
        replicas = own(Replicas(2, "512MiB"))
        near = volume("trees-near", replicas, "metrics=" + METRICS)
        relayed, delayed = behind_relays("trees-relayed", 0), behind_relays("trees-delayed", DELAY_MS)
        passthrough = own(Serving("trees-passthrough", [tool("passthrough_fs"), place("trees-backing")]))
        began = [measured.mount.status()["mode_since_unix_ms"] for measured in (near, relayed, delayed)]
        yield [Ground(SALIUS, near.path, scraped_waits), Ground(RELAYED, relayed.path), Ground(DELAYED, delayed.path),
               Ground(PASSTHROUGH, passthrough.path), Ground(BARE, place("trees-bare"))], replicas
        for measured, since in zip((near, relayed, delayed), began):
            status = measured.mount.status()
            if (status["mode"], status["mode_since_unix_ms"]) != ("replicated", since):
                raise HarnessError("a volume left mode replicated: this measured something else")


def measure(sizes, wait):
    """Returns the figures of the case."""
    with grounds() as (subjects, replicas), contextlib.closing(Sources(sizes)) as sources:
        for first in range(sizes.rounds):
            if wait:
                wait_quiet(QUIET_BOUND_S)
            first %= len(subjects)
            for ground in (*subjects[first:], *subjects[:first]):
                ground.round(sizes, sources)
        inode_bytes, returned = inodes(sizes, replicas)
    return {"case": "trees", "files": sizes.files, "calls": sizes.calls, "inodes": sizes.inodes,
            "seconds": {g.name: {work: g.median(work) for work, _, _ in WORKS} for g in subjects},
            "stores": {g.name: statistics.median(g.stores) for g in subjects},
            "waits": max(subjects[0].waits), "inode_bytes": inode_bytes, "returned": returned}


def ratio(figures, work, over=SALIUS, under=PASSTHROUGH):
    """Returns the time of one ground as a multiple of another's."""
    return figures["seconds"][over][work] / figures["seconds"][under][work]


def judged(figures):
    """Returns [(words, value, sense, bar)] of the case."""
    bars = [("%s: time of the pass-through's" % words, ratio(figures, work), "at most", bar) for work, words, bar in WORKS]
    bars += [("%s, %d ms away: time of without" % (words, DELAY_MS), ratio(figures, work, DELAYED, RELAYED), "at most",
              DELAY_BAR) for work, words, _ in WORKS]
    return bars + [
        ("waits for replicas in %d times create to utimens" % figures["calls"], figures["waits"], "at most", 0),
        ("bytes of the daemon for a cached inode", figures["inode_bytes"], "at most", INODE_BYTES),
        ("share of forgotten inodes' memory given back", figures["returned"], "at least", RETURNED)]


def rows(figures):
    """Returns the table: [(work, seconds of each ground..., ratios...)] as text, a head first."""
    names = (SALIUS, PASSTHROUGH, BARE, RELAYED, DELAYED)
    table = [("", *("%s, s" % name for name in names), "salius / pass-through", "salius / bare", "delayed / relayed")]
    for work, words, _ in WORKS:
        table.append((words, *("%.3f" % figures["seconds"][name][work] for name in names),
                      "%.2f" % ratio(figures, work), "%.2f" % ratio(figures, work, SALIUS, BARE),
                      "%.2f" % ratio(figures, work, DELAYED, RELAYED)))
    return table


def stores_row(figures):
    """Returns the rates of stores into shared maps, in words."""
    return "Stores a second into a shared map: " + ", ".join("%s %.0f" % item for item in figures["stores"].items()) + "."
