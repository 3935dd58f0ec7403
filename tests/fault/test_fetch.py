"""Power cuts while writes of parts of cold pages are not applied, with every fetch policy: no extent
is lost. The disk is a model that takes long for each page. Then a page that cannot be read at all.

Synchronous writes wait for replicas only, so they are acknowledged long before their pages have been
read."""
import contextlib
import errno
import os
import random
import time

from fault.test_write_back import extents
from harness import fetch
from harness.case import Case
from harness.model_disk import ModelDisk
from harness.rig import PATIENT
from harness.run import scratch, wait_until

PAGE = 4096
IOPS = 20  # far fewer than the writes of a round
PAGES = 2048
SMALL_MIB, BIG_MIB = 8, 64
BIG_WRITE = 2048


class Model:
    """A file, its content after the acknowledged operations, and the operations since."""

    def __init__(self, content):
        self.content = content
        self.later = []
        self.size = len(content)  # after all operations

    def do(self, fd, operation):
        """Runs one operation, ("write", offset, data) or ("truncate", size)."""
        self.later.append(operation)
        if operation[0] == "write":
            os.pwrite(fd, operation[2], operation[1])
            self.size = max(self.size, operation[1] + len(operation[2]))
        else:
            os.ftruncate(fd, operation[1])
            self.size = operation[1]

    def ack(self):
        for operation in self.later:
            self._apply(operation)
        self.later = []

    def _apply(self, operation):
        if operation[0] == "write":
            _, offset, data = operation
            self.content += bytes(max(0, offset - len(self.content)))
            self.content[offset:offset + len(data)] = data
        elif operation[1] < len(self.content):
            del self.content[operation[1]:]
        else:
            self.content += bytes(operation[1] - len(self.content))

    def take(self, found):
        """Returns how many operations after the acknowledged ones `found` has; None: it is no state
        of the file that a crash may leave. Afterwards the file is `found`."""
        for more in range(len(self.later) + 1):
            if self.content == found:
                self.later, self.size = [], len(found)
                return more
            if more < len(self.later):
                self._apply(self.later[more])
        return None

    def difference(self, found):
        """Returns words about the first byte that differs from the newest content."""
        first = next((i for i, (a, b) in enumerate(zip(self.content, found)) if a != b), None)
        return "sizes %d and %d, first difference at %s" % (len(self.content), len(found), first)


