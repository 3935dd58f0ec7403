"""An earlier state of a replica's memory is put back while its process is down, as the revert of a
virtual machine does. It has the same incarnation and holds less than it acknowledged."""
from fault.test_replicas import report_of
from harness import ops
from harness.case import Case
from harness.rig import PATIENT

# After a checkpoint of all that a replica held, its earlier memory lacks nothing, and is accepted.
# So there is none in these tests: by time none, and few operations, which fill no log.
NO_CHECKPOINT = (*PATIENT, "--tau", "10m")


class MemoryPutBack(Case):

    def start(self, m, acks):
        """Returns a rig of m replicas that are all members, and a gated writer."""
        rig = self.rig(m=m, acks=acks, init_options=NO_CHECKPOINT)
        rig.mount(mode="replicated").wait_whole()
        writer = ops.OpWriter(rig.path, gated=True)
        self.addCleanup(writer.kill)
        return rig, writer

    def wait_held(self, rig, victim):
        """Waits until the replica has acknowledged all records; returns the last one's seq."""
        issued = rig.mount_.status()["issued"]
        rig.mount_.wait_status(lambda s: report_of(s, victim)["contiguous"] >= issued, 60,
                               "the replica does not acknowledge everything")
        return issued

    def put_back(self, m, acks):
        """Returns a rig of m replicas, and the writer. The first replica has an earlier memory, and
        the primary knows it."""
        # With such a large delta the pause of the process is no silence: the replica stays a member
        # throughout.
        rig, writer = self.start(m, acks)
        writer.do(50)
        victim = rig.replicas[0]
        victim.keep_memory()
        rig.mount_.wait_whole()
        writer.do(100)
        held = self.wait_held(rig, victim)
        before = report_of(rig.mount_.status(), victim)
        victim.put_memory_back()
        # It is opened again, with a base after all records that it had acknowledged.
        after = rig.mount_.wait_status(
            lambda s: s["mode"] == "replicated" and report_of(s, victim)["member"] and
            report_of(s, victim)["base"] > held, 120, "the earlier memory still counts")
        self.assertEqual(report_of(after, victim)["incarnation"], before["incarnation"])
        rig.volume.wait_log("its memory went back")
        rig.mount_.wait_whole(120)
        writer.do(50)
        return rig, writer

    def check_recovery(self, rig, writer):
        done = rig.volume.recover()
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        ops.check(rig.backing, writer.ledger)

    def test_power_cut_with_another_replica_lost_loses_nothing_with_two_acks(self):
        rig, writer = self.put_back(3, 2)
        rig.power_cut(also=writer.kill)
        rig.replicas[1].lose_memory()
        self.check_recovery(rig, writer)

    def test_power_cut_without_a_loss_loses_nothing_with_one_replica(self):
        rig, writer = self.put_back(1, 1)
        rig.power_cut(also=writer.kill)
        self.check_recovery(rig, writer)

    def test_idle_volume_notices_a_memory_that_went_back(self):
        rig, writer = self.start(2, 1)
        writer.do(20)
        victim = rig.replicas[1]
        victim.keep_memory()
        writer.do(20)
        rig.mount_.wait_whole()
        held = self.wait_held(rig, victim)
        victim.put_memory_back()
        rig.mount_.wait_status(lambda s: report_of(s, victim)["base"] > held, 120, "an idle volume does not ask its replica")

    def test_memory_put_back_after_the_power_cut_gives_an_older_state(self):  # R22
        """The primary had no time to notice: recovery decides for the records that are left. This is
        the limit of the guarantee, so the check must see the loss."""
        rig, writer = self.start(1, 1)
        writer.do(50)
        rig.replicas[0].keep_memory()
        rig.mount_.wait_whole()
        writer.do(50)
        rig.power_cut(also=writer.kill)
        rig.replicas[0].put_memory_back()
        done = rig.volume.recover()
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        with self.assertRaises(ops.Damage):
            ops.check(rig.backing, writer.ledger)
