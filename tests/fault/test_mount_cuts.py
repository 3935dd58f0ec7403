"""Figure 3 of "Rethink the Sync" on a mount with commit=external: a program under salius-run writes,
syncs, and sends a datagram to a recorder in another network namespace. The power is cut at a random
moment. Each write of which the recorder has heard must be there after the recovery, and no write
without all before it.

| row | program | what must be there |
|---|---|---|
| eager, output | syncs, under salius-run | all that was recorded |
| sync | syncs, outside of salius-run | all that was recorded |
| none | does not sync, outside, while records are kept back | not all: the control |
"""
import os
import sys

from fault.test_gate_cuts import PROGRAM, Recorder
from fault.test_mount_run import MountCase
from harness.rig import SMALL_LOG

BEHIND = 300  # numbers behind the last recorded one that are looked at


class PowerCuts(MountCase):

    OPTIONS = None  # each cut mounts
    INIT = (*SMALL_LOG, "--delta", "500ms")

    def lost(self, syncs, wrapped, trigger):
        """Cuts the power once. Returns how many recorded writes are not there, and how many were
        recorded."""
        self.rig_.mount("recover=auto,commit=external,trigger=" + trigger, mode="replicated")
        MountCase._serial += 1
        folder = "cut%d" % MountCase._serial
        os.mkdir(self.rig_.file(folder))
        recorder = Recorder()
        run = self.start(sys.executable, "-c", PROGRAM, self.rig_.file(folder), recorder.path, syncs, wrapped=wrapped,
                         netns=self.rig_.net.primary)
        recorder.hear(self.rng.randint(1, 120))
        self.rig_.power_cut(shutdown_first=self.rng.random() < 0.5, also=run.kill_group)
        recorder.close()
        done = self.rig_.volume.recover()
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        there = [self.read(folder, n) == b"%15d\n" % n for n in range(1, recorder.last + BEHIND)]
        if syncs == "sync":
            kept = there.index(False)
            self.assertNotIn(True, there[kept:], "write %d is there without write %d" % (
                len(there) - there[::-1].index(True), kept + 1))
        return there[:recorder.last].count(False), recorder.last

    def read(self, folder, n):
        try:
            with open(self.rig_.backing_file(os.path.join(folder, "n%d" % n if n % 10 == 0 else "f")), "rb") as f:
                return os.pread(f.fileno(), 16, 0 if n % 10 == 0 else n * 16)
        except FileNotFoundError:
            return b""

    def cuts(self, what, syncs, wrapped, trigger):
        """Cuts the power again and again. Returns the cuts that lost something."""
        lossy, recorded = 0, 0
        for _ in self.rounds("cuts", self.count(20, 200), lambda: "%s: %d recorded" % (what, recorded)):
            missing, last = self.lost(syncs, wrapped, trigger)
            lossy += missing > 0
            recorded += last
        self.report("%s: %d writes recorded; %d cuts lost a recorded write", what, recorded, lossy)
        return lossy

    def test_external_loses_nothing_that_was_recorded(self):
        self.assertEqual(self.cuts("external", "sync", True, "eager"), 0)

    def test_external_sent_for_outputs_loses_nothing_that_was_recorded(self):
        self.assertEqual(self.cuts("external, trigger=output", "sync", True, "output"), 0)

    def test_process_outside_loses_nothing_that_was_recorded(self):
        self.assertEqual(self.cuts("outside", "sync", False, "eager"), 0)

    def test_control_loses_recorded_writes(self):
        self.assertGreater(self.cuts("no sync", "none", False, "output"), 0)
