"""A volume on btrfs, which writes elsewhere what is overwritten: power cuts, and a disk that is full."""
import errno
import os
import shutil
import subprocess

from fault.test_space import fill
from harness.case import Case

BLOCK = 4096


class Btrfs(Case):

    def setUp(self):
        super().setUp()
        if shutil.which("modprobe"):
            subprocess.run(["modprobe", "-q", "btrfs"])
        with open("/proc/filesystems") as f:
            if "btrfs" not in f.read().split():
                self.skipTest("this kernel has no btrfs")
        self.rig_ = self.rig(m=2, acks=1, fs="btrfs", size_mb=400)

    def overwrite(self, fd, first, count):
        """Acknowledged; block i holds the number of the last write that went there."""
        for i in range(first, first + count):
            os.pwrite(fd, b"%07d\n" % i * (BLOCK // 8), i % 16 * BLOCK)
        return {i % 16: i for i in range(first, first + count)}

    def check(self, path, blocks):
        with open(path, "rb") as f:
            for block, number in blocks.items():
                f.seek(block * BLOCK)
                self.assertEqual(f.read(BLOCK), b"%07d\n" % number * (BLOCK // 8), "block %d" % block)

    def healthy(self):
        status = self.rig_.mount_.status()
        self.assertEqual((status["mode"], status["failure"]), ("replicated", ""), status)

    def recovered(self):
        done = self.rig_.volume.recover()
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_power_cuts(self):
        rig, names, blocks, number = self.rig_, {}, {}, 0
        for cut in range(self.count(4, 40)):
            rig.mount(mode="replicated")
            fd = os.open(rig.file("f"), os.O_RDWR | os.O_CREAT | os.O_SYNC, 0o600)
            for i in range(40):
                blocks.update(self.overwrite(fd, number, 10))
                number += 10
                new = os.open(rig.file("new"), os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_SYNC, 0o600)
                os.write(new, b"%d" % number)
                os.rename(rig.file("new"), rig.file("n%d" % (i % 20)))
                os.fsync(new)
                os.close(new)
                names["n%d" % (i % 20)] = b"%d" % number
            os.close(fd)
            rig.disk_ahead(self.rng)
            rig.power_cut()
            self.recovered()
            self.check(rig.backing_file("f"), blocks)
            for name, text in names.items():
                with open(rig.backing_file(name), "rb") as f:
                    self.assertEqual(f.read(), text, name)
        self.assertEqual(rig.image.cuts, self.count(4, 40))
        rig.image.check()

    def test_full_disk_is_enospc_and_overwrites_go_on(self):
        rig = self.rig_
        rig.mount(mode="replicated")
        fd = os.open(rig.file("f"), os.O_RDWR | os.O_CREAT | os.O_SYNC, 0o600)
        self.overwrite(fd, 0, 16)
        with open(rig.file("fill"), "wb", buffering=0) as f, self.assertRaises(OSError) as refused:
            while True:
                f.write(self.rng.randbytes(1 << 20))
        self.assertEqual(refused.exception.errno, errno.ENOSPC)
        self.assertEqual(fill(rig.file("more"), 64 << 20)[1], "ENOSPC")
        self.healthy()
        try:
            blocks = self.overwrite(fd, 100, 300)
        except OSError as error:  # not one more block: it was said before the acknowledgement
            self.assertEqual(error.errno, errno.ENOSPC)
            blocks = {}
        self.healthy()
        os.close(fd)
        rig.power_cut()
        self.recovered()
        self.check(rig.backing_file("f"), blocks)
        rig.image.check()

    def test_recovery_on_a_disk_that_others_filled(self):
        """There is room for it in the ballast, and no page of a file is stored into that has none."""
        rig = self.rig_
        rig.mount(mode="replicated")
        fd = os.open(rig.file("f"), os.O_RDWR | os.O_CREAT | os.O_SYNC, 0o600)
        blocks = self.overwrite(fd, 0, 16)
        os.close(fd)
        with open(rig.backing_file("fill"), "wb", buffering=0) as f, self.assertRaises(OSError):
            while True:
                f.write(self.rng.randbytes(1 << 20))
        rig.mount_.kill()
        self.recovered()
        self.check(rig.backing_file("f"), blocks)
