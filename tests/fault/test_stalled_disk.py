"""The disk stalls: the backing file system is frozen for a while, replicas are healthy. Calls that
need no disk continue."""
import contextlib
import fcntl
import os
import statistics
import subprocess
import sys
import threading
import time

from harness.case import Case
from harness.run import HarnessError, sh, wait_until

_FREEZE, _THAW = 0xC0045877, 0xC0045878  # FIFREEZE, FITHAW: _IOWR('X', 119 and 120, int)

# Overwrites blocks of a file with O_SYNC, one every 10 ms; prints the start and the length of each
# in seconds.
_OVERWRITE = """
import os, sys, time
fd = os.open(sys.argv[1], os.O_WRONLY | os.O_SYNC)
number = 0
while True:
    began = time.monotonic()
    os.pwrite(fd, bytes([number % 251 + 1]) * 4096, number % 64 * 4096)
    print("%.6f %.6f" % (began, time.monotonic() - began), flush=True)
    number += 1
    time.sleep(0.01)
"""


class Maker(threading.Thread):
    """A thread that makes a file, and hangs as long as the disk does."""

    def __init__(self, path):
        super().__init__(daemon=True)
        self.path, self.error = path, None
        self.start()

    def run(self):
        try:
            os.close(os.open(self.path, os.O_CREAT | os.O_WRONLY, 0o644))
        except OSError as error:
            self.error = error


class Freezer:
    """Freezes the file system at `path`, at most for MOST_S: a test that waits for the disk by
    mistake ends."""

    MOST_S = 60

    def __init__(self, path):
        self._fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._lock = threading.Lock()
        self._timer = None

    def freeze(self):
        fcntl.ioctl(self._fd, _FREEZE, 0)
        self._timer = threading.Timer(self.MOST_S, self.thaw)
        self._timer.start()

    def thaw(self):
        with self._lock:
            if self._timer:
                self._timer.cancel()
                self._timer = None
                fcntl.ioctl(self._fd, _THAW, 0)

    def close(self):
        self.thaw()
        os.close(self._fd)


class Writer:
    """The overwriter as a process, and its measurements."""

    def __init__(self, path, uid=None):
        argv = ["setpriv", "--reuid", str(uid), "--regid", str(uid), "--clear-groups"] if uid else []
        self.samples = []
        self._popen = subprocess.Popen(argv + [sys.executable, "-c", _OVERWRITE, path], stdout=subprocess.PIPE, text=True)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self):
        for line in self._popen.stdout:
            began, took = line.split()
            self.samples.append((float(began), float(took)))

    def between(self, first, last):
        return sorted(took for began, took in list(self.samples) if first <= began < last)

    def close(self):
        self._popen.kill()
        self._popen.wait()
        self._reader.join()


