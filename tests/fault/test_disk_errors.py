"""Single calls of the mount that the disk refuses (I8). Before the acknowledgement the call is
refused; after it the volume fails.

strace injects the errors into the daemon's own system calls, one call of a thread. Later calls
would succeed. So a volume that retries, or continues with data that it lacks on the disk, is found
out.
"""
import errno
import os
import time
from types import SimpleNamespace

from campaign.fault_disk import DiskErrors, DiskStuck, injected, path_of
from harness import ops
from harness.case import Case
from harness.proc import attach_strace
from harness.run import HarnessError, current, wait_until

WRITES, SYNCS = DiskErrors.CALLS["write"], DiskErrors.CALLS["sync"]
ERRORS = ("EIO", "ENOSPC")


class OneCall(Case):

    def make(self, tau="60s", delta="50ms"):
        self.rig_ = self.rig(m=2, acks=1, init_options=("--log-max", "16MiB", "--tau", tau, "--delta", delta,
                                                        "--bulk-limit", "64KiB"))
        self.mount = self.rig_.mount(mode="replicated")
        self.writer = ops.OpWriter(self.rig_.path, gated=True)
        self.addCleanup(self.writer.kill)
        self.writer.do(20)
        self.mount.wait_status(lambda s: s["applied"] == s["issued"], 20, "everything applied")

    def refuse(self, calls, error, *paths):
        """Makes each thread's next call of `calls` on one of `paths` in the backing directory
        fail."""
        self.calls = os.path.join(current().dir, "refused-%d.calls" % self.mount.pid)
        self.tracer = attach_strace(self.mount.pid, calls, self.calls, "error=%s:when=1" % error,
                                    [self.rig_.backing_file(path) for path in paths])
        self.addCleanup(self.tracer.kill)

    def hit(self):
        """Returns the file of the call that failed; there must be one."""
        hits = injected(self.calls)
        self.assertEqual(len(hits), 1, hits)
        return os.path.relpath(path_of(hits[0]), self.rig_.backing)

    def local(self):
        for i in range(self.rig_.m):
            self.rig_.net.drop(i)

    def write_until_refused(self):
        end = time.monotonic() + 30
        try:
            while time.monotonic() < end:
                self.writer.do(1)
            self.fail("the volume continues; hit: %s" % injected(self.calls))
        except HarnessError:
            self.assertIn(self.writer.wait_failed(), ("EIO", "EROFS"))

    def the_volume_fails_and_nothing_is_lost(self, what, failure):
        """Checks that the call on the file `what` failed the volume, and that the failure names
        `failure`. Afterwards nothing is acknowledged."""
        self.write_until_refused()
        self.assertIn(failure, self.mount.wait_mode("failed")["failure"])
        self.assertEqual(self.hit(), what)
        with self.assertRaises(OSError):
            with open(self.rig_.file("late"), "wb", buffering=0) as f:
                f.write(b"late")
                os.fsync(f.fileno())
        for i in range(self.rig_.m):
            self.rig_.net.heal(i)
        self.recovered()

    def recovered(self):
        self.writer.kill()
        self.rig_.power_cut()
        done = self.rig_.volume.recover()
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        ops.check(self.rig_.backing, self.writer.ledger)

    def test_note_of_a_checkpoint(self):
        for error in ERRORS:
            self.make(tau="1s")
            self.refuse(WRITES, error, ".salius/state")
            self.the_volume_fails_and_nothing_is_lost(".salius/state", "the state file could not be written")

    def test_note_of_mode_local(self):
        for error in ERRORS:
            self.make()
            self.refuse(WRITES, error, ".salius/state")
            self.local()
            self.the_volume_fails_and_nothing_is_lost(".salius/state", "the state file could not be written")

    def test_append_to_the_stable_log(self):
        for error in ERRORS:
            self.make()
            self.refuse(WRITES, error, ".salius/stable.log")
            self.local()
            self.the_volume_fails_and_nothing_is_lost(".salius/stable.log", "stable log")

    def test_acknowledged_record_that_cannot_be_applied(self):
        for error in ERRORS:
            self.make()
            self.refuse(WRITES, error, "slots")
            self.the_volume_fails_and_nothing_is_lost("slots", "could not be applied")

    def test_sync_of_a_checkpoint(self):
        for error in ERRORS:
            self.make(tau="1s")
            self.refuse("syncfs", error)
            self.the_volume_fails_and_nothing_is_lost(".", "the backing file system could not be synced")

    def test_refused_bulk_data_leaves_the_volume_working(self):
        """The writing program gets the error, and no acknowledgement to others depends on the
        data."""
        for error in ERRORS:
            self.make(delta="2s")
            with open(self.rig_.file("big"), "wb", buffering=0) as f:
                f.write(b"1" * (128 << 10))
                self.refuse(WRITES, error, "big")
                with self.assertRaises(OSError) as refused:
                    f.write(b"2" * 4096)
                self.assertEqual(errno.errorcode[refused.exception.errno], error)
                self.assertEqual(self.hit(), "big")
                self.tracer.kill()
                f.write(b"3" * 4096)
                os.fsync(f.fileno())
            self.writer.do(8)
            status = self.mount.status()
            self.assertEqual((status["mode"], status["failure"]), ("replicated", ""), status)
            self.recovered()
            with open(self.rig_.backing_file("big"), "rb") as f:
                self.assertEqual(f.read(), b"1" * (128 << 10) + b"3" * 4096)


class Hang(Case):

    def test_a_disk_that_hangs_when_a_checkpoint_begins_keeps_no_answer_back(self):
        rig = self.rig(m=1, acks=1, init_options=("--log-max", "16MiB", "--tau", "20s"))
        mount = rig.mount(mode="replicated")
        writer = ops.OpWriter(rig.path, gated=True)
        self.addCleanup(writer.kill)
        writer.do(20)
        mount.wait_status(lambda s: s["applied"] == s["issued"] > s["checkpoint"], 20, "applied, not checkpointed")
        stuck = DiskStuck()
        stuck.inject(SimpleNamespace(rig=rig, own=lambda fault: self.addCleanup(fault.close)))
        # A checkpoint is due after half of tau: the sync has begun, and waits.
        wait_until(lambda: mount.status()["oldest_uncheckpointed_ms"] > 11000, 30, "a checkpoint with the disk stuck")
        stuck.close()
        mount.wait_status(lambda s: s["checkpoint"] == s["issued"], 20, "a checkpoint")
        writer.do(20)
        writer.kill()
        mount.umount()
        rig.mount_ = None
        ops.check(rig.backing, writer.ledger)
