"""Faults of the primary's disk: full, slow, stuck, failing, read-only, gone.

They need neither device mapper nor NBD. strace injects errors into the daemon's own system calls;
the block layer's throttle on the loop device makes it slow.
"""
import fcntl
import os
import re
import subprocess
import sys

from campaign.fault import Fault, within
from harness.proc import attach_strace
from harness.run import current, sh

# Takes all free space with fallocate, finally 4 KiB at a time; prints the errno that ended it.
_FILL = """
import errno, os, sys
fd = os.open(sys.argv[1], os.O_CREAT | os.O_WRONLY, 0o600)
at, step = 0, 64 << 20
while step >= 4096:
    try:
        os.posix_fallocate(fd, at, step)
        at += step
    except OSError as error:
        if error.errno != errno.ENOSPC:
            sys.exit(errno.errorcode[error.errno])
        step //= 2
os.fsync(fd)  # a power cut shall find the disk full as well
"""
FILLER = "filler"
FAIL_S = 20  # until a volume that must fail has failed, on a busy machine


class DiskFull(Fault):
    """Takes all space: by a file in the volume, or by one beside it that the engine does not know
    of."""

    name = "disk full"
    refuses = True
    late = True
    did = 0

    @classmethod
    def draw(cls, rng, shape):
        return cls(inside=rng.random() < 0.5)

    def __init__(self, **params):
        super().__init__(**params)
        # Space that vanishes after it was checked may fail the volume.
        self.kills = not self.params["inside"]

    def uses(self, shape):
        return {"disk", "mount"}

    def inject(self, campaign):
        rig = campaign.rig
        path = rig.file(FILLER) if self.params["inside"] else os.path.join(rig.image.path, FILLER)
        done = subprocess.run([sys.executable, "-c", _FILL, path], stderr=subprocess.PIPE, text=True, timeout=120,
                              check=False)
        self.did = int(done.returncode == 0)
        if not self.did:
            campaign.note("filling the disk ended with %s" % done.stderr.strip()[-60:])

    def heal(self, campaign):
        if self.params["inside"]:
            campaign.remove_filler = True  # through the mount, when there is one
        else:
            path = os.path.join(campaign.rig.image.path, FILLER)
            if os.path.exists(path):
                os.unlink(path)
                campaign.rig.sync_disk()  # or the next power cut brings it back


class DiskSlow(Fault):
    """The block layer's throttle: some write operations a second, for every writer to this device.
    Counts the writes that came through it; nothing reports whether one waited there."""

    name = "disk slow"
    did = 0
    _device = None
    _FILE = "/sys/fs/cgroup/blkio/blkio.throttle.write_iops_device"

    @classmethod
    def missing(cls):
        return "" if os.access(cls._FILE, os.W_OK) else "no blkio control group (v1): " + cls._FILE

    @classmethod
    def draw(cls, rng, shape):
        return cls(iops=rng.choice([5, 5, 20, 100]))

    def uses(self, shape):
        return {"disk"}

    def inject(self, campaign):
        with open("/sys/block/%s/dev" % os.path.basename(campaign.rig.image.loop)) as f:
            self._device = f.read().strip()
        campaign.own(self)
        self._set(self.params["iops"])
        self._before = self._writes()

    def heal(self, campaign):
        self.close()

    def close(self):
        if self._device:
            self.did += self._writes() - self._before
            self._set(0)
            self._device = None

    def _writes(self):
        """Returns how many the device has completed, Documentation/block/stat.rst."""
        with open("/sys/dev/block/%s/stat" % self._device) as f:
            return int(f.read().split()[4])

    def _set(self, iops):
        with open(self._FILE, "w") as f:
            f.write("%s %d" % (self._device, iops))


