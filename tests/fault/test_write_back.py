"""Data that the kernel cannot write back, on a disk without free blocks whose journal still works.
The kernel reports that once to every descriptor, and calls the data clean."""
import ctypes
import fcntl
import os
import struct

from harness.case import Case
from harness.image import Image
from harness.rig import PATIENT
from harness.run import HarnessError, current, sh

FS_IOC_FIEMAP = 0xC020660B
FIEMAP_HEAD, FIEMAP_EXTENT, MAX_EXTENTS = "=QQLLLL", "=QQQ", 64
EXTENT_BYTES = 56
FALLOC_PUNCH_HOLE = 3  # FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE

_libc = ctypes.CDLL(None, use_errno=True)


def extents(path):
    """Returns [(byte on the device, bytes)] of the file."""
    head = struct.calcsize(FIEMAP_HEAD)
    buffer = bytearray(struct.pack(FIEMAP_HEAD, 0, 2**63, 0, 0, MAX_EXTENTS, 0) + bytes(EXTENT_BYTES * MAX_EXTENTS))
    with open(path, "rb") as f:
        fcntl.ioctl(f, FS_IOC_FIEMAP, buffer)
    count = struct.unpack_from(FIEMAP_HEAD, buffer)[3]
    return [struct.unpack_from(FIEMAP_EXTENT, buffer, head + EXTENT_BYTES * i)[1:] for i in range(count)]


class ThinDisk:
    """An ext4 on a tmpfs that is just large enough for it."""

    SIZE_MB = 128
    _serial = 0

    def __init__(self):
        ThinDisk._serial += 1
        self.pool = os.path.join(current().dir, "pool%d" % ThinDisk._serial)
        self.full = os.path.join(self.pool, "full")
        self.image = None
        os.mkdir(self.pool)
        sh("mount", "-t", "tmpfs", "-o", "size=%dm" % (self.SIZE_MB + 16), "tmpfs", self.pool)
        self.image = Image("thin", size_mb=self.SIZE_MB, directory=self.pool, mkfs_options=(
            "-b", "4096", "-J", "size=8", "-E", "nodiscard,lazy_itable_init=0,lazy_journal_init=0"))
        with open(self.image.file, "r+b") as f:
            os.posix_fallocate(f.fileno(), 0, self.SIZE_MB << 20)

    def lose_blocks_of(self, path):
        """Makes later writes over the file reach no block."""
        with open(self.image.file, "r+b") as f:
            for at, size in extents(path):
                if _libc.fallocate(f.fileno(), FALLOC_PUNCH_HOLE, ctypes.c_long(at), ctypes.c_long(size)) != 0:
                    raise HarnessError("fallocate: " + os.strerror(ctypes.get_errno()))
        with open(self.full, "wb", buffering=0) as f:
            try:
                while True:
                    f.write(bytes(4096))
            except OSError:
                pass

    def mend(self):
        """Gives the pool room again."""
        os.unlink(self.full)

    def close(self):
        sh("umount", self.pool)
        os.rmdir(self.pool)


class LostWriteBack(Case):

    OLD, NEW = b"o" * (1 << 20), b"N" * (1 << 20)

    def setUp(self):
        super().setUp()
        self.disk = self.own(ThinDisk())
        self.rig_ = self.rig(m=2, acks=1, image=self.disk.image,
                             init_options=(*PATIENT, "--stable-log", "21MiB", "--ballast", "1MiB"))
        self.rig_.mount(mode="replicated")
        with open(self.rig_.file("f"), "wb") as f:
            f.write(self.OLD)
            os.fsync(f.fileno())
        self.rig_.mount_.umount()
        self.mount = self.rig_.mount(mode="replicated")
        fd = os.open(self.rig_.file("f"), os.O_RDWR | os.O_SYNC)
        self.rig_.sync_disk()
        self.disk.lose_blocks_of(self.rig_.backing_file("f"))
        os.pwrite(fd, self.NEW, 0)  # acknowledged
        self.mount.wait_status(lambda s: s["applied"] == s["issued"], 30, "everything is applied")
        os.close(fd)

    def everything_is_there(self):
        """Checks the data after a recovery, and again with an empty page cache."""
        self.disk.mend()
        self.mount = self.rig_.mount(mode="replicated")
        with open(self.rig_.file("f"), "rb") as f:
            self.assertTrue(f.read() == self.NEW, "acknowledged data is missing")
        self.mount.umount()
        self.rig_.image.umount()
        self.rig_.image.mount()
        with open(self.rig_.backing_file("f"), "rb") as f:
            self.assertTrue(f.read() == self.NEW, "acknowledged data is not on the disk")

    def test_error_reported_to_the_unmount(self):
        """The mount's last sync gets the error; no later sync does."""
        with self.assertRaises(HarnessError):
            self.mount.umount()
        self.everything_is_there()

    def test_volume_fails_and_names_the_disk_below(self):
        """The file system has blocks for the data; the disk below it has none. No program could
        have had ENOSPC before."""
        failure = self.mount.wait_mode("failed", 60)["failure"]
        self.assertIn("No space left on device (the disk below the file system is full", failure)
        self.mount.kill()
        self.everything_is_there()

    def test_error_reported_to_another_process(self):  # R16
        """Another process syncs the file system, and the mount dies before it does."""
        with self.assertRaises(OSError):
            self.rig_.sync_disk()
        self.mount.kill()
        self.everything_is_there()

    def test_error_reported_to_no_process(self):  # R14
        """The recovery's own sync gets the error, and the recovery refuses. The next one must not
        take the data for synced."""
        self.mount.kill()
        done = self.rig_.volume.recover()
        self.assertEqual(done.returncode, 6, done.stdout + done.stderr)
        self.everything_is_there()


class DirtyPages(Case):

    def test_mount_has_the_limits_of_a_disk(self):
        """Stores through shared maps are not held to a hundredth of what a disk may have dirty."""
        rig = self.rig(m=1, acks=1)
        rig.mount()
        device = os.stat(rig.path).st_dev
        settings = "/sys/class/bdi/%d:%d" % (os.major(device), os.minor(device))
        for name, value in (("max_ratio", "100"), ("strict_limit", "0")):
            with open(os.path.join(settings, name)) as f:
                self.assertEqual(f.read().strip(), value, name)
