"""Data that ext4 throws away without an error of any sync. At write-back ext4 cannot find the
blocks, because a block of its own is damaged or cannot be read."""
import os
import re

from harness.case import Case
from harness.model_disk import ModelDisk
from harness.proc import Proc
from harness.rig import SMALL_LOG
from harness.run import HarnessError, binary, current, sh, wait_until

BLOCK = 4096
SYS_SYNCFS = 306


def in_syncfs(tracer):
    """Returns whether a program that `tracer` (strace) runs waits at the entry of syncfs(2)."""
    try:
        with open("/proc/%d/task/%d/children" % (tracer, tracer)) as f:
            children = f.read().split()
        for child in children:
            for thread in os.listdir("/proc/%s/task" % child):
                with open("/proc/%s/task/%s/syscall" % (child, thread)) as f:
                    if f.read().startswith("%d " % SYS_SYNCFS):
                        return True
    except (FileNotFoundError, ProcessLookupError):  # one of them has just ended
        pass
    return False


class BadDisk(ModelDisk):
    """An ext4 on a disk of which one block can be made unreadable, or damaged."""

    _made = 0

    def __init__(self):
        BadDisk._made += 1
        self._unreadable = os.path.join(current().dir, "bad%d.unreadable" % BadDisk._made)
        self._good = None
        super().__init__("--flush-ms", "0", "--unreadable", self._unreadable, size_mb=256, mkfs_options=("-b", str(BLOCK)))

    def leaf_of(self, path):
        """Returns the block that maps the file's data; all of its changes are in its place on the
        disk."""
        out = sh("debugfs", "-R", "dump_extents <%d>" % os.stat(path).st_ino, self.image.loop).stdout
        found = re.search(r"^\s*0/\s*1\s+1/\s*1\s+\d+\s*-\s*\d+\s+(\d+)", out, re.MULTILINE)
        if not found:
            raise HarnessError("the file has no such block:\n" + out)
        sh("fsfreeze", "-f", self.image.path)  # writes the journal's content to its place
        sh("fsfreeze", "-u", self.image.path)
        return int(found.group(1))

    def make_unreadable(self, block):
        with open(self._unreadable + ".new", "w") as f:
            f.write("%d %d\n" % (block * BLOCK, BLOCK))
        os.rename(self._unreadable + ".new", self._unreadable)
        self._forget(block)

    def damage(self, block):
        with open(self.image.file, "r+b") as f:
            f.seek(block * BLOCK)
            self._good = (block, f.read(BLOCK))
            f.seek(block * BLOCK)
            f.write(b"Z" * BLOCK)
        self._forget(block)

    def _forget(self, block):
        """Drops the kernel's copy of the block. Its knowledge of the file's holes stays."""
        fd = os.open(self.image.loop, os.O_RDONLY)
        os.posix_fadvise(fd, block * BLOCK, BLOCK, os.POSIX_FADV_DONTNEED)
        os.close(fd)

    def mend(self):
        """Provides a new disk with the old one's bytes, or repairs the damage; the file system is
        unmounted."""
        if os.path.exists(self._unreadable):
            os.unlink(self._unreadable)
        if self._good:
            with open(self.image.file, "r+b") as f:
                f.seek(self._good[0] * BLOCK)
                f.write(self._good[1])


