"""Recovery on every disk that a power cut can leave: at each flush, and with any subset of the writes after it.

OptFS, section 6.1 and Table 1: a trace of the writes of append and overwrite workloads, some delayed or dropped, an
image made of the rest up to a crash point, recovered, compared with what must be there."""
import random

from crash import lanes, workload
from crash.block_log import BlockLog, Player
from crash.recording import Recording
from crash.site import DISK_MB, Site
from harness.case import Case
from harness.image import Image

WORKLOADS = (workload.Append, workload.Overwrite, workload.Names)
# Made of subsets, in the ordinary run and with --long. The first two are the paper's 400.
STATES = {"append": (200, 4000), "overwrite": (200, 4000), "names": (60, 2000)}


class State:
    """One disk to try."""

    def __init__(self, window, name, disk):
        self.window, self.name, self.disk = window, name, disk

    def __str__(self):
        return self.name


def choose_later(rng, pieces):
    """A subset of the writes that were not flushed: one missing, one alone, or any."""
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

    def recordings(self):
        """{name: Recording}, made at the same time: they mostly wait for checkpoints."""
        seeds = {kind: self.rng.random() for kind in WORKLOADS}
        done = lanes.each(WORKLOADS, lambda kind: Recording(
            kind, random.Random(seeds[kind]), self.count(4, 18), 14, self.count(16, 60)))
        made = {kind.__name__.lower(): recording for kind, recording in done.items()}
        for name, recording in sorted(made.items()):
            self.report("%s: %d requests, %d of them flushes, in %d windows (%d spoiled by a slow machine)", name,
                        len(recording.player.requests), len(recording.player.flushes), len(recording.windows),
                        recording.spoiled)
        return made

    def subsets(self, name, recording, wanted):
        """`wanted` different states: a crash point, all up to the last flush before it, a subset of what came after."""
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
            text = "%s, %s: crash after request %d, %d of %d blocks since flush %d (%s)" % (
                name, window.what, point, len(later), len(pieces), flush, kind)
            states.append(State(window, text, player.disk(flush, later)))
        return states

    @staticmethod
    def at_flushes(name, recording):
        """A state for each flush after which the disk is another than after the one before it."""
        player, states, last = recording.player, [], -1
        for window in recording.windows:
            for position in (i + 1 for i in player.flushes if window.begin <= i + 1 <= window.end):
                if player.pieces(max(last, 0), position) or last < 0:
                    text = "%s, %s: flush at request %d" % (name, window.what, position)
                    states.append(State(window, text, player.disk(position)))
                last = position
        return states

    def recovered(self, sites, states):
        """Recovers every one; how many did not hold everything before."""
        lacking = []

        def case(site, state):
            window = state.window
            site.put_disk(state.disk)
            site.put_memory(window.memory)
            if workload.content(site.backing) not in window.allowed:
                lacking.append(state)
            done = site.volume.recover()
            if done.returncode != 0:
                raise AssertionError("exit %d\n%s%s" % (done.returncode, done.stdout, done.stderr))
            found = workload.content(site.backing)
            if found not in window.allowed:
                raise AssertionError("not what was acknowledged:\n" + workload.difference(window.allowed[0], found))

        cases = lanes.Cases(sites, states, case)
        if cases.failures:
            self.fail(lanes.text(cases.failures))
        return len(lacking)

    def test_disks_made_of_subsets_of_the_unsynced_writes_and_of_every_flush_are_recovered(self):
        made = self.recordings()
        sites = [self.own(Site(m=2, acks=1)) for _ in range(self.LANES)]
        for name, recording in sorted(made.items()):
            states = self.subsets(name, recording, self.count(*STATES[name]))
            lacking = self.recovered(sites, states)
            self.report("%s: %d disk states of unsynced writes recovered; %d of them lacked acknowledged data before",
                        name, len(states), lacking)
            self.assertEqual(len(states), self.count(*STATES[name]), "too few writes to make them of")
            self.assertGreater(lacking, 0, "no state needed recovery: they prove nothing")
            states = self.at_flushes(name, recording)
            lacking = self.recovered(sites, states)
            self.report("%s: %d flush points recovered; %d of them lacked acknowledged data before", name, len(states),
                        lacking)
            self.assertGreater(lacking, 0, "no flush point needed recovery: they prove nothing")

    def bare(self, sync):
        """Append on the recorded disk without Salius; of how many crashes right after an acknowledgement the disk
        lacks something acknowledged, and of how many."""
        image = Image("bare", "ext4", DISK_MB, ("-b", "4096"), directory="/dev/shm")
        log = self.own(BlockLog(image))
        work = workload.Append(image.path, self.rng, sync)
        acked = []
        for _ in range(30):
            work.step()
            acked.append((log.position(), work.model()))
        work.close()
        image.umount()
        player = Player(log.base, log.requests())
        log.close()
        copy = self.own(Image("copy", "ext4", DISK_MB, ("-b", "4096"), directory="/dev/shm"))
        lost = 0
        for position, model in acked:
            copy.umount()
            player.disk(position).write(copy.file)
            copy.mount()
            found = workload.content(copy.path)
            found.pop("lost+found", None)
            lost += found != model
        return lost, len(acked)

    def test_control_on_the_bare_disk_real_syncs_lose_nothing_and_pretended_ones_are_seen(self):
        lost, crashes = self.bare(sync=True)
        self.report("O_SYNC on bare ext4: %d of %d crashes lost acknowledged data", lost, crashes)
        self.assertEqual(lost, 0)
        lost, crashes = self.bare(sync=False)
        self.report("without: %d of %d", lost, crashes)
        self.assertEqual(lost, crashes)
