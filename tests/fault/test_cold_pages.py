"""Non-blocking writes: the pages of a file leave memory, programs write parts of them under each
`fetch=`, and the machine dies. Everything that a sync acknowledged is there (I1, I2)."""
import os

from harness.case import Case
from harness.rig import SMALL_LOG
from harness.run import wait_until

PAGE = 4096
PAGES = 400
POLICIES = ("blocking", "async-fg", "async-bg", "lazy")


class ColdPages(Case):

    def setUp(self):
        super().setUp()
        self.rig_ = self.rig(m=3, acks=2, size_mb=256, init_options=SMALL_LOG)
        self.content = bytearray(os.urandom(PAGE)) * PAGES
        path = self.rig_.backing_file("f")
        with open(path, "wb") as f:
            f.write(self.content)
            f.flush()
            os.fsync(f.fileno())

    def cool(self):
        """Takes the pages of the local file out of memory."""
        fd = os.open(self.rig_.backing_file("f"), os.O_RDONLY)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(fd)

    def write_parts(self, fd, count):
        for _ in range(count):
            length = self.rng.randint(1, 2500)
            at = self.rng.randrange(PAGES * PAGE - length)
            data = bytes([self.rng.randrange(256)]) * length
            os.pwrite(fd, data, at)
            self.content[at:at + length] = data

    def use(self):
        return self.rig_.mount_.status()["patches"]

    def was_missing(self):
        use = self.use()
        return use["fetched_pages"] + use["put_off_bytes"] + use["elided_pages"] > 0

    def test_each_policy_keeps_synced_writes_over_a_power_cut(self):
        for policy in POLICIES:
            with self.subTest(policy=policy):
                self.rig_.mount("fetch=" + policy).wait_whole()
                self.cool()
                fd = os.open(self.rig_.path + "/f", os.O_RDWR)
                self.write_parts(fd, 150)
                self.assertEqual(os.pread(fd, 3 * PAGE, 5 * PAGE), self.content[5 * PAGE:8 * PAGE])
                self.cool()
                self.write_parts(fd, 150)
                os.fsync(fd)
                self.assertEqual(self.use()["fetch"], policy)
                if policy in ("async-bg", "lazy"):
                    wait_until(self.was_missing, 60, "no page was missing: it proves nothing")
                os.close(fd)
                self.rng.choice(self.rig_.replicas).reboot()  # with all of its memory
                self.rig_.power_cut()
                done = self.rig_.volume.recover()
                self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
                with open(self.rig_.backing_file("f"), "rb") as f:
                    self.assertEqual(f.read(), self.content)

    def test_lazy_fetches_are_made_at_the_end(self):
        self.rig_.mount("fetch=lazy,patch_memory=64KiB").wait_whole()
        self.cool()
        fd = os.open(self.rig_.path + "/f", os.O_RDWR)
        self.write_parts(fd, 300)  # more than the limit: writers wait, and go on
        os.close(fd)
        self.assertLessEqual(self.use()["bytes"], (64 << 10) + (128 << 10))
        self.rig_.mount_.umount()
        with open(self.rig_.backing_file("f"), "rb") as f:
            self.assertEqual(f.read(), self.content)

    def test_lazy_fetch_is_made_in_time_for_a_checkpoint(self):
        self.rig_.mount("fetch=lazy,tau=2s").wait_whole()
        self.cool()
        fd = os.open(self.rig_.path + "/f", os.O_RDWR)
        self.write_parts(fd, 20)
        os.fsync(fd)
        issued = self.rig_.mount_.status()["issued"]
        wait_until(lambda: self.rig_.mount_.status()["checkpoint"] >= issued, 60, "no checkpoint covers the writes")
        self.assertEqual(self.use()["put_off_bytes"], 0)
        os.close(fd)
