"""An earlier state of a replica's memory is put back while its process is down, as the revert of a
virtual machine does. It has the same incarnation and holds less than it acknowledged."""
from fault.test_replicas import report_of
from harness import ops
from harness.case import Case
from harness.rig import PATIENT


class MemoryPutBack(Case):

    def put_back(self, m, acks):
        """Returns a rig of m replicas, and the writer. The first replica has an earlier memory, and
        the primary knows it."""
        # With such a large delta the pause of the process is no silence: the replica stays a member
        # throughout.
        rig = self.rig(m=m, acks=acks, init_options=PATIENT)
        rig.mount(mode="replicated").wait_whole()
        writer = ops.OpWriter(rig.path)
        self.addCleanup(writer.kill)
        writer.more(50)
        victim = rig.replicas[0]
        victim.keep_memory()
        kept = report_of(rig.mount_.wait_whole(), victim)["contiguous"]
        writer.more(100)
        # The others acknowledge too. This one must have acknowledged more than its earlier memory has.
        before = report_of(rig.mount_.wait_status(lambda s: report_of(s, victim)["contiguous"] > kept, 60,
                                                  "the replica acknowledges nothing"), victim)
        victim.put_memory_back()
        # It is opened again, with a base after all records that it had acknowledged.
        after = rig.mount_.wait_status(
            lambda s: s["mode"] == "replicated" and report_of(s, victim)["member"] and
            report_of(s, victim)["base"] > before["contiguous"], 120, "the earlier memory still counts")
        self.assertEqual(report_of(after, victim)["incarnation"], before["incarnation"])
        rig.volume.wait_log("its memory went back")
        rig.mount_.wait_whole(120)
        writer.more(50)
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
        rig = self.rig(m=2, acks=1, init_options=PATIENT)
        rig.mount(mode="replicated").wait_whole()
        writer = ops.OpWriter(rig.path)
        self.addCleanup(writer.kill)
        writer.more(20)
        victim = rig.replicas[1]
        victim.keep_memory()
        writer.more(20)
        rig.mount_.wait_whole()
        held = report_of(rig.mount_.status(), victim)["contiguous"]
        victim.put_memory_back()
        rig.mount_.wait_status(lambda s: report_of(s, victim)["base"] > held, 120, "an idle volume does not ask its replica")

    def test_memory_put_back_after_the_power_cut_gives_an_older_state(self):  # R22
        """The primary had no time to notice: recovery decides for the records that are left. This is
        the limit of the guarantee, so the check must see the loss."""
        rig = self.rig(m=1, acks=1, init_options=(*PATIENT, "--tau", "60s"))  # no checkpoint meanwhile
        rig.mount(mode="replicated").wait_whole()
        writer = ops.OpWriter(rig.path)
        self.addCleanup(writer.kill)
        writer.more(50)
        rig.replicas[0].keep_memory()
        rig.mount_.wait_whole()
        writer.more(50)
        rig.power_cut(also=writer.kill)
        rig.replicas[0].put_memory_back()
        done = rig.volume.recover()
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        with self.assertRaises(ops.Damage):
            ops.check(rig.backing, writer.ledger)
