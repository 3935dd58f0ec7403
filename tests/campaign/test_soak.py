"""The soak: hours of mixed work with a fault every few seconds. Nothing lost, no writer stuck, no
growth.

The primary lives all the time, and so does one of the replicas, whose process no fault ends. So a
leak has time to show, within one process. At the end the primary's power is cut.

SALIUS_SOAK_MINUTES sets the length (by default half a minute, 100 minutes with --long).
"""
import os
import time

from campaign import schedule
from campaign.engine import Campaign
from campaign.growth import Lives
from campaign.schedule import Shape
from campaign.test_controls import power_cut
from harness.case import Case

CHECK_EVERY_S = 60
# Shorter runs are printed, not judged; caches and pools (20,000 files) are still filling.
JUDGED_FROM_MINUTES = 60
SPARED = 0
# The primary keeps the memory of the fullest log that it ever had, and a fault fills the log in a
# random hour. So the whole log is smaller than the least growth that counts.
SHORT_LOG = ("--log-max", "2MiB")


class Soak(Case):

    def test_mixed_work_with_a_fault_every_few_seconds(self):
        self.drawn(0, 2, "campaigns and soak")
        minutes = float(os.environ.get("SALIUS_SOAK_MINUTES") or self.count(0.5, 100))
        shape = Shape(3, 2, "ext4")
        campaign = Campaign(shape, ["ops", "wal", "pg"], self.own, self.report, size_mb=2048, init=SHORT_LOG)
        began = checked = said = time.monotonic()
        lives = Lives()

        def progress(c):
            nonlocal checked, said
            now = time.monotonic()
            rig = c.rig
            for name, proc in [("primary", rig.mount_.proc)] + [
                    ("replica %d" % r.index, r.proc) for r in rig.replicas]:
                lives.add(name, proc.pid, now - began)
            if now - checked > CHECK_EVERY_S:
                c.check_alive()
                checked = time.monotonic()
            if now - said > 60:
                said = now
                self.report("%.0f of %.0f min: %s; KiB: %s", (now - began) / 60, minutes, c.summary(), lives.last())

        def until_the_end():
            without = os.environ.get("SALIUS_CAMPAIGN_WITHOUT", "").split(",")
            kinds = [k for k in schedule.KINDS if k.name not in without]
            for episode in schedule.draw(self.rng, shape, kinds=kinds, mortal=False, spared={SPARED}):
                if time.monotonic() - began > minutes * 60:
                    return
                yield episode
        campaign.run(until_the_end(), progress)
        longest = time.monotonic() - began
        campaign.run([power_cut(shape)])
        campaign.finish()
        self.report("%s", campaign.summary())
        self.report("%s", ", ".join("%s %d" % kind for kind in sorted(campaign.counts.items())))
        lines, grown = lives.judge(longest, {"primary", "replica %d" % SPARED})
        for line in lines:
            self.report("%s", line)
        if minutes >= JUDGED_FROM_MINUTES:
            self.assertEqual(grown, [])
