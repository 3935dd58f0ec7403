"""Figure 3 of "Rethink the Sync" on a mount with commit=external: a program under salius-run writes,
syncs, and sends a datagram to a recorder in another network namespace. The power is cut at a random
moment. Each write of which the recorder has heard must be there after the recovery, and no write
without all before it.

| row | program | what must be there |
|---|---|---|
| eager, output | syncs, under salius-run | all that was recorded |
| sync | syncs, outside of salius-run | all that was recorded |
| none | does not sync, outside, while records are kept back | not all: the control |
| ordered, osync | syncs, outside, with `commit=ordered` or `fsync=osync` | no write without all before it |
"""
import os
import sys

from fault.test_gate_cuts import PROGRAM, Recorder, is_there
from fault.test_mount_run import MountCase
from harness.rig import SMALL_LOG

EAGER, LAZY = ("commit=external,trigger=" + when for when in ("eager", "output"))
BEHIND = 300  # numbers behind the last recorded one that are looked at


class PowerCuts(MountCase):

    OPTIONS = None  # each cut mounts
    INIT = (*SMALL_LOG, "--delta", "500ms")

    def lost(self, syncs, wrapped, options):
        """Cuts the power once. Returns how many recorded writes are not there, and how many were
        recorded."""
        self.rig_.mount("recover=auto," + options, mode="replicated")
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
        there = [is_there(self.rig_.backing_file(folder), n) for n in range(1, recorder.last + BEHIND)]
        if syncs == "sync":
            kept = there.index(False)
            self.assertEqual(there[kept:].count(True), 0, "write %d is not there, and later ones are: %s" % (
                kept + 1, [n for n, one in enumerate(there, 1) if one and n > kept]))
        return there[:recorder.last].count(False), recorder.last

    def cuts(self, what, syncs, wrapped, options):
        """Cuts the power again and again. Returns the cuts that lost something."""
        lossy, recorded = 0, 0
        for _ in self.rounds("cuts", self.count(20, 200), lambda: "%s: %d recorded" % (what, recorded)):
            missing, last = self.lost(syncs, wrapped, options)
            lossy += missing > 0
            recorded += last
        self.report("%s: %d writes recorded; %d cuts lost a recorded write", what, recorded, lossy)
        return lossy

    def test_external_loses_nothing_that_was_recorded(self):
        self.assertEqual(self.cuts("external", "sync", True, EAGER), 0)

    def test_external_sent_for_outputs_loses_nothing_that_was_recorded(self):
        self.assertEqual(self.cuts("external, trigger=output", "sync", True, LAZY), 0)

    def test_process_outside_loses_nothing_that_was_recorded(self):
        self.assertEqual(self.cuts("outside", "sync", False, EAGER), 0)

    def test_control_loses_recorded_writes(self):
        self.assertGreater(self.cuts("no sync", "none", False, LAZY), 0)

    def test_ordered_loses_from_the_end_only(self):
        self.cuts("ordered", "sync", False, "commit=ordered")

    def test_osync_loses_from_the_end_only(self):
        self.cuts("fsync=osync", "sync", False, "fsync=osync")


class PowerCutsOnXfs(PowerCuts):

    FS = "xfs"
    test_external_sent_for_outputs_loses_nothing_that_was_recorded = None
    test_process_outside_loses_nothing_that_was_recorded = None
    test_control_loses_recorded_writes = None
