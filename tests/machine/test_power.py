"""Pulls the primary's plug at a random moment, again and again on one disk; each host is a whole
machine.

At each cut two writers run on the mount: numbered operations, and SQLite with one transaction a
row. Their acknowledgements leave the machine over a serial port before the next operation starts.
Then QEMU dies by SIGKILL, and the disk loses unflushed data as its dice say. In addition:
- At every other cut a replica's machine dies at the same moment with all its memory, which f = 2 of
  3 allows.
- At every third the plug is pulled once more while recovery runs.
- At every seventh all replicas' machines were stopped before, so that the volume was in mode local.
- By chance a link was bad.

The primary boots again and recovers. Everything acknowledged since the first cut must be there.
"""
import collections
import os
import time

from harness.case import Case
from harness.machines import BACKING, VOLUME, Machines, Writer
from harness.volume import RECOVER_NOT_ENOUGH, RECOVER_OK

# The least number of flushes of a recovery, so that a cut at one of them falls into it.
RECOVERY_FLUSHES = 6


class WholeMachines(Case):

    def test_primary_loses_power_with_or_without_one_of_three_replicas(self):
        self.machines = self.own(Machines(m=3, acks=2))
        self.writers = [Writer("sqlite", "ledger0"), Writer("ops", "ledger1")]
        self.tally = collections.Counter()
        began, cpu, here = time.monotonic(), _cpu_seconds(), 0
        self.machines.mount(mode="replicated")
        for cut in self.rounds("cuts", self.count(3, 100), lambda: "%s acknowledged, all there; %s" % (
                [writer.ledger.total() for writer in self.writers], dict(self.tally))):
            self.cut(cut)
            here += 1
        seconds, cpu = time.monotonic() - began, _cpu_seconds() - cpu
        rows = [writer.ledger.total() for writer in self.writers]
        disk = self.machines.disk
        self.report("%d cuts, %d rows and %d operations acknowledged, all there; %s; the disk flushed %d times, "
                    "dropped %d unflushed writes and tore %d; %.1f s and %.1f CPU s a cut", here, rows[0],
                    rows[1], dict(self.tally), disk.flushes, disk.dropped, disk.torn, seconds / here, cpu / here)
        self.check_sees_a_loss()
        self.machines.primary.power_cut(self.rng)
        disk.check()

    def cut(self, number):
        """Makes one cut and recovers from it; the volume is mounted before and after."""
        machines, rng = self.machines, self.rng
        lost = rng.randrange(3) if number % 2 == 0 else None
        if rng.random() < 0.3:
            machines.bad_link(rng.randrange(3))
            self.tally["bad link"] += 1
        self.write()
        frozen = machines.replicas if number % 7 == 1 else []
        for replica in frozen:
            replica.freeze()
        if frozen:
            machines.wait_mode("local")
            self.wait_more()
        self.pull_the_plug([] if lost is None else [lost])
        for replica in frozen:
            replica.thaw()
        later = lost is not None and rng.random() < 0.5
        machines.boot(replicas=[] if lost is None or later else [lost])
        if number % 3 == 2:
            machines.start_recovery(rng.randint(1, RECOVERY_FLUSHES))
            machines.primary.power_cut(rng)
            machines.boot()
            self.tally["cut again in recovery"] += 1
        what = "cut %d, replica lost: %s, %s" % (number, lost, dict(self.tally))
        if rng.random() < 0.5:
            code, text = machines.recover()
            self.assertEqual(code, RECOVER_OK, what + "\n" + text)
            self.check(BACKING, what)
            machines.mount()
            self.tally["salius-recover"] += 1
        else:
            machines.mount()
            self.check(VOLUME, what)
            self.tally["recover=auto"] += 1
        if later:
            machines.boot(primary=False, replicas=[lost])
            self.tally["replica down at recovery"] += 1
        machines.wait_mode("replicated")

    def check_sees_a_loss(self):
        """Checks the control. When all replicas die with the primary, recovery refuses. With
        --force it loses acknowledged operations, and the same checks see that."""
        self.write()
        self.machines.wait_mode("replicated")
        self.pull_the_plug([0, 1, 2])
        self.machines.boot(replicas=[0, 1, 2])
        code, text = self.machines.recover("--timeout", "5s")
        self.assertEqual(code, RECOVER_NOT_ENOUGH, text)
        code, text = self.machines.recover("--force", "--timeout", "5s")
        self.assertEqual(code, RECOVER_OK, text)
        found = [writer.check(self.machines.primary, BACKING) for writer in self.writers]
        self.report("control, every replica lost and recovery forced: %s", found)
        self.assertFalse(all(good for good, _ in found), "nothing was lost: the cuts above show nothing")

    def write(self):
        """Starts the writers; returns at a random moment while they work."""
        for writer in self.writers:
            writer.start(self.machines.primary)
            writer.wait(self.machines.primary, self.rng.randint(1, 15))
        self.wait_more()

    def wait_more(self):
        for writer in self.writers:
            writer.wait(self.machines.primary, self.rng.randint(1, 40))

    def pull_the_plug(self, replicas):
        """Pulls the plug of the primary and of those replicas."""
        self.tally["in mode " + self.machines.mode()] += 1
        self.machines.primary.kill()
        for i in replicas:
            self.machines.replicas[i].kill()
        self.tally["replica lost"] += len(replicas)
        self.machines.disk.power_cut(self.rng)
        for writer in self.writers:
            writer.machine_died()

    def check(self, root, what):
        for writer in self.writers:
            good, found = writer.check(self.machines.primary, root)
            self.assertTrue(good, "%s: %s" % (what, found))


def _cpu_seconds():
    """Returns the CPU seconds of this process and of the children that it has waited for."""
    return sum(os.times()[:4])
