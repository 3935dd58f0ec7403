"""The primary's wall clock is set back while its threads wait: timed waits must not grow by the
jump.

Take a wait with a deadline on the wall clock that begins before the clock is set back an hour. It
ends an hour late unless another thread wakes it. So the volume is left idle right after the jump,
and must notice later events on its own.
"""
from harness import ops
from harness.case import Case
from harness.clock import Clock


class ClockSetBack(Case):

    def test_an_idle_volume_notices_a_partition_and_its_end_after_the_clock_was_set_back(self):
        rig = self.rig(m=2, acks=1)
        clock = Clock()
        mount = rig.mount(mode="replicated", env=clock.env)
        last, ledger, behind = 0, None, 0
        for _ in range(self.count(3, 20)):
            writer = ops.OpWriter(rig.path, ledger, last + 1)
            self.addCleanup(writer.kill)
            ledger = writer.ledger
            writer.more(self.rng.randint(20, 200))
            behind += 3600
            clock.set(-behind)
            writer.kill()
            last = ops.check(rig.path, ledger)
            for i in range(2):
                rig.net.drop(i)
            mount.wait_mode("local", 20)
            clock.set(-behind - 1800)
            for i in range(2):
                rig.net.heal(i)
            mount.wait_mode("replicated", 20)
        self.report("the clock set back %d times", 2 * self.count(3, 20))

    def test_reborn_replica_is_taken_in_after_the_clock_was_set_back(self):
        """The time-outs and pauses of gRPC are such waits too."""
        rig = self.rig(m=2, acks=1)
        clock = Clock()
        mount = rig.mount(mode="replicated", env=clock.env)
        writer = ops.OpWriter(rig.path)
        self.addCleanup(writer.kill)
        victim, behind = rig.replicas[1], 0
        for _ in range(self.count(2, 10)):
            writer.more(20)
            rig.net.drop_control(1)
            victim.reboot()
            mount.wait_status(lambda s: s["replicas"][1]["problem"], 30, "no session can be opened")
            behind += 3600
            clock.set(-behind)
            writer.more(20)
            rig.net.heal(1)
            mount.wait_status(lambda s: s["replicas"][1]["member"], 20, "the replica is not taken in")
