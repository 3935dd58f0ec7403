"""Copies of a volume's backing directory on the host where the volume is mounted."""
import os

from harness import ops
from harness.case import Case
from harness.rig import PATIENT
from harness.run import sh
from harness.volume import ON_ANOTHER_HOST, Mount, MountRefused, Volume

RECOVER_IN_USE = 3
RECOVER_FENCED = 7
MOUNT_FAILED = 32
INIT_USAGE = 2
INIT_UNSUITABLE = 5
ANOTHER_NAMESPACE = ("unshare", "--mount")


class Copies(Case):

    def copied(self):
        """Returns a mounted volume with acknowledged operations, its writer, and a copy made in
        use."""
        rig = self.rig(m=3, acks=2, init_options=PATIENT)
        rig.mount().wait_whole()
        writer = ops.OpWriter(rig.path, gated=True)
        self.addCleanup(writer.kill)
        writer.do(60)
        copy = os.path.join(rig.image.path, "the copy")
        sh("cp", "-a", rig.backing, copy)
        return rig, writer, Volume(copy, rig.net.primary)

    def refusal(self, rig, text):
        self.assertIn("process %d" % rig.mount_.pid, text)
        self.assertIn(rig.backing, text)
        self.assertIn("salius init --copy", text)

    def refused(self, rig, copy):
        for wrapper in ((), ANOTHER_NAMESPACE):
            with self.assertRaises(MountRefused) as caught:
                self.own(Mount(copy, wrapper=wrapper))
            self.assertEqual(caught.exception.code, MOUNT_FAILED)
            self.refusal(rig, caught.exception.log)
            for options in ((), ("--dry-run",), ("--force",)):
                done = copy.recover(*options, wrapper=wrapper)
                self.assertEqual(done.returncode, RECOVER_IN_USE, done.stdout + done.stderr)
                self.refusal(rig, done.stdout + done.stderr)

    def still_works(self, rig, writer, epoch):
        writer.do(20)
        status = rig.mount_.status()
        self.assertEqual((status["mode"], status["epoch"], [r["member"] for r in status["replicas"]]),
                         ("replicated", epoch, [True] * 3), status)

    def test_copy_of_a_mounted_volume_is_refused_before_a_replica_is_asked(self):  # R4
        rig, writer, copy = self.copied()
        epoch = rig.mount_.status()["epoch"]
        self.refused(rig, copy)
        self.still_works(rig, writer, epoch)

    def test_copy_of_a_frozen_volume_is_refused_too(self):
        rig, writer, copy = self.copied()
        epoch = rig.mount_.status()["epoch"]
        rig.mount_.stop()
        self.refused(rig, copy)
        rig.mount_.cont()
        self.still_works(rig, writer, epoch)
        writer.kill()
        rig.power_cut()
        self.assertEqual(rig.volume.recover().returncode, 0)
        ops.check(rig.backing, writer.ledger)

    def test_killed_daemon_keeps_no_claim_and_a_mounted_copy_refuses_the_original(self):
        rig, writer, copy = self.copied()
        writer.kill()
        rig.mount_.kill()
        mount = self.own(Mount(copy))
        mount.wait_mode("replicated")
        done = rig.volume.recover()
        self.assertEqual(done.returncode, RECOVER_IN_USE, done.stdout + done.stderr)
        self.assertIn(copy.backing, done.stderr)
        self.assertEqual(mount.mode(), "replicated")

    def test_copy_that_is_made_a_volume_of_its_own_is_mounted_beside_the_first(self):
        rig, writer, copy = self.copied()
        epoch = rig.mount_.status()["epoch"]
        old = rig.volume.uuid()
        for wrong, code in ((("--copy", "--acks", "1"), INIT_USAGE), (("--force", "--local"), INIT_USAGE)):
            self.assertEqual(copy.run("salius", "init", copy.backing, *wrong).returncode, code)
        done = copy.run("salius", "init", "--copy", copy.backing)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn(old, done.stdout)
        self.assertNotEqual(copy.uuid(), old)
        mount = self.own(Mount(copy))
        mount.wait_whole()
        with open(os.path.join(mount.path, "its own"), "wb", buffering=0) as f:
            f.write(b"more")
            os.fsync(f.fileno())
        self.still_works(rig, writer, epoch)
        mount.umount()
        writer.kill()
        rig.power_cut()
        self.assertEqual(rig.volume.recover().returncode, 0)
        ops.check(rig.backing, writer.ledger)
        with open(os.path.join(copy.backing, "its own"), "rb") as f:
            self.assertEqual(f.read(), b"more")

    def test_volume_that_may_be_no_copy_is_made_another_by_force_only(self):
        rig, writer, copy = self.copied()
        writer.kill()
        rig.mount_.kill()
        done = copy.run("salius", "init", "--copy", rig.backing)
        self.assertEqual(done.returncode, INIT_UNSUITABLE, done.stdout + done.stderr)
        self.assertIn("--force", done.stderr)
        self.assertEqual(rig.volume.recover().returncode, 0)
        ops.check(rig.backing, writer.ledger)
        done = copy.run("salius", "init", "--copy", "--force", copy.backing)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        # A clean volume loses nothing.
        done = copy.run("salius", "init", "--copy", rig.backing)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        ops.check(rig.backing, writer.ledger)

    def test_fenced_volume_names_the_remedy(self):
        """A copy on another host was recovered. Another mount does not help here; the advice in the
        message does."""
        rig, writer, copy = self.copied()
        done = copy.recover(wrapper=ON_ANOTHER_HOST)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        failure = rig.mount_.wait_mode("failed")["failure"]
        self.assertIn("salius-recover --force", failure)
        self.assertNotIn("mount again", failure)
        writer.kill()
        sh("umount", rig.path, check=False)
        rig.mount_.proc.wait(60)
        self.assertEqual(rig.volume.recover("--timeout", "1s").returncode, RECOVER_FENCED)
        done = rig.volume.recover("--force", "--timeout", "1s")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        mount = rig.mount(mode="replicated")
        with open(rig.file("again"), "wb", buffering=0) as f:
            f.write(b"more")
            os.fsync(f.fileno())
        ops.check(rig.path, writer.ledger)
        mount.umount()
