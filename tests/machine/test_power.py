"""The primary's plug is pulled at a random moment, again and again on one disk; everything is a whole machine.

Each cut: two writers run on the mount (numbered operations, and SQLite with one transaction a row), their
acknowledgements leave the machine over a serial port before the next operation starts; then QEMU dies by
SIGKILL, and the disk loses what was not flushed as its dice say. By chance a replica's machine dies in the same
moment with all its memory, which f = 2 of 3 allows. The primary boots again, recovers, and must have everything
that was acknowledged since the first cut.
"""
import os
import time

from harness.case import Case
from harness.machines import BACKING, VOLUME, Machines, Writer


class WholeMachines(Case):

    def test_primary_loses_power_with_or_without_one_of_three_replicas(self):
        machines = self.own(Machines(m=3, acks=2))
        writers = [Writer("ops", "ledger0"), Writer("sqlite", "ledger1")]
        cuts = self.count(3, 100)
        tally = {"replica lost": 0, "replica down at recovery": 0, "salius-recover": 0, "recover=auto": 0}
        modes, began, cpu = {}, time.monotonic(), sum(os.times()[:4])
        machines.mount(mode="replicated")
        for cut in range(cuts):
            self.write(machines, writers)
            modes[machines.mode()] = modes.get(machines.mode(), 0) + 1
            lost = self.rng.randrange(3) if self.rng.random() < 0.5 else None
            machines.primary.kill()
            if lost is not None:
                machines.replicas[lost].kill()
                tally["replica lost"] += 1
            machines.disk.power_cut(self.rng)
            for writer in writers:
                writer.machine_died()
            later = lost is not None and self.rng.random() < 0.5
            if lost is not None and not later:
                machines.reboot_replica(lost)
            machines.reboot_primary()
            if self.rng.random() < 0.5:
                code, _, text = machines.recover()
                self.assertEqual(code, 0, "cut %d, replica lost: %s\n%s" % (cut, lost, text))
                self.check(machines, writers, BACKING, cut)
                tally["salius-recover"] += 1
                machines.mount()
            else:
                machines.mount()
                self.check(machines, writers, VOLUME, cut)
                tally["recover=auto"] += 1
            if later:
                machines.reboot_replica(lost)
                tally["replica down at recovery"] += 1
            machines.wait_mode("replicated")
        seconds, cpu = time.monotonic() - began, sum(os.times()[:4]) - cpu
        machines.primary.power_cut(self.rng)
        machines.disk.check()
        self.report("%d cuts, %d operations and %d rows acknowledged, all there; mode at the cut %s; %s; the disk "
                    "dropped %d unflushed writes and tore %d; %.1f s and %.1f CPU s a cut", cuts,
                    writers[0].ledger.total(), writers[1].ledger.total(), modes, tally, machines.disk.dropped,
                    machines.disk.torn, seconds / cuts, cpu / cuts)

    def write(self, machines, writers):
        """Returns at a random moment with the writers at work."""
        for writer in writers:
            writer.start(machines.primary)
        for writer in writers:
            writer.wait(machines.primary, self.rng.randint(5, 60))

    def check(self, machines, writers, root, cut):
        for writer in writers:
            good, what = writer.check(machines.primary, root)
            self.assertTrue(good, "cut %d: %s" % (cut, what))
