"""A volume on btrfs, which writes overwritten data elsewhere: power cuts, and a disk that is
full."""
import errno
import os

from fault.test_space import fill
from harness.case import Case
from harness.image import missing
from harness.rig import PATIENT
from harness.run import sh

BLOCK = 4096


class Btrfs(Case):

    def setUp(self):
        super().setUp()
        if missing("btrfs"):
            self.skipTest(missing("btrfs"))
        self.rig_ = self.rig(m=2, acks=1, fs="btrfs", size_mb=400, init_options=PATIENT)
        self.blocks = {}

    def mounted(self):
        """Mounts; returns the volume's file, open."""
        self.rig_.mount(mode="replicated")
        return os.open(self.rig_.file("f"), os.O_RDWR | os.O_CREAT | os.O_SYNC, 0o600)

    def overwrite(self, fd, first, count):
        """Writes the number of each write to its block. Stops at the first one refused for lack of
        room; returns how many were acknowledged."""
        for i in range(first, first + count):
            try:
                os.pwrite(fd, b"%07d\n" % i * (BLOCK // 8), i % 16 * BLOCK)
            except OSError as error:
                self.assertEqual(error.errno, errno.ENOSPC)
                return i - first
            self.blocks[i % 16] = i
        return count

    def lacking(self, names=None):
        """Returns a text for each acknowledged block or file that the backing directory lacks.
        `names`: {name: content}."""
        path = self.rig_.backing_file("f")
        data = b""
        if os.path.exists(path):
            with open(path, "rb") as f:
                data = f.read()
        found = ["block %d" % block for block, number in self.blocks.items()
                 if data[block * BLOCK:(block + 1) * BLOCK] != b"%07d\n" % number * (BLOCK // 8)]
        for name, text in (names or {}).items():
            path = self.rig_.backing_file(name)
            if not os.path.exists(path):
                found.append(name)
                continue
            with open(path, "rb") as f:
                if f.read() != text:
                    found.append("content of " + name)
        return found

    def check(self, names=None):
        self.assertEqual(self.lacking(names), [])

    def healthy(self):
        status = self.rig_.mount_.status()
        self.assertEqual((status["mode"], status["failure"]), ("replicated", ""), status)

    def recovered(self):
        done = self.rig_.volume.recover()
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_nothing_is_served_below_a_subvolume(self):
        """No name can be moved or linked across its border, and recovery does not look there."""
        inner = self.rig_.backing_file("inner")
        sh("btrfs", "subvolume", "create", inner)
        with open(os.path.join(inner, "f"), "w") as f:
            f.write("x")
        self.rig_.mount(mode="replicated")
        for path in ("inner", "inner/f"):
            with self.assertRaises(OSError) as caught:
                os.stat(self.rig_.file(path))
            self.assertEqual(caught.exception.errno, errno.EXDEV)
        self.healthy()

    def test_power_cuts(self):
        rig, names, number, lacked = self.rig_, {}, 0, 0
        for cut in range(self.count(4, 40)):
            fd = self.mounted()
            for i in range(40):
                self.assertEqual(self.overwrite(fd, number, 10), 10)
                number += 10
                new = os.open(rig.file("new"), os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_SYNC, 0o600)
                os.write(new, b"%d" % number)
                os.rename(rig.file("new"), rig.file("n%d" % (i % 20)))
                os.fsync(new)
                os.close(new)
                names["n%d" % (i % 20)] = b"%d" % number
            os.close(fd)
            if cut:  # at the first cut the disk has only what a checkpoint put there
                rig.disk_ahead(self.rng)
            rig.power_cut()
            lacked += bool(self.lacking(names))
            self.recovered()
            self.check(names)
        self.assertEqual(rig.image.cuts, self.count(4, 40))
        self.report("%d power cuts; after %d of them the disk lacked something acknowledged before recovery",
                    rig.image.cuts, lacked)
        self.assertGreater(lacked, 0, "no cut lost anything: they prove nothing")
        rig.image.check()

    def test_full_disk_is_enospc_before_the_acknowledgement(self):
        rig = self.rig_
        fd = self.mounted()
        self.assertEqual(self.overwrite(fd, 0, 16), 16)
        with open(rig.file("fill"), "wb", buffering=0) as f, self.assertRaises(OSError) as refused:
            while True:
                f.write(self.rng.randbytes(1 << 20))
        self.assertEqual(refused.exception.errno, errno.ENOSPC)
        self.assertEqual(fill(rig.file("more"), 64 << 20)[1], "ENOSPC")
        self.healthy()
        os.unlink(rig.file("more"))
        self.report("%d of 300 overwrites were taken on the full disk", self.overwrite(fd, 100, 300))
        self.healthy()
        os.unlink(rig.file("fill"))  # the volume is full, not broken
        self.assertEqual(self.overwrite(fd, 400, 16), 16)
        os.close(fd)
        rig.power_cut()
        self.recovered()
        self.check()
        rig.image.check()

    def test_recovery_on_a_disk_filled_by_other_programs(self):
        """The ballast holds enough room for recovery, and recovery stores only into file pages that
        have room."""
        rig = self.rig_
        fd = self.mounted()
        self.assertEqual(self.overwrite(fd, 0, 16), 16)
        os.close(fd)
        with open(rig.backing_file("fill"), "wb", buffering=0) as f, self.assertRaises(OSError):
            while True:
                f.write(self.rng.randbytes(1 << 20))
        rig.mount_.kill()
        self.recovered()
        self.check()
