"""A real file system on a loop device over a sparse file, whose power can be cut.

power_cut() is the file system's own shutdown ioctl with NOLOGFLUSH: from then on nothing reaches the
device, neither data nor the journal in memory, and every open file gives EIO. After umount and mount
the file system holds what a disk holds after the plug was pulled: what had been synced, and whatever
write-back had happened to write. (A disk that lies about flushes is not simulated.)

btrfs has no such ioctl: there the bytes that the disk has at that moment are kept, and are the disk again from the
next umount on. So whoever uses it must be dead by then, and nothing that reached the device is lost.
"""
import errno
import fcntl
import os
import shutil
import struct

from harness.run import HarnessError, current, sh, wait_until

# EXT4_IOC_SHUTDOWN == XFS_IOC_GOINGDOWN == _IOR('X', 125, __u32)
IOC_SHUTDOWN = 0x8004587D
NOLOGFLUSH = 2  # EXT4_GOING_FLAGS_NOLOGFLUSH, XFS_FSOP_GOING_FLAGS_NOLOGFLUSH


def mounts():
    """{mount point: (type, source, options)} of this mount namespace; the last one on top wins."""
    table = {}
    with open("/proc/self/mountinfo") as f:
        for line in f:
            left, right = line.rstrip("\n").split(" - ")
            point = left.split()[4].encode().decode("unicode_escape")
            kind, source = right.split()[:2]
            table[point] = (kind, source, left.split()[5])
    return table


def missing(fs):
    """Why there can be no image with this file system here; empty when there can."""
    if shutil.which("modprobe"):
        sh("modprobe", "-q", fs, check=False)
    with open("/proc/filesystems") as f:
        return "" if fs in f.read().split() else "this kernel has no " + fs


def _copy_at_rest(file, to):
    """What `file` holds at one moment, though somebody may write to it."""
    def unchanged():
        sh("cp", "--sparse=always", file, to)
        return sh("cmp", "-s", file, to, check=False).returncode == 0
    wait_until(unchanged, 60, "the disk does not come to rest", 0.02)


class Image:
    """`fs` is ext4, xfs or btrfs; `size_mb` is sparse. Mounted at self.path after construction.

    `as_disk`: for measurements. The image's blocks are written beforehand and the loop device goes past the page
    cache, so that a write costs what the disk below costs, and no allocation of a sparse file.
    `directory`: where the file lies; on a tmpfs a sync costs nothing."""

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
        self.cut_file = None  # what the disk holds after its next umount
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
        """A loop device on `file`; there is none at present."""
        self.loop = sh("losetup", "--find", "--show", *options, file).stdout.strip()
        current().loops.add(self.loop)

    def detach(self):
        if self.loop:
            sh("losetup", "-d", self.loop, check=False)
            current().loops.discard(self.loop)
            self.loop = None

    def mount(self, options=""):
        if self.aborted:
            # As a boot does. Without it the kernel forgets the unlinked files of a file system that had errors.
            done = sh("e2fsck", "-p", self.loop, check=False)
            if done.returncode & 4:  # as its text asks for, and docs/recovery.md says; what is left is judged by the test
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
        """Unmounts; not lazily, so that it fails when some process still uses the file system."""
        if not self.mounted():
            return
        # The kernel may still be dropping the descriptors of a process that was killed just now.
        errors = []

        def attempt():
            done = sh("umount", self.path, check=False)
            errors.append(done.stderr)
            return done.returncode == 0
        wait_until(attempt, 20, lambda: "umount %s: %s" % (self.path, errors[-1]), 0.02)
        # A mount namespace that is still dying may hold the old superblock; mounting would give that one back.
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
        """The plug is pulled: nothing written or synced from now on reaches the device."""
        if self.fs == "btrfs":
            self._keep_bytes()
            return
        fd = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.ioctl(fd, IOC_SHUTDOWN, struct.pack("I", NOLOGFLUSH))
        finally:
            os.close(fd)
        self.cuts += 1

    def _keep_bytes(self):
        self.cut_file = self.file + ".cut"
        _copy_at_rest(self.file, self.cut_file)
        self.cuts += 1

    def abort(self):
        """The journal has an error: ext4 turns itself read-only until it is unmounted."""
        sh("mount", "-o", "remount,abort", self.path)
        self.aborted = True

    def power_cut(self, also=lambda: None):
        """shutdown(), `also` (kill the programs), then the machine starts again: umount and mount, which replays the
        journal. Whoever uses the file system must be dead by then."""
        self.shutdown()
        also()
        self.umount()
        self.mount()

    def copy(self, name):
        """A second Image from the bytes on this one's device now, mounted beside it: the disk as a
        power cut at this moment would leave it. May be called while this one is mounted and in use, when nobody writes
        to it all the time."""
        return Image(name, self.fs, mount_options=self.mount_options, source=self.file)

    def check(self):
        """fsck, read only, of the unmounted image; raises when it is damaged."""
        self.umount()
        if self.fs == "ext4":
            sh("e2fsck", "-fn", self.loop)
        elif self.fs == "btrfs":
            sh("btrfs", "check", "--readonly", self.loop)
        else:
            sh("xfs_repair", "-n", self.loop)
        self.mount()

    def close(self):
        """Unmounts (lazily when it must) and removes everything. Idempotent."""
        if self.mounted() and sh("umount", self.path, check=False).returncode != 0:
            sh("umount", "-l", self.path, check=False)
        self.detach()
        for file in (self.file, self.cut_file):
            if file and os.path.exists(file):
                os.unlink(file)
        if os.path.isdir(self.path) and not self.mounted():
            os.rmdir(self.path)
