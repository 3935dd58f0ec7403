"""Partitions by dropped packets: the resulting mode, the calls that continue, and the state after a
power cut."""
import os

from harness import ops
from harness.case import Case
from harness.ledger import Ledger
from harness.op_writer import SLOT, body
from harness.rig import LESS_PATIENT


class Partition(Case):

    def writer(self, rig, ledger=None, first=1, style="mixed"):
        writer = ops.OpWriter(rig.path, ledger, first, style)
        self.addCleanup(writer.kill)
        return writer

    def test_all_replicas_cut_off_goes_local_and_healing_replicates_again(self):
        rig = self.rig(m=2, acks=1)
        mount = rig.mount(mode="replicated")
        writer = self.writer(rig)
        writer.more(50)
        for i in range(2):
            rig.net.drop(i)
        status = mount.wait_mode("local")
        self.assertTrue(status["mode_detail"], "status does not say why it is local")
        writer.more(50)
        self.assertEqual(mount.mode(), "local")
        for i in range(2):
            rig.net.heal(i)
        mount.wait_mode("replicated")
        writer.more(50)
        writer.kill()
        rig.mount_.umount()
        ops.check(rig.backing, writer.ledger)

    def test_power_cut_in_mode_local_with_every_replica_dead_recovers_alone(self):  # R29
        rig = self.rig(m=2, acks=2)
        mount = rig.mount(mode="replicated")
        writer = self.writer(rig)
        writer.more(100)
        for replica in rig.replicas:
            replica.lose_memory()
        mount.wait_mode("local")
        writer.more(100)
        rig.power_cut(also=writer.kill)
        done = rig.volume.recover()
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        ops.check(rig.backing, writer.ledger)

    def test_power_cut_while_going_local_loses_nothing(self):
        """The cut comes right after the packets stop: before, in or after the change of mode. The
        replicas keep their records and can be asked afterwards."""
        rig = self.rig(m=2, acks=1)
        ledger, last = Ledger(), 0
        rounds = self.count(5, 30)
        for _ in range(rounds):
            rig.mount(mode="replicated")
            writer = self.writer(rig, ledger, last + 1)
            writer.more(20)
            for i in range(2):
                rig.net.drop(i, udp_only=self.rng.random() < 0.5)
            if self.rng.random() < 0.7:
                # At least one acknowledgement after the partition: the stable log has begun to
                # count.
                writer.more(self.rng.randint(1, 40))
            rig.power_cut(also=writer.kill)
            for i in range(2):
                rig.net.heal(i)
            done = rig.volume.recover()
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            last = ops.check(rig.backing, ledger)
        self.report("%d power cuts around a change of mode, %d operations acknowledged", rounds, ledger.total())

    def test_old_acknowledged_write_never_replaces_a_later_local_one(self):
        """I3, the paper's hole: replicas acknowledge W1, partition, W2 over it in mode local, power
        cut. Recovery finds W1 at the replicas."""
        rig = self.rig(m=2, acks=1)
        mount = rig.mount(mode="replicated")
        fd = os.open(rig.file("f"), os.O_CREAT | os.O_WRONLY | os.O_SYNC, 0o600)
        os.pwrite(fd, body(1), 0)
        for i in range(2):
            rig.net.drop(i)
        mount.wait_mode("local")
        os.pwrite(fd, body(2), 0)
        os.close(fd)
        rig.power_cut()
        for i in range(2):
            rig.net.heal(i)
        done = rig.volume.recover()
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        with open(rig.backing_file("f"), "rb") as f:
            self.assertEqual(f.read(SLOT)[:16], body(2)[:16])

    def test_one_replica_of_three_cut_off_leaves_the_volume_replicated(self):
        rig = self.rig(m=3, acks=2, init_options=LESS_PATIENT)
        mount = rig.mount(mode="replicated")
        writer = self.writer(rig)
        writer.more(30)
        rig.net.drop(1)
        address = rig.replicas[1].address
        status = mount.wait_status(
            lambda s: not next(r for r in s["replicas"] if r["address"] == address)["member"], 30,
            "the lost replica is still a member")
        self.assertEqual(status["mode"], "replicated", status)
        writer.more(100)
        self.assertEqual(mount.mode(), "replicated")
        rig.net.heal(1)
        mount.wait_status(
            lambda s: next(r for r in s["replicas"] if r["address"] == address)["member"], 30,
            "the healed replica is not taken back")
        writer.more(30)
        rig.power_cut(also=writer.kill)
        rig.replicas[0].lose_memory()  # f - 1 = 1: the two others hold everything
        done = rig.volume.recover()
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        ops.check(rig.backing, writer.ledger)

    def test_lost_acknowledgements_alone_are_a_partition(self):
        rig = self.rig(m=1, acks=1)
        mount = rig.mount(mode="replicated")
        writer = self.writer(rig)
        writer.more(20)
        rig.net.drop(0, udp_only=True, incoming=False)
        mount.wait_mode("local")
        writer.more(20)
        rig.power_cut(also=writer.kill)
        done = rig.volume.recover()
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        ops.check(rig.backing, writer.ledger)

    def test_cable_pulled_and_plugged_in_again(self):
        rig = self.rig(m=1, acks=1)
        mount = rig.mount(mode="replicated")
        writer = self.writer(rig)
        writer.more(20)
        rig.net.link(0, up=False)
        mount.wait_mode("local")
        writer.more(20)
        rig.net.link(0, up=True)
        mount.wait_mode("replicated")
        writer.more(20)
        writer.kill()
        mount.umount()
        ops.check(rig.backing, writer.ledger)

    def write_pieces(self, path):
        with open(path, "wb", buffering=0, opener=lambda name, flags: os.open(name, flags | os.O_SYNC)) as f:
            for _ in range(50):
                f.write(os.urandom(8192))

    def whole(self, mount):
        """Checks that every replica holds everything, in mode replicated, although many datagrams
        were lost."""
        status = mount.wait_status(
            lambda s: s["mode"] == "replicated" and all(r["lag_records"] == 0 for r in s["replicas"]), 30,
            "every replica holds everything")
        for report in status["replicas"]:
            self.assertGreaterEqual(report["resent"], 8, "nothing was lost on the way")
            self.assertLess(report["datagram_bytes"], report["route_bytes"], "the size is never reduced")

    def test_path_with_a_smaller_mtu_than_the_primarys_costs_time_only(self):
        rig = self.rig(m=2, acks=2, init_options=LESS_PATIENT)
        rig.net.primary_mtu(9000)
        mount = rig.mount(mode="replicated")
        self.write_pieces(rig.file("f"))
        self.whole(mount)

    def test_path_with_a_small_mtu_costs_time_only(self):
        rig = self.rig(m=2, acks=2, init_options=LESS_PATIENT)
        mount = rig.mount(mode="replicated")
        rig.net.narrow(0, 1280)
        rig.net.narrow(1, 1280)
        self.write_pieces(rig.file("f"))
        self.whole(mount)

    def test_a_tenth_of_the_datagrams_lost_costs_time_only(self):
        rig = self.rig(m=3, acks=2)
        rig.mount(mode="replicated")
        for i in range(3):
            rig.net.lose(i, 0.1)
        writer = self.writer(rig)
        writer.more(self.count(300, 3000), 120)
        rig.power_cut(also=writer.kill)
        for i in range(3):
            rig.net.heal(i)
        done = rig.volume.recover()
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        ops.check(rig.backing, writer.ledger)
