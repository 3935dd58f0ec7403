"""A real file system on a loop device over a sparse file, whose power can be cut.

power_cut() uses the file system's own shutdown ioctl with NOLOGFLUSH. From then on nothing reaches
the device, neither data nor the journal in memory, and every open file gives EIO. After umount and
mount the file system holds the same as a disk after the plug was pulled: all synced data, and any
data that write-back happened to write. (A disk that lies about flushes is not simulated.)

btrfs has no such ioctl. There the bytes on the disk at that moment are kept, and become the disk
again at the next umount. So every user of the disk must be dead by then, and no data that reached
the device is lost.
"""
import contextlib
import errno
import fcntl
import glob
import os
import shutil
import signal
import struct

from harness.run import HarnessError, current, sh, wait_until

# EXT4_IOC_SHUTDOWN == XFS_IOC_GOINGDOWN == _IOR('X', 125, __u32)
IOC_SHUTDOWN = 0x8004587D
BUSY_S = 5  # how long umount() puts up with EBUSY
NOLOGFLUSH = 2  # EXT4_GOING_FLAGS_NOLOGFLUSH, XFS_FSOP_GOING_FLAGS_NOLOGFLUSH


def mounts():
    """Returns {mount point: (type, source, options)} of this mount namespace; of several on one
    point the topmost."""
    table = {}
    with open("/proc/self/mountinfo") as f:
        for line in f:
            left, right = line.rstrip("\n").split(" - ")
            point = left.split()[4].encode().decode("unicode_escape")
            kind, source = right.split()[:2]
            table[point] = (kind, source, left.split()[5])
    return table


def umount(path, timeout_s=60):
    """Runs umount(8), not lazily, so that it fails when a process still uses the file system. For
    at most 5 s it is tried again if the kernel says EBUSY: after the last close(), or the end of a
    process, the kernel may still be dropping references. Any other failure is one at once."""
    last = None

    def attempt():
        nonlocal last
        last = sh("umount", path, check=False, timeout=timeout_s)
        if last.returncode != 0 and "busy" not in last.stderr:
            raise HarnessError("umount %s: exit %d\n%s" % (path, last.returncode, last.stderr))
        return last.returncode == 0
    wait_until(attempt, BUSY_S, lambda: "umount %s: %s" % (path, last.stderr), 0.02)


def missing(fs):
    """Returns why this machine cannot have an image with this file system; empty when it can."""
    if shutil.which("modprobe"):
        sh("modprobe", "-q", fs, check=False)
    with open("/proc/filesystems") as f:
        return "" if fs in f.read().split() else "this kernel has no " + fs


def _copy_at_rest(file, to):
    """Copies the content of `file` at one moment, even while a program writes to it."""
    def unchanged():
        sh("cp", "--sparse=always", file, to)
        return sh("cmp", "-s", file, to, check=False).returncode == 0
    wait_until(unchanged, 60, "the disk does not come to rest", 0.02)


