"""The campaign: random schedules of overlapping real faults. `--seed N` draws the same schedules
again.

Two variables help to narrow a failure down, or to continue a run that was ended. Both print a note.

SALIUS_CAMPAIGN_EPISODES=4,7-9,57- runs only those episodes of each schedule (the last: from 57 on).
SALIUS_CAMPAIGN_WITHOUT="clock set,disk full" draws (other) schedules without these kinds.
"""
import itertools
import os
import random
from collections import Counter

from campaign import schedule
from campaign.engine import Campaign, by_kind, never_hit
from campaign.schedule import Shape
from harness.case import Case


def chosen(episodes):
    """Returns the episodes that the environment names; all by default."""
    text = os.environ.get("SALIUS_CAMPAIGN_EPISODES")
    if not text:
        return episodes
    wanted = set()
    for part in text.split(","):
        first, dash, last = part.partition("-")
        wanted |= set(range(int(first), (int(last) if last else len(episodes) if dash else int(first)) + 1))
    return [e for n, e in enumerate(episodes, 1) if n in wanted]


class RandomFaults(Case):

    def campaign(self, shape, works, faults, names=None, **kwargs):
        """`names`: the volume's; None: drawn."""
        without = os.environ.get("SALIUS_CAMPAIGN_WITHOUT", "").split(",")
        kinds = [k for k in schedule.KINDS if k.name not in without]
        for kind in schedule.KINDS:
            why = kind.missing() or ("" if kind in kinds else "SALIUS_CAMPAIGN_WITHOUT")
            if why:
                self.report("skipped: fault %s: %s", kind.name, why)
        tau, names = self.rng.choice(["2s", "5s", "30s"]), names or self.rng.choice(["wait", "async"])
        seed = self.rng.getrandbits(64)
        episodes = list(schedule.draw(random.Random(seed), shape, faults, kinds))
        some = bool(os.environ.get("SALIUS_CAMPAIGN_EPISODES"))
        if some:
            self.report("skipped: all but %d of %d episodes", len(chosen(episodes)), len(episodes))
        episodes = chosen(episodes)
        before = self.done_before("episodes", {"episodes": 0, "faults": 0, "cuts": 0, "counts": {}})
        if before["episodes"]:
            self.report("continues after episode %d of %d", before["episodes"], len(episodes))
        campaign = Campaign(shape, works, self.own, self.report, tau=tau, names=names, **kwargs)
        campaign.episode = before["episodes"]

        def totals(c):
            return {"episodes": c.episode, "faults": before["faults"] + c.faults(), "cuts": before["cuts"] + c.cuts,
                    "counts": dict(Counter(before["counts"]) + c.counts)}

        def progress(c):
            self.keep("episodes", totals(c))
            if self.long_run and c.episode % 10 == 0:
                self.report("episode %d of %d; %s", c.episode, len(episodes), c.summary())

        def missing_kinds():
            """Returns the kinds that the full count lacks; an ordinary run is too short for all of
            them."""
            return never_hit(totals(campaign)["counts"], kinds, shape) if self.long_run else []

        def episodes_left():
            """Yields the drawn episodes, and then more, to make up for faults that hit nothing: at
            most as many again."""
            more = [] if some else schedule.draw(random.Random(seed), shape, kinds=kinds)
            every = itertools.chain(episodes, itertools.islice(more, len(episodes), 2 * len(episodes)))
            for n, episode in enumerate(every):
                if n >= before["episodes"]:
                    if n >= len(episodes) and totals(campaign)["faults"] >= faults and not missing_kinds():
                        return
                    yield episode
        campaign.run(episodes_left(), progress)
        campaign.finish()
        self.report("%s", campaign.summary())
        if before["episodes"]:
            self.report("%s", "all parts of this run: %(faults)d faults in %(episodes)d episodes, %(cuts)d power cuts" %
                        totals(campaign))
        self.report("%s", ", ".join("%s %d" % kind for kind in sorted(totals(campaign)["counts"].items())))
        found = by_kind(totals(campaign)["counts"])
        self.report("faults by kind: %s", ", ".join("%s %d" % kind for kind in found.items()))
        if not some:
            self.assertGreaterEqual(totals(campaign)["faults"], faults, "faults that really hit something")
            self.assertEqual([k.name for k in kinds if k.early and not found[k.name]], [], "kinds that always come")
            self.assertEqual(missing_kinds(), [], "kinds that never hit anything")
        for note in campaign.notes if os.environ.get("SALIUS_CAMPAIGN_NOTES") else ():
            self.report("%s", note)
        return campaign

    def test_ledger_and_sqlite_on_ext4_some_replicas_may_be_lost(self):
        self.drawn(1, 2, "campaigns and soak")
        shape = Shape(*self.rng.choice([(3, 2), (3, 2), (2, 2), (3, 3)]), "ext4")
        self.campaign(shape, ["ops", "wal"], self.count(18, 200), names="async")

    def test_ledger_sqlite_and_bulk_on_xfs_one_ack(self):
        self.drawn(1, 2, "campaigns and soak")
        shape = Shape(*self.rng.choice([(2, 1), (1, 1), (3, 1)]), "xfs")
        self.campaign(shape, ["ops", "delete", "bulk"], self.count(12, 150))

    def test_postgres_and_ledger_three_replicas_two_acks(self):
        self.drawn(1, 2, "campaigns and soak")
        self.campaign(Shape(3, 2, "ext4"), ["pg", "ops"], self.count(12, 150), size_mb=1024)
