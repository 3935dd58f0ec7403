"""Recovery on every disk that a power cut can leave: at each flush, and with any subset of later
writes.

OptFS, section 6.1 and Table 1, does the same. It records the writes of append and overwrite
workloads and delays or drops some. It makes an image of the rest up to a crash point, recovers it,
and compares it with the required state."""
import os
import random

from crash import lanes, workload
from crash.recording import Bare, Recording
from crash.site import Site, small_image
from harness.case import Case
from harness.volume import ON_ANOTHER_HOST

# Numbers of states made of subsets, in the ordinary run and with --long. The first two are the
# paper's 400.
STATES = {"append": (200, 4000), "overwrite": (200, 4000), "names": (60, 2000), "early": (60, 2000)}


class State:
    """One disk to try: all writes up to the last flush before a crash, and the writes `later` after
    it."""

    def __init__(self, window, name, flush, later=()):
        self.window, self.name, self.flush, self.later = window, name, flush, later


def choose_later(rng, pieces):
    """Returns a subset of the unflushed writes: one missing, one alone, or any."""
    kind = rng.choice(("drop one", "keep one", "any", "any"))
    if kind == "drop one":
        gone = rng.randrange(len(pieces))
        kept = [i for i in range(len(pieces)) if i != gone]
    elif kind == "keep one":
        kept = [rng.randrange(len(pieces))]
    else:
        share = rng.choice((0.2, 0.5, 0.8))
        kept = [i for i in range(len(pieces)) if rng.random() < share]
    return kind, [pieces[i] for i in kept]


