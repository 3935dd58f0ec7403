"""The events of a campaign, drawn from a seed before anything runs.

A campaign is a list of episodes. In an episode one to three faults begin one after the other and
overlap. Then the episode ends: with everything healed, or with the death of the primary under the
faults. Kinds are dealt like cards: each comes once before any comes again. `early` ones are among
the first FIRST cards, which the shortest campaign deals too.
"""
from collections import namedtuple

from campaign import fault, fault_disk, fault_host

KINDS = fault.KINDS + fault_host.KINDS + fault_disk.KINDS

# The installation for which a schedule is drawn.
Shape = namedtuple("Shape", "m f fs")

# How an episode ends. DEATHS are the primary's death: at most f - 1 replicas may have lost their
# memory then.
HEAL, UMOUNT = "healed", "umount"
HEALING = "power cut while healing"
DEATHS = ("power cut", HEALING, "daemon killed")
FIRST = 4


class Episode:
    """`pauses_ms`: before each fault. `hold_ms`: how long all of them overlap. `after`: replicas
    that lose their memory between the primary's death and its recovery. `recovery`: the way of
    recovery, with or without a mishap."""

    def __init__(self, rng, shape, faults, mortal):
        self.faults = faults
        self.pauses_ms = [rng.choice([0, 20, 100, 300]) for _ in faults]
        self.hold_ms = rng.choice([50, 200, 500, 1000, 2000])
        self.ending = rng.choices([HEAL, UMOUNT, *DEATHS], [55, 5, 20, 12, 8])[0] if mortal else HEAL
        if any(f.kills for f in faults):
            self.ending = "power cut"
        self.shutdown_first = rng.random() < 0.3
        self.disk_ahead = rng.random() < 0.3
        self.heal_order = rng.sample(range(len(faults)), len(faults))
        # Between two heals; before a cut while healing.
        self.heal_pause_ms = rng.choice([0, 0, 20, 100, 500])
        lost = set().union(*(f.loses() for f in faults))
        spare = [i for i in range(shape.m) if i not in lost]
        room = max(0, shape.f - 1 - len(lost))
        self.after = rng.sample(spare, min(rng.randint(0, room), len(spare))) if rng.random() < 0.4 else []
        self.recovery = rng.choice(["program", "program", "mount", "killed", "killed and cut", "replica killed",
                                    "stopped"])
        self.kill_recovery_ms = rng.randint(1, 150)  # until it is killed or stopped
        self.stop_recovery_ms = rng.choice([50, 500, 2500])  # how long it is stopped
        self.try_early = rng.random() < 0.5  # a recovery before anything is healed
        if any(f.mounts for f in faults):
            self.recovery, self.try_early = "mount", False

    def dies(self):
        return self.ending in DEATHS

    def lost(self):
        return set().union(*(f.loses() for f in self.faults))

    def text(self):
        parts = [f.text() for f in self.faults]
        end = self.ending
        if self.dies():
            end += " (%s%s, recovery: %s%s%s)" % (
                "disk first" if self.shutdown_first else "daemon first", ", disk ahead" if self.disk_ahead else "",
                "tried early, " if self.try_early else "", self.recovery,
                ", memory lost: %s" % self.after if self.after else "")
        return "%s; hold %d ms; %s; heal pause %d ms" % (
            " + ".join(parts) or "no fault", self.hold_ms, end, self.heal_pause_ms)


def count(episode):
    """Returns how many faults an episode has: those in it, the primary's death, and the replicas
    lost after."""
    return len(episode.faults) + (1 if episode.dies() else 0) + len(episode.after)


def draw(rng, shape, faults=None, kinds=None, mortal=True, spared=frozenset()):
    """Yields episodes, `faults` faults in all, or without end. `mortal`: the primary may die.
    `spared`: replicas, not all of them, whose processes live as long as the schedule."""
    kinds = [k for k in (kinds or KINDS) if not k.missing()]
    if not mortal:
        kinds = [k for k in kinds if not (k.kills or k.moves or k is fault_disk.DiskFull)]
    deck, total = _first_deck(rng, kinds), 0
    while faults is None or total < faults:
        dealt, used, size = [], set(), rng.choice([1, 1, 2, 2, 3])
        put_back = []
        while len(dealt) < size:
            if not deck:
                deck = rng.sample(kinds, len(kinds))
                if put_back:
                    break
            kind = deck.pop()
            card = kind.draw(rng, shape)
            while card is not None and card.ends() & spared:
                card = kind.draw(rng, shape)
            if card is None:
                continue
            if card.uses(shape) & used or (dealt and (card.solo or dealt[0].solo)) or _too_much(dealt + [card], shape):
                put_back.append(kind)
                if len(put_back) > 4:
                    break
                continue
            dealt.append(card)
            used |= card.uses(shape)
            if card.solo:
                break
        deck += put_back
        if not dealt:
            continue
        episode = Episode(rng, shape, dealt, mortal and not any(f.moves for f in dealt))
        if episode.dies() and len(episode.lost()) > shape.f - 1:
            episode.ending = HEAL  # the primary's memory is the last copy
        if not episode.dies():
            episode.after = []
        total += count(episode)
        yield episode


def _first_deck(rng, kinds):
    """Returns all kinds, to be dealt from the end, where the early ones are."""
    deck = rng.sample(kinds, len(kinds))
    early = [k for k in deck if k.early]
    late = [k for k in deck if not k.early]
    top = early + [late.pop() for _ in range(min(len(late), FIRST - len(early)))]
    return late + rng.sample(top, len(top))


def _too_much(faults, shape):
    """Returns whether an episode that the volume may not survive would also take the memory of f
    replicas."""
    lost = set().union(*(f.loses() for f in faults))
    return any(f.kills or f.moves for f in faults) and len(lost) > shape.f - 1
