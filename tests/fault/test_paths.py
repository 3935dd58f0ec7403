"""Routes to a replica on which one kind of traffic always fails silently: large datagrams, the
multicast group, TCP."""
from fault.test_replicas import report_of
from harness import ops
from harness.case import Case
from harness.rig import PATIENT

GROUP = "239.77.0.1"


class Paths(Case):

    def writing(self, *options, m=3, acks=2, before=lambda net: None):
        """Returns a mounted rig whose network before(net) has changed, and a writer on it."""
        rig = self.rig(m=m, acks=acks, init_options=PATIENT + options)
        before(rig.net)
        rig.mount(mode="replicated").wait_whole()
        writer = ops.OpWriter(rig.path)
        self.addCleanup(writer.kill)
        return rig, writer

    def write_until(self, rig, writer, condition, what):
        """Writes until the condition on the status holds: the change needs records, not time."""
        for _ in range(60):
            writer.more(20)
            status = rig.mount_.status()
            if condition(status):
                return status
        self.fail("%s: %s\n%s" % (what, status, rig.volume.tail()))

    def check_few_resent(self, rig, writer):
        """Checks that new records arrive the first time; a pause of the machine may cost a few."""
        before = sum(r["resent"] for r in rig.mount_.status()["replicas"])
        written = writer.ledger.total()
        writer.more(100)
        resent = sum(r["resent"] for r in rig.mount_.status()["replicas"]) - before
        self.report("%d operations, %d records sent again", writer.ledger.total() - written, resent)
        self.assertLess(resent, 50, rig.mount_.status())

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
        self.check_few_resent(rig, writer)
        text = rig.volume.run("salius", "status", rig.volume.uuid()).stdout
        self.assertIn("datagrams of more than 1232 bytes are lost on the way", text)
        self.check_after_a_cut(rig, writer)

    def test_group_that_does_not_reach_a_replica_is_given_up_for_that_replica_alone(self):
        # As behind a bridge that snoops without a querier.
        rig, writer = self.writing("--multicast", GROUP + ":7401", before=lambda net: net.deafen(1, GROUP))
        deaf, other = rig.replicas[1], rig.replicas[0]
        status = self.write_until(rig, writer, lambda s: report_of(s, deaf)["group_unheard"], "the group is not given up")
        self.assertFalse(report_of(status, other)["group_unheard"], status)
        self.check_few_resent(rig, writer)
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
        writer.more(20)
        for victim in rig.replicas[1:]:
            rig.net.heal(victim.index)
        rig.mount_.wait_status(
            lambda s: not any(r["problem"] for r in s["replicas"]) and not s["mode_detail"], 60, "the problem is shown after it ended")
        self.check_after_a_cut(rig, writer)