class Image:
    """A mounted file system at self.path. `fs` is ext4, xfs or btrfs; `size_mb` is sparse.

    `as_disk`: for measurements. The image's blocks are written beforehand and the loop device
    bypasses the page cache. So a write costs as much as on the disk below, and no allocation of a
    sparse file. `directory`: where the file lies; on a tmpfs a sync costs nothing."""

    _serial = 0

    def __init__(self, name, fs="ext4", size_mb=512, mkfs_options=(), mount_options="", source=None,
                 as_disk=False, directory=None):
        run = current()
        Image._serial += 1
        name = "%s%d" % (name, Image._serial)
        self.name, self.fs, self.mount_options = name, fs, mount_options
        self.file = os.path.join(directory or run.dir, name + ".img")
        self.path = os.path.join(run.dir, name)
        self.loop = None
        self.cut_file = None  # the disk's content after its next umount
        self.cuts = 0
        self.aborted = False  # since it was last mounted
        if source is None:
            with open(self.file, "xb") as f:
                f.truncate(size_mb << 20)
            if as_disk:
                sh("dd", "if=/dev/zero", "of=" + self.file, "bs=4M", "count=%d" % (size_mb // 4), "oflag=direct",
                   "conv=notrunc,fsync", "status=none")
            if fs == "ext4":
                sh("mkfs.ext4", "-q", "-E", "lazy_itable_init=1,lazy_journal_init=1,nodiscard",
                   *mkfs_options, self.file)
            elif fs == "xfs":
                sh("mkfs.xfs", "-q", "-K", *mkfs_options, self.file)
            elif fs == "btrfs":
                sh("mkfs.btrfs", "-q", "-K", *mkfs_options, self.file)
            else:
                raise HarnessError("no such file system here: " + fs)
        else:
            _copy_at_rest(source, self.file)
        os.mkdir(self.path)
        try:
            direct = ["--direct-io=on"] if as_disk else []
            self.attach(self.file, *direct)
            self.mount()
        except BaseException:
            self.close()
            raise

    def attach(self, file, *options):
        """Attaches a loop device to `file`; the image must have none."""
        self.loop = sh("losetup", "--find", "--show", *options, file).stdout.strip()
        current().loops.add(self.loop)

    def detach(self):
        if self.loop:
            sh("losetup", "-d", self.loop, check=False)
            current().loops.discard(self.loop)
            self.loop = None

    def mount(self, options=""):
        if self.aborted:
            # A boot does this too. Without it the kernel forgets the unlinked files of a file
            # system with errors.
            done = sh("e2fsck", "-p", self.loop, check=False)
            if done.returncode & 4:  # e2fsck's text and docs/recovery.md ask for this
                print("e2fsck -p did not mend everything: e2fsck -fy\n" + done.stdout, flush=True)
                done = sh("e2fsck", "-fy", self.loop, check=False)
            if done.returncode not in (0, 1):  # 1: mended
                raise HarnessError("e2fsck: exit %d\n%s%s" % (done.returncode, done.stdout, done.stderr))
            self.aborted = False
        both = ",".join(o for o in (self.mount_options, options, "nouuid" if self.fs == "xfs" else "") if o)
        sh("mount", "-t", self.fs, *(["-o", both] if both else []), self.loop, self.path)

    def mounted(self):
        return self.path in mounts()

    def umount(self):
        """Unmounts; not lazily, so that it fails when a process still uses the file system."""
        if not self.mounted():
            return
        umount(self.path)
        # A mount namespace that is still dying may hold the old superblock, which a mount would
        # reuse.
        wait_until(self._device_free, 20, self.loop + " is still in use after umount", 0.02)
        if self.cut_file:
            self.detach()
            os.replace(self.cut_file, self.file)
            self.cut_file = None
            self.attach(self.file)

    def _device_free(self):
        try:
            os.close(os.open(self.loop, os.O_RDONLY | os.O_EXCL))
            return True
        except OSError as error:
            if error.errno != errno.EBUSY:
                raise
            return False

    def shutdown(self):
        """Pulls the plug: nothing written or synced from now on reaches the device."""
        if self.fs == "btrfs":
            self._keep_bytes()
            return
        fd = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.ioctl(fd, IOC_SHUTDOWN, struct.pack("I", NOLOGFLUSH))
        finally:
            os.close(fd)
        self.cuts += 1

    def kill_users(self):
        """Sends SIGKILL to every process that has a file of the image open, and does not wait. Call
        it before shutdown() if the processes' own syncs are judged: an fsync(2) that runs while
        ext4 is shut down may report success though its data are lost. A machine without power
        reports nothing."""
        for path in glob.glob("/proc/[0-9]*/fd/*"):
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                pid = int(path.split("/")[2])
                if os.readlink(path).startswith(self.path + "/") and pid != os.getpid():
                    os.kill(pid, signal.SIGKILL)

    def _keep_bytes(self):
        self.cut_file = self.file + ".cut"
        _copy_at_rest(self.file, self.cut_file)
        self.cuts += 1

    def abort(self):
        """Gives the journal an error: ext4 turns read-only until it is unmounted."""
        sh("mount", "-o", "remount,abort", self.path)
        self.aborted = True

    def power_cut(self, also=lambda: None):
        """Calls kill_users(), shutdown() and `also` (which kills and reaps the programs), then
        starts the machine again: umount, and mount, which replays the journal. Every user of the
        file system must be dead before the umount."""
        self.kill_users()
        self.shutdown()
        also()
        self.umount()
        self.mount()

    def copy(self, name):
        """Returns a second Image made from the bytes on this one's device now, mounted beside it.
        It is the disk as a power cut at this moment would leave it. This image may be mounted and
        in use, but not written to all the time."""
        return Image(name, self.fs, mount_options=self.mount_options, source=self.file)

    def check(self):
        """Runs fsck, read only, on the unmounted image; raises when it is damaged."""
        self.umount()
        if self.fs == "ext4":
            sh("e2fsck", "-fn", self.loop)
        elif self.fs == "btrfs":
            sh("btrfs", "check", "--readonly", self.loop)
        else:
            sh("xfs_repair", "-n", self.loop)
        self.mount()

    def close(self):
        """Unmounts (lazily if it must) and removes everything. Idempotent."""
        if self.mounted() and sh("umount", self.path, check=False).returncode != 0:
            sh("umount", "-l", self.path, check=False)
        self.detach()
        for file in (self.file, self.cut_file):
            if file and os.path.exists(file):
                os.unlink(file)
        if os.path.isdir(self.path) and not self.mounted():
            os.rmdir(self.path)