class DiskStuck(Fault):
    """Freezes the file system: its writers hang until it is thawed. Counts the daemon's threads
    that hang then, in an uninterruptible wait."""

    name = "disk hangs"
    did = 0
    _FREEZE, _THAW = 0xC0045877, 0xC0045878  # FIFREEZE, FITHAW: _IOWR('X', 119 and 120, int)
    _fd = -1

    def uses(self, shape):
        return {"disk"}

    def inject(self, campaign):
        # Held open: a file system that was shut down meanwhile (XFS) opens nothing any more, and
        # must still be thawed.
        self._fd = os.open(campaign.rig.image.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        campaign.own(self)
        fcntl.ioctl(self._fd, self._FREEZE, 0)

    def heal(self, campaign):
        mount = campaign.rig.mount_
        if self._fd >= 0 and mount:
            self.did += mount.proc.threads("D")
        self.close()

    def close(self):
        if self._fd >= 0:
            try:
                fcntl.ioctl(self._fd, self._THAW, 0)
            finally:
                os.close(self._fd)
                self._fd = -1


class DiskErrors(Fault):
    """An error from the daemon's own calls, once or from then on. `calls` are syncs, writes, or
    writes to the volume's own files (state, stable log), for which its replicas are cut off.

    I8 says:
    - A failed sync is never retried as if the data were clean.
    - Nothing relies on a state or log that could not be written.
    - Acknowledged data that cannot be applied stays in the log.

    So after each of these the volume must fail, and report it. It continues only if the writing
    program can still get the error: data past the log, of a workload that is `direct`, or without
    syncs (SQLite's -shm)."""

    name = "disk errors"
    refuses = True
    kills = True
    did = 0
    _WRITES = "pwrite64,pwritev,pwritev2"
    CALLS = {"sync": "fsync,fdatasync,syncfs,sync_file_range", "write": _WRITES, "own": _WRITES}
    OWN = ("state", "stable.log")
    _tracer = None

    @classmethod
    def missing(cls):
        done = sh("strace", "-o/dev/null", "-e", "trace=getpid", "true", check=False)
        return "" if done.returncode == 0 else "strace: " + done.stderr.strip()

    @classmethod
    def draw(cls, rng, shape):
        return cls(calls=rng.choice(["sync", "sync", "write", "own"]), when=rng.choice(["1", "1", "3", "1+"]),
                   error=rng.choice(["EIO", "EIO", "ENOSPC"]))

    def uses(self, shape):
        net = {"net %d" % i for i in range(shape.m)} if self.params["calls"] == "own" else set()
        return {"disk", "mount"} | net

    def inject(self, campaign):
        rig = campaign.rig
        own = self.params["calls"] == "own"
        paths = [rig.volume.salius_file(name) for name in self.OWN] if own else ()
        self._log = os.path.join(current().dir, "strace-%d-%d.calls" % (rig.mount_.pid, campaign.episode))
        self._tracer = attach_strace(rig.mount_.pid, self.CALLS[self.params["calls"]], self._log,
                                     "error=%(error)s:when=%(when)s" % self.params, paths)
        for i in range(self._cut_off(campaign)):
            rig.net.drop(i)
        self._watch(campaign)

    def _cut_off(self, campaign):
        """Returns how many replicas are cut off: in mode local the volume writes state and stable
        log at once."""
        return campaign.shape.m if self.params["calls"] == "own" else 0

    def _hits(self):
        return injected(self._log)

    def _watch(self, campaign):
        """Waits until something was hit (a replicated volume may have nothing to sync for τ/2), and
        then until the required effect."""
        mount = campaign.rig.mount_

        def failed():
            return mount.mode() == "failed"
        within(5, self._hits)
        if not (self._hits() and within(5, failed)):
            self._tracer.kill()  # nothing would judge later hits
            for hit in self._hits():
                self._judge(campaign, hit, failed)
        campaign.count("disk errors: %s" % (
            "nothing was hit" if not self._hits() else "volume failed" if failed() else "volume continued"))

    def _judge(self, campaign, hit, failed):
        """Judges a hit after which the volume continues, or did just now."""
        path, rig = path_of(hit), campaign.rig
        backing = os.path.realpath(rig.backing)
        theirs = [work for work in campaign.works if path.startswith(work.folder(backing) + "/")]
        if self.params["calls"] == "sync" or not (any(w.direct for w in theirs) or path.endswith("-shm")):
            if not within(FAIL_S, failed):
                raise AssertionError("the disk refused this, and the volume continues: " + hit)
            return
        campaign.note("%s: past the log: %s" % (self.text(), hit))
        for work in theirs:
            if work.ends and not within(10, lambda: failed() or work.ended_with(self.params["error"])):
                raise AssertionError("the disk refused this, and %s got no error: %s" % (work.name, hit))

    def heal(self, campaign):
        if self._tracer:
            # SIGTERM would not do: strace may wait for ever for a process that is dying.
            self._tracer.kill()
            self.did = len(self._hits())
        for i in range(self._cut_off(campaign)):
            campaign.rig.net.heal(i)


def injected(log):
    """Returns the calls in strace's log that got an injected error, each as one line, even when it
    was written in two."""
    begun, hits = {}, []
    with open(log) as f:
        for line in f:
            thread, _, call = line.strip().partition(" ")
            call = call.strip()
            if call.endswith("<unfinished ...>"):
                begun[thread] = call
            elif "(INJECTED)" in call:
                hits.append((begun.get(thread, "") + " " if call.startswith("<...") else "") + call)
    return hits


def path_of(call):
    """Returns the path of the descriptor that a call in strace's log names; empty when there is
    none."""
    found = re.search(r"\(\d+<([^>]*)>", call)
    return found.group(1) if found else ""


class DiskGone(Fault):
    """Nothing reaches the disk any more, every call gives EIO. The daemon lives, and reports when
    it has met that."""

    name = "disk gone"
    refuses = True
    kills = True
    did = 0
    _log = None

    def uses(self, shape):
        return {"disk", "mount"}

    def inject(self, campaign):
        self._log = open(campaign.rig.volume.log, encoding="utf-8")
        self._log.seek(0, os.SEEK_END)
        self.end(campaign.rig.image)

    def end(self, image):
        image.shutdown()

    def heal(self, campaign):
        if self._log:
            with self._log:
                self.did = self._log.read().count("volume failed: ")
            self._log = None


class DiskReadOnly(DiskGone):
    """The file system turns read-only, as ext4 does after an error of its journal."""

    name = "disk read-only"

    @classmethod
    def draw(cls, rng, shape):
        return cls() if shape.fs == "ext4" else None

    def end(self, image):
        image.abort()


KINDS = [DiskFull, DiskSlow, DiskStuck, DiskErrors, DiskReadOnly, DiskGone]