class Disks(Case):

    LANES = 2

    def recording(self, kind):
        """Returns (Recording, its seed). A resumed run identifies a state by the seed and the
        state's number. The recording itself then differs, since it depends on the machine's speed
        too."""
        seed = self.rng.getrandbits(32)
        recording = Recording(kind, random.Random(seed), self.count(4, 18), 14, self.count(16, 60))
        self.report("%d requests, %d of them flushes, in %d windows (%d spoiled by a slow machine)",
                    len(recording.player.requests), len(recording.player.flushes), len(recording.windows),
                    recording.spoiled)
        return recording, seed

    def subsets(self, recording, wanted):
        """Returns `wanted` different states: a crash point, all writes up to the last flush before
        it, and a subset of the later ones."""
        player, seen, states = recording.player, set(), []
        for _ in range(wanted * 50):
            if len(states) == wanted:
                break
            window = self.rng.choice(recording.windows)
            point = self.rng.randint(window.begin, window.end)
            flush = player.last_flush(point)
            pieces = player.pieces(flush, point)
            if len(pieces) < 2:
                continue
            kind, later = choose_later(self.rng, pieces)
            key = (flush, tuple(dict(later).items()))
            if len(later) == len(pieces) or key in seen:
                continue
            seen.add(key)
            text = "%s: crash after request %d, %d of %d blocks since flush %d (%s)" % (
                window.what, point, len(later), len(pieces), flush, kind)
            states.append(State(window, text, flush, later))
        return states

    @staticmethod
    def at_flushes(recording):
        """Returns a state for each flush that changed the disk since the flush before it."""
        player, states, last = recording.player, [], -1
        for window in recording.windows:
            for position in (i + 1 for i in player.flushes if window.begin <= i + 1 <= window.end):
                if player.pieces(max(last, 0), position) or last < 0:
                    states.append(State(window, "%s: flush at request %d" % (window.what, position), position))
                last = position
        return states

    def recovered(self, sites, player, states, what):
        """Recovers every state; returns how many lacked something before. `what` and a state's
        number are its name in the journal. Where two replicas acknowledge, each in turn has lost
        its memory."""

        def case(site, number):
            """Recovers one state; returns whether it lacked something before."""
            state = states[number]
            window = state.window
            site.put_disk(player.disk(state.flush, state.later))
            site.put_memory(window.memory, number % site.m if site.acks == 2 else None)
            lacking = workload.content(site.backing) not in window.allowed
            # The sites have one volume's disk at the same time, each as a host of its own.
            done = site.volume.recover(wrapper=ON_ANOTHER_HOST)
            if done.returncode != 0:
                raise AssertionError("%s: exit %d\n%s%s" % (state.name, done.returncode, done.stdout, done.stderr))
            found = workload.content(site.backing)
            if found not in window.allowed:
                raise AssertionError("%s: not what was acknowledged:\n%s" % (
                    state.name, workload.difference(window.allowed[0], found)))
            return lacking

        cases = lanes.Cases(sites, range(len(states)), case, None, self, what)
        if cases.failures:
            self.fail(lanes.text(cases.failures))
        self.assertEqual(len(cases.results), len(states), "states that were not tried")
        return sum(cases.results.values())

    def states_of(self, kind):
        """Recovers all the states that a crash during this workload can leave."""
        name = kind.__name__.lower()
        recording, seed = self.recording(kind)
        sites = [self.own(Site(m=2, acks=kind.acks)) for _ in range(self.LANES)]
        states = self.subsets(recording, self.count(*STATES[name]))
        lacking = self.recovered(sites, recording.player, states, "%s, recording %d, state" % (name, seed))
        self.report("%s: %d disk states of unsynced writes recovered; %d of them lacked acknowledged data before",
                    name, len(states), lacking)
        self.assertEqual(len(states), self.count(*STATES[name]), "too few writes to make them of")
        self.assertGreater(lacking, 0, "no state needed recovery: they prove nothing")
        states = self.at_flushes(recording)
        lacking = self.recovered(sites, recording.player, states, "%s, recording %d, flush" % (name, seed))
        self.report("%s: %d flush points recovered; %d of them lacked acknowledged data before", name, len(states),
                    lacking)
        self.assertGreater(lacking, 0, "no flush point needed recovery: they prove nothing")

    def test_append_disks_of_write_subsets_and_flushes_are_recovered(self):
        self.states_of(workload.Append)

    def test_overwrite_disks_of_write_subsets_and_flushes_are_recovered(self):
        self.states_of(workload.Overwrite)

    def test_names_disks_of_write_subsets_and_flushes_are_recovered(self):
        self.drawn(0, 2, "disks with names=wait and with names=async")
        self.states_of(workload.Names)

    def test_early_names_disks_of_write_subsets_and_flushes_are_recovered(self):
        self.drawn(1, 2, "disks with names=wait and with names=async")
        self.states_of(workload.Early)

    def bare(self, kind, wrapper):
        """Records this workload on the bare disk."""
        return Bare(kind, self.rng.getrandbits(32), self.count(30, 120), wrapper)

    def damaged(self, bare, states, what):
        """Returns how many of these disks lack acknowledged data, and the number of disks; none is
        an error."""
        copy = self.own(small_image("copy"))
        damaged = 0
        for state in states:
            copy.umount()
            bare.player.disk(state.flush, state.later).write(copy.file)
            copy.mount()
            damaged += workload.content(os.path.join(copy.path, bare.TOP)) not in state.window.allowed
        self.report("%s: %d of %d lack acknowledged data", what, damaged, len(states))
        self.assertTrue(states, "no states to try")
        return damaged, len(states)

    def at_acknowledgements(self, bare, wrapper, what):
        """Checks the disks right after each acknowledgement. With real syncs none lacks anything.
        Under eatmydata each does if nothing was written during its step. (The kernel writes pages
        when it likes, also without a request or long after one.)"""
        moments = [moment for moment in bare.acked if not wrapper or moment.begin == moment.end]
        self.assertGreaterEqual(len(moments), len(bare.acked) / 2, "the kernel wrote during most steps")
        damaged, crashes = self.damaged(bare, [State(moment, moment.what, moment.end) for moment in moments],
                                        what + ", right after an acknowledgement")
        self.assertEqual(damaged, crashes if wrapper else 0)

    def test_control_bare_appends_are_lost_under_eatmydata_only(self):
        for wrapper, what in ((), "real syncs"), (self.eatmydata(), "eatmydata"):
            self.at_acknowledgements(self.bare(workload.Append, wrapper), wrapper, what)

    def test_control_bare_overwrites_are_lost_under_eatmydata_only(self):
        for wrapper, what in ((), "real syncs"), (self.eatmydata(), "eatmydata"):
            bare = self.bare(workload.Overwrite, wrapper)
            self.at_acknowledgements(bare, wrapper, what)
            for kind, states in ("flush points", self.at_flushes(bare)), (
                    "disk states of unsynced writes", self.subsets(bare, self.count(40, 400))):
                damaged, _ = self.damaged(bare, states, "%s, %s" % (what, kind))
                if wrapper:
                    self.assertGreater(damaged, 0, "pretended syncs are not seen at " + kind)
                else:
                    self.assertEqual(damaged, 0)