def draw(rng, size):
    """Draws an operation on a file of `size` bytes: mostly a part of a page."""
    kind = rng.random()
    if kind < 0.04:
        return "truncate", size - rng.randrange(1, 3 * PAGE)
    if kind < 0.08:
        return "truncate", size + rng.randrange(1, 3 * PAGE)
    if kind < 0.16:
        data = rng.randbytes(rng.randrange(1, PAGE))
        return "write", size, data
    if kind < 0.24:
        return "write", rng.randrange(size // PAGE - 2) * PAGE, rng.randbytes(PAGE)
    # Few pages get many writes, so that some overlap.
    pages = 16 if kind < 0.4 else size // PAGE - 2
    return "write", rng.randrange(pages * PAGE), rng.randbytes(rng.choice((1, 64, 512, 1024, 2048, PAGE + 100)))


class Cuts(Case):

    def make(self, size_mb=512, **rig):
        self.disk = self.own(ModelDisk("--model", "iops", "--iops", str(IOPS), size_mb=size_mb))
        with self.disk.at_once():
            self.rig_ = self.rig(image=self.disk.image, **rig)
        return self.rig_

    def cold_file(self, rng, size):
        """Makes a file of the backing directory; the volume is not mounted."""
        content = bytearray(rng.randbytes(size))
        with self.disk.at_once():
            with open(self.rig_.backing_file("f"), "wb") as f:
                f.write(content)
                os.fsync(f.fileno())
        return content

    def forget(self):
        """Has the disk's file system forget all pages."""
        self.rig_.image.umount()
        self.rig_.image.mount()

    def mount(self, options):
        with self.disk.at_once():
            self.forget()
            return self.rig_.mount(",".join(filter(None, ("recover=auto", options))), mode="replicated")

    def cut(self, fate=lambda: None):
        """Cuts the power, calls `fate`, and recovers. Returns the seconds of salius-recover and the
        file's content."""
        with self.disk.at_once():
            self.rig_.power_cut(also=lambda: os.close(self.fd))
            fate()
            begin = time.monotonic()
            done = self.rig_.volume.recover(timeout=600)
            took = time.monotonic() - begin
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            with open(self.rig_.backing_file("f"), "rb") as f:
                return took, f.read()

    def run_policy(self, policy, options):
        rig = self.make(m=3, acks=2, init_options=PATIENT)
        model = Model(self.cold_file(self.rng, PAGES * PAGE))
        unapplied, kept, rebooted, operations = [], [], 0, 0
        modes = set()  # local where the machine paused: the file must be right in that mode too
        for _ in range(self.count(2, 20)):
            mount = self.mount(options)
            self.fd = os.open(rig.file("f"), os.O_RDWR)
            for _ in range(self.rng.randint(60, 150)):
                model.do(self.fd, draw(self.rng, model.size))
                operations += 1
                if self.rng.random() < 0.3:
                    os.fsync(self.fd)
                    model.ack()
            status = mount.status()
            modes.add(status["mode"])
            unapplied.append(status["issued"] - status["applied"])
            if self.rng.random() < 0.3:
                with self.disk.at_once():
                    rig.disk_ahead(self.rng)
            lost = self.rng.choice([None, *rig.replicas])
            rebooted += lost is not None
            _, found = self.cut(lost.reboot if lost else lambda: None)
            more = model.take(found)
            self.assertIsNotNone(more, "fetch=%s: %s" % (policy, model.difference(found)))
            kept.append(more)
        if policy != fetch.BLOCKING:
            self.assertGreater(sum(unapplied), 0, "everything was applied: the cuts prove nothing")
        self.report("fetch=%s: %d operations; unapplied records at the cuts: %s; operations kept that no sync covered: %s; "
                    "members' memory lost: %d times; modes: %s", policy, operations, unapplied, kept, rebooted, sorted(modes))
        with self.disk.at_once():
            rig.close()
            self.disk.close()

    def test_power_cut_with_unapplied_extents_loses_no_synced_write(self):
        for policy, options in fetch.options().items():
            with self.subTest(policy):
                self.run_policy(policy, options)
        if fetch.unknown():
            self.report(fetch.unknown())

    def recovery_of(self, mib, options, applied):
        """Returns (seconds of a recovery of `mib` MiB of writes of parts of pages, records unapplied
        at the cut). `applied`: the backing file had them all before."""
        rig = self.make(2048, m=2, acks=2, memory="352MiB", init_options=("--delta", "2s", "--log-max", "256MiB", "--tau", "600s"))
        rng = random.Random(1)
        model = Model(self.cold_file(rng, 2 * mib << 20))
        mount = self.mount(options)
        self.fd = os.open(rig.file("f"), os.O_RDWR)
        data = rng.randbytes(BIG_WRITE)
        for number in range((mib << 20) // BIG_WRITE):
            model.do(self.fd, ("write", number * 2 * BIG_WRITE + rng.randrange(BIG_WRITE), data))
            if number % 256 == 255:
                os.fsync(self.fd)
                model.ack()
        status = mount.status()
        if applied:
            with self.disk.at_once():
                wait_until(lambda: mount.status()["applied"] >= status["issued"], 600, "not all is applied", 0.05)
            status = mount.status()
        took, found = self.cut()
        self.assertEqual(model.take(found), 0, model.difference(found))
        with self.disk.at_once():
            rig.close()
            self.disk.close()
        return took, status["issued"] - status["applied"]

    def test_recovery_of_many_unapplied_extents(self):
        """64 MiB with --long, which also reports the time with extents that were applied."""
        mib = self.count(SMALL_MIB, BIG_MIB)
        options = list(fetch.options().values())[-1]
        took, unapplied = self.recovery_of(mib, options, applied=False)
        self.assertGreater(unapplied, 0)
        self.report("%d MiB, %d records of them unapplied: recovered in %.2f s", mib, unapplied, took)
        if self.long_run:
            before, unapplied = self.recovery_of(mib, options, applied=True)
            self.assertEqual(unapplied, 0)
            self.report("all applied before: %.2f s", before)


class BadPage(Case):
    """A page of the local file cannot be read when a part of it is written (I8)."""

    PAGES, BAD = 8, 3

    def make(self, options):
        self.unreadable = scratch("unreadable")
        self.disk = self.own(ModelDisk("--flush-ms", "0", "--unreadable", self.unreadable, size_mb=256,
                                       mkfs_options=("-b", str(PAGE))))
        self.rig_ = self.rig(m=2, acks=1, image=self.disk.image, init_options=PATIENT)
        self.content = bytearray(self.rng.randbytes(self.PAGES * PAGE))
        path = self.rig_.backing_file("f")
        with open(path, "wb") as f:
            f.write(self.content)
            f.flush()
            os.fsync(f.fileno())
        with open(self.unreadable, "w") as f:
            f.write("%d %d" % (extents(path)[0][0] + self.BAD * PAGE, PAGE))
        self.rig_.image.umount()  # it forgets all pages
        self.rig_.image.mount()
        self.mount = self.rig_.mount(",".join(("recover=auto", options)), mode="replicated")
        self.fd = os.open(self.rig_.file("f"), os.O_RDWR)

    def write(self, page):
        """Writes a part of the page."""
        at = page * PAGE + 100
        data = self.rng.randbytes(1000)
        os.pwrite(self.fd, data, at)
        self.content[at:at + len(data)] = data

    def refused(self, call, *args):
        with self.assertRaises(OSError) as refused:
            call(*args)
        self.assertEqual(refused.exception.errno, errno.EIO)

    def run_blocking(self):
        """The writer gets the error, as on other file systems; the volume goes on."""
        self.refused(self.write, self.BAD)
        self.write(self.BAD + 2)
        os.fsync(self.fd)
        status = self.mount.status()
        self.assertEqual((status["mode"], status["failure"]), ("replicated", ""), status)

    def run_other(self):
        """The write has returned, so the next sync gets the error, and the volume says why."""
        self.write(self.BAD)
        with contextlib.suppress(OSError):  # the volume may have failed by then
            os.fchmod(self.fd, 0o640)  # a lazy fetch is not put off any more
        failure = self.mount.wait_mode("failed", 60)["failure"]
        self.assertIn("could not be applied", failure)
        for _ in range(2):
            self.refused(os.fsync, self.fd)

    def test_failed_fetch_reaches_the_next_sync_and_loses_no_write(self):
        for policy, options in fetch.options().items():
            with self.subTest(policy):
                self.make(options)
                if policy == fetch.BLOCKING:
                    self.run_blocking()
                else:
                    self.run_other()
                os.unlink(self.unreadable)  # a new disk, with the old one's bytes
                self.rig_.power_cut(also=lambda: os.close(self.fd))
                done = self.rig_.volume.recover()
                self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
                with open(self.rig_.backing_file("f"), "rb") as f:
                    self.assertEqual(f.read(), self.content)
                self.rig_.close()
                self.disk.close()