def p99(samples):
    return samples[len(samples) * 99 // 100]


class StalledDisk(Case):

    ANSWER_S = 0.1

    def make(self, **kwargs):
        """Mounts a volume whose window and tau have room for the stall."""
        init = ("--log-max", "64MiB", "--delta", "1s", "--tau", "60s")
        rig = self.rig(m=2, acks=1, init_options=init, memory="256MiB", **kwargs)
        rig.mount("recover=auto,metrics=127.0.0.1:9997", mode="replicated")
        self.freezer = self.own(Freezer(rig.image.path))
        self.stall_s = self.count(10, 30)
        return rig

    def file(self, rig, name, mode=0o644):
        path = rig.file(name)
        with open(path, "wb") as f:
            f.write(b"-" * (64 * 4096))
            os.fsync(f.fileno())
        os.chmod(path, mode)
        return path

    def timed(self, what, call):
        began = time.monotonic()
        call()
        took = time.monotonic() - began
        self.took.setdefault(what, []).append(took)

    def answers(self, rig, path, patched):
        """Times everything that needs no disk, each once."""
        def cat(name):
            with open(name, "rb") as f:
                return f.read()

        def metrics():
            sh("nsenter", "--net=/run/netns/" + rig.net.primary, "curl", "-sf", "--max-time", "10",
               "http://127.0.0.1:9997/metrics")

        self.timed("stat of a file being written", lambda: os.stat(path))
        self.timed("stat of a file", lambda: os.stat(rig.file("quiet")))
        self.timed("look-up of a name that is not there", lambda: os.path.exists(rig.file("none%d" % time.monotonic_ns())))
        self.timed("ls", lambda: list(os.scandir(rig.file("shelf"))))
        self.timed("cat", lambda: cat(rig.file("quiet")))
        if patched:
            self.timed("cat of unapplied data", lambda: self.assertEqual(cat(patched)[:4], b"new!"))
        self.timed("statfs", lambda: os.statvfs(rig.path))
        self.timed("xattr", lambda: os.listxattr(path))
        self.timed("status", rig.mount_.status)
        if os.path.exists("/usr/bin/curl"):
            self.timed("metrics", metrics)

    def stalled(self, rig, paths, uid=None, makers=()):
        """Freezes the disk for stall_s under writers of `paths`; `makers` make files meanwhile."""
        self.took = {}
        self.file(rig, "quiet")
        patched = self.file(rig, "patched")
        os.mkdir(rig.file("shelf"))
        for i in range(20):
            self.file(rig, "shelf/%d" % i)
        for name in makers:
            os.mkdir(rig.file(name))
        os.stat(rig.file("quiet"))
        with contextlib.ExitStack() as stack:
            writers = [stack.enter_context(contextlib.closing(Writer(path, uid))) for path in paths]
            wait_until(lambda: all(len(w.samples) > 200 for w in writers), 60, "the writers do not write")
            began = time.monotonic()
            while time.monotonic() < began + 8:
                self.answers(rig, paths[0], None)
                time.sleep(0.5)
            self.took.clear()
            frozen = time.monotonic()
            self.freezer.freeze()
            # Plain, and an fsync that the replicas answer.
            with open(patched, "r+b", buffering=0) as f:
                f.write(b"new!")
                self.timed("fsync", lambda: os.fsync(f.fileno()))
            blocked = [Maker(os.path.join(rig.file(name), "made")) for name in makers]
            while time.monotonic() < frozen + self.stall_s:
                self.answers(rig, paths[0], patched)
                time.sleep(0.5)
            thawed = time.monotonic()
            still = [maker.is_alive() for maker in blocked]
            self.freezer.thaw()
            for maker in blocked:
                maker.join(60)
                self.assertEqual((maker.is_alive(), maker.error), (False, None), maker.path)
            self.assertEqual(still, [True] * len(blocked), "nothing was stalled")
            for writer in writers:
                before, during = writer.between(began, frozen), writer.between(frozen, thawed)
                self.report("%d overwrites before, p99 %.2f ms; %d while stalled, p99 %.2f ms, longest %.1f ms", len(before),
                            p99(before) * 1e3, len(during), p99(during) * 1e3, during[-1] * 1e3)
                self.assertGreater(len(during), 100, "overwrites stopped")
                # Other programs run meanwhile, on few CPUs: their time slices are no wait for the
                # disk.
                self.assertLess(p99(during), max(2 * p99(before), 0.02))
                self.assertLess(during[-1], 1.0)
        for what, times in sorted(self.took.items()):
            self.report("%-36s median %6.1f ms, longest %6.1f ms", what, statistics.median(times) * 1e3, max(times) * 1e3)
        for what, times in self.took.items():
            # For `status` and metrics a program has to start first.
            bound = self.ANSWER_S + (0.4 if what in ("status", "metrics") else 0)
            self.assertLess(statistics.median(times), bound, what)
            self.assertLess(max(times), bound + 0.4, what)
        status = rig.mount_.status()
        self.assertEqual((status["mode"], status["failure"]), ("replicated", ""), status)
        rig.mount_.umount()

    def test_overwrites_and_answers_continue_while_creates_hang(self):
        rig = self.make()
        self.stalled(rig, [self.file(rig, "a"), self.file(rig, "b")], makers=["d%d" % i for i in range(24)])

    def test_owner_with_a_quota_overwrites_on(self):
        options = ("-O", "quota", "-E", "quotatype=usrquota:grpquota")
        try:
            rig = self.make(mkfs_options=options, mount_options="usrquota,grpquota")
        except HarnessError as error:
            if "wrong fs type" not in str(error):
                raise
            self.skipTest("this kernel has no ext4 quotas (CONFIG_QFMT_V2); QuotaLookTest has the logic")
        path = self.file(rig, "a", 0o666)
        os.chown(path, 1000, 1000)
        os.chmod(rig.path, 0o777)
        sh("setquota", "-u", "1000", "0", "65536", "0", "0", rig.image.path)
        self.stalled(rig, [path], uid=1000, makers=["d0"])

    def test_statfs_makes_no_checkpoint_for_a_closed_nameless_file(self):
        rig = self.make()
        path = self.file(rig, "a")
        fd = os.open(rig.path, os.O_TMPFILE | os.O_RDWR, 0o600)
        os.write(fd, b"t" * (1 << 20))
        before = rig.mount_.status()["checkpoint"]
        os.close(fd)
        for _ in range(10):
            os.statvfs(rig.path)
        self.assertEqual(rig.mount_.status()["checkpoint"], before)
        self.freezer.freeze()
        self.took = {}
        for _ in range(10):
            self.timed("statfs", lambda: os.statvfs(rig.path))
            self.timed("stat", lambda: os.stat(path))
        self.freezer.thaw()
        self.assertLess(max(max(times) for times in self.took.values()), 0.5)
