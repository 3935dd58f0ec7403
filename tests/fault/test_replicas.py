"""Replicas killed and rebooted under load, and the primary's power cut right after."""
from harness import ops
from harness.case import Case
from harness.ledger import Ledger
from harness.run import wait_until


def report_of(status, replica):
    return next(r for r in status["replicas"] if r["address"] == replica.address)


class ReplicaDies(Case):

    def start(self, m, acks):
        rig = self.rig(m=m, acks=acks)
        rig.mount(mode="replicated")
        writer = ops.OpWriter(rig.path)
        self.addCleanup(writer.kill)
        writer.more(50)
        return rig, writer

    def cut_and_check(self, rig, writer):
        rig.power_cut(also=writer.kill)
        done = rig.volume.recover()
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        ops.check(rig.backing, writer.ledger)

    def killed(self, m, acks):
        rig, writer = self.start(m, acks)
        victim = rig.replicas[0]
        before = report_of(rig.mount_.status(), victim)["incarnation"]
        victim.restart()
        status = rig.mount_.wait_status(
            lambda s: report_of(s, victim)["member"] and report_of(s, victim)["connected"] and
            s["mode"] == "replicated", 30, "the restarted replica does not come back")
        self.assertEqual(report_of(status, victim)["incarnation"], before, "memory was there, incarnation changed")
        writer.more(50)
        self.cut_and_check(rig, writer)

    def test_killed_replica_reattaches_to_its_log_with_two_replicas_and_one_ack(self):
        self.killed(2, 1)

    def test_killed_replica_reattaches_to_its_log_with_three_replicas_and_two_acks(self):
        self.killed(3, 2)

    def rebooted(self, m, acks):
        rig, writer = self.start(m, acks)
        victim = rig.replicas[0]
        before = report_of(rig.mount_.status(), victim)["incarnation"]
        victim.reboot()
        rig.mount_.wait_status(
            lambda s: report_of(s, victim)["incarnation"] != before and report_of(s, victim)["member"] and
            s["mode"] == "replicated", 30, "the reborn replica is not taken in")
        writer.more(50)
        self.cut_and_check(rig, writer)

    def test_rebooted_replica_is_a_new_incarnation_with_two_replicas_and_one_ack(self):
        self.rebooted(2, 1)

    def test_rebooted_replica_is_a_new_incarnation_with_three_replicas_and_two_acks(self):
        self.rebooted(3, 2)

    def test_replica_on_a_new_disk_is_taken_in_when_the_others_know_of_no_fence(self):
        rig, writer = self.start(3, 2)
        victim = rig.replicas[0]
        before = report_of(rig.mount_.status(), victim)["incarnation"]
        victim.reboot(promises=False)
        rig.mount_.wait_status(
            lambda s: report_of(s, victim)["incarnation"] != before and report_of(s, victim)["member"] and
            s["mode"] == "replicated", 30, "the replica on a new disk is not taken in")
        writer.more(50)
        self.cut_and_check(rig, writer)

    def test_forgotten_volume_gives_its_memory_back(self):
        rig, writer = self.start(2, 1)
        replica = rig.replicas[0]

        def forget(*options):
            return rig.volume.run("salius", "forget", rig.backing, "--replica", replica.address, *options)

        done = forget()
        self.assertEqual(done.returncode, 5, done.stdout + done.stderr)
        self.assertIn("unmount it", done.stderr)
        granted = "salius_replica_memory_granted_bytes"
        wait_until(lambda: replica.metrics()[granted] > 0, 20, "it has granted no memory")
        rig.power_cut(also=writer.kill)
        done = forget()
        self.assertEqual(done.returncode, 5, done.stdout + done.stderr)
        self.assertIn("in use", done.stderr)  # active a moment ago
        done = forget("--force")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn("forgot it", done.stdout)
        wait_until(lambda: replica.metrics()[granted] == 0, 20, "its memory is still granted")
        done = forget()
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn("did not know it", done.stdout)

    def test_power_cut_right_after_a_replica_lost_its_memory_loses_nothing_with_two_acks(self):
        """f = 2: the primary and any one replica may fail together, at any moment, noticed or
        not."""
        rig = self.rig(m=3, acks=2)
        ledger, last = Ledger(), 0
        rounds = self.count(6, 30)
        for _ in range(rounds):
            rig.mount(mode="replicated")
            writer = ops.OpWriter(rig.path, ledger, last + 1)
            self.addCleanup(writer.kill)
            writer.more(self.rng.randint(10, 60))
            victim = self.rng.choice(rig.replicas)
            victim.lose_memory()
            if self.rng.random() < 0.5:
                writer.more(self.rng.randint(1, 30))
            rig.power_cut(also=writer.kill)
            victim.start()
            done = rig.volume.recover()
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            last = ops.check(rig.backing, ledger)
        self.report("%d double losses, %d operations acknowledged", rounds, ledger.total())

    def test_power_cut_with_one_replica_killed_of_two_with_one_ack(self):
        """f = 1 survives the primary alone; the killed replica has its memory and is started
        again."""
        rig, writer = self.start(2, 1)
        rig.replicas[1].kill()
        rig.power_cut(also=writer.kill)
        rig.replicas[1].start()
        done = rig.volume.recover()
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        ops.check(rig.backing, writer.ledger)

    def test_replica_lost_after_its_loss_was_noted_may_stay_away_at_recovery(self):
        """m = 2, f = 1: the volume checkpoints and continues with the other; recovery needs only
        that one."""
        rig, writer = self.start(2, 1)
        victim = rig.replicas[0]
        victim.lose_memory()
        rig.mount_.wait_status(lambda s: not report_of(s, victim)["member"] and s["mode"] == "replicated", 30,
                               "the lost replica is still a member")
        writer.more(50)
        self.cut_and_check(rig, writer)

    def test_all_replicas_stopped_for_a_while_and_continued(self):
        rig, writer = self.start(2, 1)
        for replica in rig.replicas:
            replica.stop()
        rig.mount_.wait_mode("local")
        writer.more(30)
        for replica in rig.replicas:
            replica.cont()
        rig.mount_.wait_mode("replicated")
        writer.more(30)
        self.cut_and_check(rig, writer)

    def test_sigterm_ends_a_replica_in_order_and_it_comes_back_with_its_log(self):
        rig, writer = self.start(3, 2)
        self.assertEqual(rig.replicas[2].terminate(), 0)
        writer.more(30)
        rig.replicas[2].start()
        rig.mount_.wait_status(lambda s: report_of(s, rig.replicas[2])["member"], 30, "not taken back")
        self.cut_and_check(rig, writer)

    def test_replica_out_of_memory_is_treated_as_lost_and_reported(self):
        """One replica cannot hold all records that the volume may have outstanding."""
        rig = self.rig(m=2, acks=1, start=False)
        rig.replicas[0].memory = "8MiB"
        for replica in rig.replicas:
            replica.start()
        status = rig.mount(mode="replicated").wait_status(
            lambda s: "segments" in report_of(s, rig.replicas[0])["problem"], 30, "the reason is not shown")
        self.assertFalse(report_of(status, rig.replicas[0])["member"], status)
        writer = ops.OpWriter(rig.path)
        self.addCleanup(writer.kill)
        writer.more(50)
        self.cut_and_check(rig, writer)