class ThrownAway(Case):

    PIECES, SPACING = 50, 32  # blocks
    PAUSE_US = 5_000_000
    NEW = b"N" * BLOCK

    def setUp(self):
        super().setUp()
        self.disk = self.own(BadDisk())

    def make(self, *init_options):
        """Makes a mounted volume with a file of many pieces."""
        self.rig_ = self.rig(m=2, acks=1, image=self.disk.image, init_options=(*SMALL_LOG, *init_options))
        path = self.rig_.backing_file("f")
        with open(path, "wb") as f:
            for i in range(self.PIECES):
                f.seek(i * self.SPACING * BLOCK)
                f.write(b"o" * BLOCK)
            f.flush()
            os.fsync(f.fileno())
        self.leaf = self.disk.leaf_of(path)
        self.mount = self.rig_.mount(mode="replicated")

    def write(self):
        """Writes into a hole; the write is acknowledged."""
        fd = os.open(self.rig_.file("f"), os.O_RDWR | os.O_SYNC)
        os.pwrite(fd, self.NEW, BLOCK)
        os.close(fd)

    def everything_is_there(self):
        """Checks the data after the repair and a recovery, and again with an empty page cache."""
        self.rig_.image.umount()
        self.disk.mend()
        self.rig_.image.mount()
        self.mount = self.rig_.mount(mode="replicated")
        self.check(self.rig_.file("f"))
        self.mount.umount()
        self.rig_.image.umount()
        self.rig_.image.mount()
        self.check(self.rig_.backing_file("f"))

    def check(self, path):
        with open(path, "rb") as f:
            f.seek(BLOCK)
            self.assertTrue(f.read(BLOCK) == self.NEW, "acknowledged data is not in " + path)

    def checkpoint(self, make_bad):
        self.make("--tau", "1s")
        make_bad(self.leaf)
        self.write()
        failure = self.mount.wait_mode("failed")["failure"]
        self.assertIn("thrown data away", failure)
        with self.assertRaisesRegex(HarnessError, "salius-mount ended with"):
            self.mount.umount()
        self.everything_is_there()

    def test_checkpoint_when_a_block_is_unreadable(self):
        self.checkpoint(self.disk.make_unreadable)

    def test_checkpoint_when_a_block_is_damaged(self):
        self.checkpoint(self.disk.damage)

    def test_recovery(self):
        """Its sync throws away the data that it replayed."""
        self.make("--tau", "60s")
        self.write()
        self.rig_.power_cut()
        log = os.path.join(current().dir, "recover.log")
        recovery = Proc([
            "strace", "-f", "-qq", "-o", "/dev/null", "-e", "trace=syncfs",
            "-e", "inject=syncfs:delay_enter=%d" % self.PAUSE_US, binary("salius-recover"), self.rig_.backing,
        ], log, netns=self.rig_.volume.netns)
        self.addCleanup(recovery.kill)
        wait_until(lambda: in_syncfs(recovery.pid), 30, lambda: "no sync:\n" + recovery.tail())
        self.disk.make_unreadable(self.leaf)
        if not in_syncfs(recovery.pid):
            raise HarnessError("this machine is too slow: the sync began before its disk was bad")
        self.assertEqual(recovery.wait(60), 6, recovery.tail())
        self.assertIn("thrown data away", recovery.tail())
        self.everything_is_there()

    def test_fsync_of_a_bulk_file(self):
        """The kernel wrote the data back, in vain, before the fsync."""
        self.make("--bulk-limit", "64KiB", "--tau", "60s")
        self.disk.make_unreadable(self.leaf)
        with open(self.rig_.file("f"), "r+b", buffering=0) as f:
            f.seek(BLOCK)
            f.write(self.NEW * (self.SPACING - 1))
            self.rig_.sync_disk()
            with self.assertRaises(OSError):
                os.fsync(f.fileno())
        self.assertIn("thrown data away", self.mount.wait_mode("failed")["failure"])

    def test_stable_log(self):
        """Once ext4 has found an error, nothing in the volume's own log counts as safe either."""
        self.make("--tau", "60s")
        for replica in self.rig_.replicas:
            replica.kill()
        self.write()
        self.mount.wait_mode("local")
        found = "/sys/fs/ext4/%s/" % os.path.basename(self.disk.image.loop)
        with open(found + "trigger_fs_error", "w") as f:
            f.write("test")

        def counted():
            with open(found + "errors_count") as f:
                return f.read() == "1\n"
        wait_until(counted, 20, "ext4 does not count its error")
        with self.assertRaises(OSError):
            self.write()
        self.assertIn("1 errors counted", self.mount.wait_mode("failed")["failure"])
