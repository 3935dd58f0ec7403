"""The soak: hours of mixed work with a fault every few seconds. Nothing lost, no writer stuck, no memory that grows.

The primary lives all the time, so that what it may leak has time to show; at the end its power is cut.
SALIUS_SOAK_MINUTES sets the length (ordinarily half a minute, 100 minutes with --long).
"""
import os
import statistics
import time

from campaign import schedule
from campaign.engine import Campaign
from campaign.schedule import Shape
from campaign.test_controls import power_cut
from harness.case import Case

CHECK_EVERY_S = 60
JUDGED_FROM_MINUTES = 60  # shorter: printed, not judged; caches and pools (20,000 files) are still filling
GROWTH = 1.05


def memory(pid):
    """(resident KiB, open descriptors)."""
    with open("/proc/%d/status" % pid) as f:
        rss = next(int(line.split()[1]) for line in f if line.startswith("VmRSS:"))
    return rss, len(os.listdir("/proc/%d/fd" % pid))


class Soak(Case):

    def test_mixed_work_with_a_fault_every_few_seconds(self):
        minutes = float(os.environ.get("SALIUS_SOAK_MINUTES") or self.count(0.5, 100))
        shape = Shape(3, 2, "ext4")
        campaign = Campaign(shape, ["ops", "wal", "pg"], self.own, self.report, size_mb=2048)
        began = checked = said = time.monotonic()
        samples = {}

        def progress(c):
            nonlocal checked, said
            now = time.monotonic()
            rig = c.rig
            for name, proc in [("primary", rig.mount_.proc)] + [
                    ("replica %d" % r.index, r.proc) for r in rig.replicas]:
                samples.setdefault(name, []).append((now - began, *memory(proc.pid)))
            if now - checked > CHECK_EVERY_S:
                c.check_alive()
                checked = time.monotonic()
            if now - said > 60:
                said = now
                self.report("%.0f of %.0f min: %s; KiB: %s", (now - began) / 60, minutes, c.summary(),
                            {name: s[-1][1] for name, s in samples.items()})

        def until_the_end():
            without = os.environ.get("SALIUS_CAMPAIGN_WITHOUT", "").split(",")
            kinds = [k for k in schedule.KINDS if k.name not in without]
            for episode in schedule.draw(self.rng, shape, kinds=kinds, mortal=False):
                if time.monotonic() - began > minutes * 60:
                    return
                yield episode
        campaign.run(until_the_end(), progress)
        longest = time.monotonic() - began
        campaign.run([power_cut(shape)])
        campaign.finish()
        self.report("%s", campaign.summary())
        self.report("%s", ", ".join("%s %d" % kind for kind in sorted(campaign.counts.items())))
        grown = [self.judge(name, s, longest) for name, s in samples.items()]
        if minutes >= JUDGED_FROM_MINUTES:
            self.assertEqual([g for g in grown if g], [])

    def judge(self, name, samples, length):
        """Compares the part after the first fifth with the last fifth; what grew, as text."""
        early = [s for s in samples if 0.2 <= s[0] / length < 0.4] or samples[:1]
        late = [s for s in samples if s[0] / length >= 0.8] or samples[-1:]
        before, after = (statistics.median(s[1] for s in part) for part in (early, late))
        files = [statistics.median(s[2] for s in part) for part in (early, late)]
        text = "%s: %d KiB, then %d KiB (%+.1f %%); %d descriptors, then %d; %d samples" % (
            name, before, after, (after / before - 1) * 100, *files, len(samples))
        self.report("%s", text)
        return text if after > before * GROWTH or files[1] > files[0] + 8 else ""
