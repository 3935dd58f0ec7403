"""Volumes that get keys while they are in use (docs/security.md, Moving to keys), keys that a volume
names itself, and the findings of salius doctor about them."""
import os

from fault import test_keys
from harness import ops
from harness.volume import RECOVER_NOT_ENOUGH, MountRefused


class MovingCase(test_keys.KeysCase):

    def give_keys(self, replica):
        """Restarts a replica with keys. Its memory outlives it."""
        replica.keys = self.keys.replica(replica)
        replica.restart()

    def name_keys(self, rig):
        """Puts the primary's file into volume.toml, so that no option needs to name it; returns its
        path."""
        path, rig.volume.keys = rig.volume.keys or self.keys.issue("client/primary"), None
        with open(rig.volume.salius_file("volume.toml"), "a", encoding="ascii") as f:
            f.write('keys = "%s"\n' % path)
        return path

    def doctor(self, rig, *options):
        """Returns the findings of salius doctor by name: (level, detail)."""
        done = rig.volume.run("salius", "doctor", rig.backing, *options)
        found = {}
        for line in done.stdout.splitlines():
            level, _, rest = line.partition("  ")
            name, colon, detail = rest.strip().partition(": ")
            if colon and level in ("OK", "WARN", "FAIL"):
                found[name] = (level, detail)
        return found


class Moving(MovingCase):

    def test_volume_in_use_moves_replica_by_replica(self):
        """No acknowledged operation is lost, and each is acknowledged: by the members that are left,
        then by the primary's own disk. Only the remount interrupts the writer."""
        rig = self.rig(m=3, acks=2)
        mount = rig.mount(mode="replicated")
        writer = self.writing(rig)
        for replica in rig.replicas:
            self.give_keys(replica)
            writer.more(10)
        mount.wait_mode("local", 60)
        writer.more(10)
        writer.kill()
        mount.umount()
        ops.check(rig.backing, writer.ledger)
        self.name_keys(rig)
        rig.mount(insecure=False).wait_whole(60)
        os.mkdir(rig.file("after"))
        rig.sync_dir()
        after = ops.OpWriter(rig.file("after"))
        self.addCleanup(after.kill)
        after.more(30)
        rig.power_cut(also=after.kill)
        done = rig.volume.recover()
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        ops.check(rig.backing, writer.ledger)
        ops.check(rig.backing_file("after"), after.ledger)

    def recovered_amid(self, count, *options):
        """Cuts the power when `count` of three replicas have keys. Recovers with `options`."""
        rig = self.rig(m=3, acks=2)
        rig.mount(mode="replicated")
        writer = self.writing(rig)
        for replica in rig.replicas[:count]:
            self.give_keys(replica)
            writer.more(10)
        rig.power_cut(also=writer.kill)
        self.name_keys(rig)
        done = rig.volume.recover(*options)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        ops.check(rig.backing, writer.ledger)

    def test_power_cut_after_one_replica_recovers_without_keys(self):
        self.recovered_amid(1, "--keys", "")

    def test_power_cut_after_two_replicas_recovers_with_keys(self):
        self.recovered_amid(2)

    def test_power_cut_after_all_replicas_recovers_with_keys(self):
        self.recovered_amid(3)


class NamedKeys(MovingCase):
    """Programs find the keys that the volume names."""

    def test_mount_recovery_and_forget_use_them_and_an_option_wins(self):
        rig = self.keyed(m=2, acks=2)
        path = self.name_keys(rig)
        rig.mount(insecure=False).wait_whole(60)
        writer = self.writing(rig)
        rig.power_cut(also=writer.kill)
        refused = rig.volume.recover("--keys", "", "--timeout", "1s")
        self.assertEqual(refused.returncode, RECOVER_NOT_ENOUGH, refused.stdout + refused.stderr)
        self.assertIn("keys only", refused.stdout + refused.stderr)
        done = rig.volume.recover()
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        ops.check(rig.backing, writer.ledger)
        done = rig.volume.run("salius", "forget", rig.backing, "--force")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        os.chmod(path, 0o644)
        with self.assertRaises(MountRefused) as caught:
            rig.mount(insecure=False)
        self.assertIn("chmod 600", caught.exception.log)


class Doctor(MovingCase):

    def test_good_keys_are_ok_on_both_ends(self):
        rig = self.keyed(m=2, acks=2)
        self.name_keys(rig)
        found = self.doctor(rig)
        self.assertIn("client/primary, valid until", found["keys"][1])
        for name in ["keys", "authority"] + ["replica %s%s" % (r.address, part) for r in rig.replicas
                                             for part in ("", " UDP", " keys", " clock", " owner")]:
            self.assertEqual(found[name][0], "OK", "%s: %s" % (name, found[name]))
        self.assertIn("none yet", found["replica %s owner" % rig.replicas[0].address][1])
        rig.mount(insecure=False).wait_whole(60)
        rig.mount_.umount()
        self.assertIn("belongs to client/primary", self.doctor(rig)["replica %s owner" % rig.replicas[0].address][1])
        other = self.doctor(rig, "--keys", self.keys.issue("client/other"))
        level, detail = other["replica %s owner" % rig.replicas[0].address]
        self.assertEqual(level, "FAIL", detail)
        self.assertNotIn("primary", detail)

    def test_wrong_host_and_missing_keys_are_named(self):
        rig = self.keyed(m=2, acks=2, start=False)
        rig.replicas[0].keys = self.keys.issue("replica/n0", "--hosts", "other.example")
        rig.replicas[1].keys = None
        for replica in rig.replicas:
            replica.start()
        self.name_keys(rig)
        found = self.doctor(rig)
        level, detail = found["replica %s" % rig.replicas[0].address]
        self.assertEqual((level, "is for other.example, not for" in detail), ("FAIL", True), detail)
        level, detail = found["replica %s" % rig.replicas[1].address]
        self.assertEqual((level, "it has no keys" in detail), ("FAIL", True), detail)
