"""Volumes that were killed, recovered and deleted, without a word to the replica."""
import os
import shutil

from harness.case import Case
from harness.run import wait_until
from harness.volume import Mount, Volume


class DeletedVolumes(Case):

    LOG = ("--log-max", "1MiB", "--ballast", "1MiB")

    def setUp(self):
        super().setUp()
        self.rig_ = self.rig(m=1, acks=1, memory="8MiB", init_options=self.LOG)
        self.replica = self.rig_.replicas[0]

    def volume(self, name):
        """Returns a new volume beside the rig's own."""
        volume = Volume(os.path.join(self.rig_.image.path, name), self.rig_.net.primary)
        os.mkdir(volume.backing)
        volume.init([self.replica.address], 1, *self.LOG)
        return volume

    def use_and_recover(self, volume):
        """Mounts the volume in mode replicated, writes, kills the mount, recovers and deletes.
        Returns the UUID."""
        mount = self.own(Mount(volume))
        mount.wait_mode("replicated")
        fd = os.open(os.path.join(mount.path, "f"), os.O_CREAT | os.O_WRONLY | os.O_SYNC)
        os.write(fd, b"x" * 4096)
        os.close(fd)
        mount.close()
        done = volume.run("salius-recover", volume.backing)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        uuid = volume.uuid()
        shutil.rmtree(volume.backing)
        return uuid

    def test_deleted_volumes_take_no_slot_from_a_new_one(self):
        """An arena of 8 MiB has 32 slots. The promises of recoveries are in a file."""
        gone = [self.use_and_recover(self.volume("v%d" % number)) for number in range(self.count(36, 300))]
        self.wait_promises(len(gone))
        metrics = self.replica.metrics()
        self.report("%d volumes; promises %d of %d, slots %d of %d", len(gone), metrics["salius_replica_promises"],
                    metrics["salius_replica_promises_most"], metrics["salius_replica_volumes"],
                    metrics["salius_replica_slots"])
        self.assertGreater(len(gone), metrics["salius_replica_slots"], "the slots were enough")
        done = self.rig_.volume.run("salius", "forget", gone[0], "--replica", self.replica.address, "--force")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.wait_promises(len(gone) - 1)
        self.use_and_recover(self.volume("after"))

    def wait_promises(self, count):
        wait_until(lambda: self.replica.metrics()["salius_replica_promises"] == count, 10,
                   lambda: "promises: %s" % self.replica.metrics()["salius_replica_promises"])
