"""Routes to a replica on which one kind of traffic always fails silently: large datagrams, the
multicast group, TCP."""
from fault.test_replicas import report_of
from harness import ops
from harness.case import Case
from harness.rig import PATIENT
from harness.run import wait_until

GROUP = "239.77.0.1"


class Paths(Case):

    def writing(self, *options, m=3, acks=2, before=lambda net: None):
        """Returns a mounted rig whose network before(net) has changed, and a writer on it."""
        rig = self.rig(m=m, acks=acks, init_options=PATIENT + options)
        before(rig.net)
        rig.mount(mode="replicated").wait_whole()
        writer = ops.OpWriter(rig.path, gated=True)
        self.addCleanup(writer.kill)
        return rig, writer

    def write_until(self, rig, writer, condition, what):
        """Writes until the condition on the status holds: the change needs records, not time."""
        for _ in range(60):
            writer.do(20)
            status = rig.mount_.status()
            if condition(status):
                return status
        self.fail("%s: %s\n%s" % (what, status, rig.volume.tail()))

    def check_few_lost(self, writer, lost):
        """Checks that new records arrive the first time: lost() counts what did not so far. It does
        not count records that were sent again because a busy machine acknowledged them late."""
        before = lost()
        writer.do(100)
        lost_now = lost() - before
        self.report("%d of 100 operations lost on the way", lost_now)
        self.assertLess(lost_now, 20)

    @staticmethod
    def resent_and_missed(rig, replica):
        """Returns how many records were sent to the replica again that it did not have yet. Each
        record must fit in a datagram, because duplicates of its pieces are counted one by one."""
        def duplicates():
            return replica.metrics()['salius_replica_drops_total{reason="duplicate"}']
        # The replica updates its figures four times a second.
        last = -1

        def at_rest():
            nonlocal last
            before, last = last, duplicates()
            return before == last
        wait_until(at_rest, 20, "the replica receives records without end", 0.6)
        return report_of(rig.mount_.status(), replica)["resent"] - last

    def check_after_a_cut(self, rig, writer):
        rig.power_cut(also=writer.kill)
        done = rig.volume.recover()
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        ops.check(rig.backing, writer.ledger)

    def test_size_over_the_path_mtu_is_given_up_for_that_replica_alone(self):
        # The primary's cable and replica 0's carry 9000, replica 1's way 1400, and no ICMP says so.
        def narrow(net):
            net.jumbo(9000)
            net.narrow(1, 1400)
        rig, writer = self.writing(before=narrow)
        far, near = rig.replicas[1], rig.replicas[0]
        status = self.write_until(rig, writer, lambda s: report_of(s, far)["datagram_bytes"] == 1232,
                                  "the size is not learnt")
        self.assertEqual(report_of(status, far)["route_bytes"], 8972, status)
        self.assertEqual(report_of(status, near)["datagram_bytes"], 8972, status)
        self.check_few_lost(writer, lambda: rig.net.dropped(1))
        text = rig.volume.run("salius", "status", rig.volume.uuid()).stdout
        self.assertIn("datagrams of more than 1232 bytes are lost on the way", text)
        self.check_after_a_cut(rig, writer)

    def test_group_that_does_not_reach_a_replica_is_given_up_for_that_replica_alone(self):
        # As behind a bridge that snoops without a querier.
        def deafen(net):
            net.jumbo(9000)
            net.deafen(1, GROUP)
        rig, writer = self.writing("--multicast", GROUP + ":7401", before=deafen)
        deaf, other = rig.replicas[1], rig.replicas[0]
        status = self.write_until(rig, writer, lambda s: report_of(s, deaf)["group_unheard"], "the group is not given up")
        self.assertFalse(report_of(status, other)["group_unheard"], status)
        self.check_few_lost(writer, lambda: self.resent_and_missed(rig, deaf))
        text = rig.volume.run("salius", "status", rig.volume.uuid()).stdout
        self.assertIn("the multicast group does not reach it", text)
        self.check_after_a_cut(rig, writer)

    def test_member_whose_control_port_is_blocked_is_named(self):
        rig, writer = self.writing()
        for victim in rig.replicas[1:]:
            rig.net.drop_control(victim.index)
        status = rig.mount_.wait_status(
            lambda s: s["mode"] == "replicated" and
            all(report_of(s, victim)["control_problem"] for victim in rig.replicas[1:]), 60, "the problem is not shown")
        for victim in rig.replicas[1:]:
            report = report_of(status, victim)
            self.assertTrue(report["member"], status)
            self.assertIn("nothing could be recovered from it", report["problem"])
        self.assertEqual(report_of(status, rig.replicas[0])["problem"], "")
        self.assertEqual((status["mode"], status["health"]), ("replicated", "degraded"))
        self.assertIn("could ask 1", status["mode_detail"])
        rig.volume.wait_log("nothing could be recovered from it")
        writer.do(20)
        for victim in rig.replicas[1:]:
            rig.net.heal(victim.index)
        rig.mount_.wait_status(
            lambda s: not any(r["problem"] for r in s["replicas"]) and not s["mode_detail"], 60, "the problem is shown after it ended")
        self.check_after_a_cut(rig, writer)
