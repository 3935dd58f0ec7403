"""salius-mount and salius-replica killed at a system call while a session starts, a checkpoint is made, the mode
changes there and back, and a replica takes its memory over again. Then the power is cut, and recovery must find
everything that was acknowledged (I1, I2).

The points are counted in some runs of the story, calls that change a file and messages apart. How many there are varies:
records are applied one by one or together, a checkpoint is due or not yet, gRPC sends as it likes, and the story's own
questions for the status are answered. So a case whose run ended before its point is repeated, and at last the writing
goes on behind the story's end until the point is reached: each number that was counted must be hit. (A recovery ends by
itself: there the numbers that all counted runs had.) Both runs take every call that changes a file; of the messages the
ordinary run takes as many as fit its time, in an order from the seed, --long each."""
import signal

from crash import lanes
from crash.kill_at import KILLED, KillAt, kinds
from crash.site import Site
from harness import ops
from harness.case import Case
from harness.ledger import Ledger
from harness.run import HarnessError, binary, sh, wait_until
from harness.volume import RECOVER_NOT_ENOUGH, in_netns

TAU = "600ms"  # a checkpoint 0.3 s after the first record
TRIES = 4  # runs for one case
TRIES_ENDING = 20  # when the program ends by itself


class Base:
    """A clean volume with some acknowledged operations, of one site."""

    def __init__(self, site):
        site.mount(mode="replicated")
        writer = ops.OpWriter(site.path, gated=True)
        writer.do(10)
        writer.kill()
        site.mount_.umount()
        site.mount_ = None
        site.image.umount()
        for replica in site.replicas:
            replica.kill()
        self.acked = writer.ledger.acked()
        self.disk, self.memory = site.keep_disk(), site.keep_memory()


class Story:
    """One run from the base on, the program in question under `tool`."""

    def __init__(self, site, base, tool, goes_on=False):
        self.site, self.tool, self.goes_on = site, tool, goes_on
        self.points = None  # its own, when it came to its end
        self.ledger = Ledger()
        for number in sorted(base.acked):
            self.ledger.ack(number)
        self.writer = None
        site.put_disk(base.disk)
        site.put_memory(base.memory)

    def mount(self, wrapper=()):
        self.site.mount(wrapper=wrapper)

    def start(self):
        """The mount under the tool, from its first instruction."""
        self.mount(self.tool.argv)
        self.mode("replicated")

    def arm(self):
        """From here on points count."""
        self.site.mount_.proc.signal(signal.SIGUSR1)

    def mode(self, mode):
        self.site.mount_.wait_mode(mode)

    def write(self, count):
        """`count` acknowledged operations; then the writer stands still."""
        if self.writer is None:
            first = max(self.ledger.acked(), default=0) + 1
            self.writer = ops.OpWriter(self.site.path, self.ledger, first, gated=True)
        self.writer.do(count)

    def checkpoint(self):
        self.site.mount_.wait_status(lambda s: s["checkpoint"] == s["issued"], 20, "a checkpoint of everything")

    def applied(self):
        """Everything written so far: what the applier does for it is part of the story."""
        self.site.mount_.wait_status(lambda s: s["applied"] == s["issued"], 20, "everything applied")

    def back(self, index):
        """Until replica `index` is a member and keeps up."""
        def keeps_up(status):
            replica = status["replicas"][index]
            return replica["member"] and replica["connected"] and replica["lag_records"] == 0
        self.site.mount_.wait_status(keeps_up, 20, "replica %d keeps up again" % index)

    def end(self):
        """With `goes_on`, when its point was not reached: the writing goes on until it is. A call that it came to has its
        time to return."""
        self.points = len(self.tool.points())
        for _ in range(200 if self.goes_on else 0):
            if self.tool.killed():
                break
            self.write(1)
        if self.tool.reached():
            wait_until(self.tool.killed, 60, "it came to its point, and is not killed there")

    def power_cut(self, cut=True):
        """The primary's programs die, and what is under the tool; with `cut` the disk loses what was not synced."""
        site = self.site
        if self.tool:
            self.tool.kill()
        if site.mount_:
            site.mount_.proc.kill()
        if self.writer:
            self.writer.kill()
        if cut:
            site.image.shutdown()
        if site.mount_:
            site.mount_.close()
            site.mount_ = None
        if cut:
            site.image.umount()
            site.image.mount()
        for i in range(site.m):
            site.net.heal(i)

    def lacks(self):
        """Whether the disk alone, before recovery, lacks something acknowledged."""
        try:
            ops.check(self.site.backing, self.ledger)
            return False
        except (ops.Damage, FileNotFoundError):
            return True

    def check(self, *options):
        """Recovery with these options, and everything is there."""
        done = self.site.volume.recover(*options)
        if done.returncode != 0:
            raise AssertionError("recovery: exit %d\n%s%s" % (done.returncode, done.stdout, done.stderr))
        ops.check(self.site.backing, self.ledger)


def session_start(story):
    story.start()
    story.write(4)
    story.applied()
    story.end()


def checkpoint(story):
    story.start()
    story.write(20)
    story.arm()
    story.write(4)
    story.checkpoint()
    story.write(4)
    story.applied()
    story.end()


def mode_changes(story):
    story.start()
    story.write(8)
    story.arm()
    for i in range(story.site.m):
        story.site.net.drop(i)
    story.write(4)
    story.mode("local")
    story.write(4)
    for i in range(story.site.m):
        story.site.net.heal(i)
    story.mode("replicated")
    story.write(4)
    story.applied()
    story.end()


def reattach(story):
    """Replica 0 dies and comes back with its memory, under the tool; the mount runs free. Nearly all points are
    acknowledgements, one of which may answer many records."""
    site = story.site
    replica = site.replicas[0]
    story.mount()
    story.mode("replicated")
    story.write(8)
    replica.kill()
    story.write(4)
    replica.wrapper = story.tool.argv
    try:
        replica.launch()
    finally:
        replica.wrapper = ()
    replica.wait_ready()
    story.back(0)
    story.write(8)
    story.end()


def same_life(story):
    """Only the mount died; salius-recover under the tool has all of the page cache."""
    site = story.site
    story.mount()
    story.mode("replicated")
    story.write(12)
    site.mount_.kill()
    story.writer.kill()
    done = sh(*in_netns(site.volume.netns), *story.tool.argv, binary("salius-recover"), site.backing, check=False)
    if done.returncode not in (0, KILLED):
        raise HarnessError("salius-recover: exit %d\n%s%s" % (done.returncode, done.stdout, done.stderr))


class DaemonsKilled(Case):

    LANES = 4

    def play(self, story, script):
        """The story up to its end or to the kill. True when it was killed."""
        try:
            script(story)
        except Exception:
            # A call failed: because of the kill, for which the program has come to its point by now, or this is an error.
            if not story.tool.reached():
                raise
            wait_until(story.tool.killed, 60, "it came to its point, and is not killed there")
        return story.tool.killed()

    def count_points(self, site, script, only):
        story = Story(site, self.bases[site], KillAt(armed=self.armed, only=only))
        try:
            self.play(story, script)
            points = story.tool.points()
        finally:
            story.power_cut()
        story.check()
        return points

    def counted(self, sites, script, only):
        """The points of some runs, fewest first. Kept: what a long run was begun with, it goes on with."""
        what = "%s %s counted" % (script.__name__, only)
        counted = self.done_before(what, None)
        if counted is None:
            # As crowded as the cases will be; acknowledgements that answer one record each only a quiet machine has.
            rounds, at_once = {same_life: (3, sites), reattach: (4, sites[:1])}.get(script, (1, sites))
            counted = []
            for _ in range(rounds):
                counted += lanes.each(at_once, lambda site: self.count_points(site, script, only)).values()
            counted.sort(key=len)
            self.keep(what, counted)
        self.report("%s: %d points (counted: %s): %s", only, len(counted[-1]), [len(c) for c in counted],
                    kinds(counted[-1]))
        return counted

    def every_point(self, script, armed, seconds, then):
        """Kills before and after each point of `script` (each message for which there is time), and checks after each."""
        self.armed = armed
        sites = [self.own(Site(tau=TAU)) for _ in range(self.LANES)]
        self.bases = lanes.each(sites, Base)

        def attempt(site, item, last):
            """Where it was killed, how many points the story had, and how often the disk alone lacked something."""
            only, at, after = item
            tool = KillAt(at, after, armed, only)
            story = Story(site, self.bases[site], tool, goes_on=last)
            try:
                self.play(story, script)
                lacking = then(story)
                points = tool.points()
                # What it came to behind the end of the story, while it was ended, is not the story's.
                had = len(points) if story.points is None else story.points
                if not tool.killed() and had >= at:
                    raise AssertionError("it was not killed at its point, %s" % points[at - 1])
                return [points[-1].split()[1] if tool.killed() else "", had, lacking]
            finally:
                story.power_cut(cut=False)
                tool.close()

        tries = TRIES_ENDING if script is same_life else TRIES
        results, failures, sure, total = {}, [], {}, 0
        for only in ("files", "messages"):
            counted = self.counted(sites, script, only)
            sure[only] = len(counted[0 if script is same_life else -1])
            items = [(only, at, after) for at in range(1, len(counted[-1]) + 1) for after in (False, True)]
            total += len(items)
            self.rng.shuffle(items)

            def case(site, item):
                return lanes.until_hit(lambda last: attempt(site, item, last), item[1], tries)
            cases = lanes.Cases(sites, items, case, None if self.long_run or only == "files" else seconds, self,
                                script.__name__)
            results.update(cases.results)
            failures += cases.failures
        where = sorted({where for where, *_ in results.values() if where})
        lacking = sum(lacked for *_, lacked in results.values())
        self.report("%d of %d cases (before and after each point), killed at %s; in %d the disk alone lacked "
                    "acknowledged operations", len(results), total, ", ".join(where), lacking)
        behind = [item for item, (where, short, *_) in results.items() if where and len(short) == tries]
        self.report("%d of them only behind the end of the story: %s", len(behind), sorted(behind) or "none")
        lost = lanes.not_hit(self, results, sure)
        if failures:
            self.fail(lanes.text(failures))
        self.assertEqual(lost, [], "points that must be hit")
        if self.long_run:
            self.assertEqual(len(results), total)
        self.assertGreater(lacking, 0, "no case needed recovery: they prove nothing")

    def after_the_primary(self, story):
        story.power_cut()
        lacking = story.lacks()
        story.check()
        return lacking

    def and_again(self, story):
        """A session on the recovered volume starts, and its work is there after it."""
        lacking = self.after_the_primary(story)
        story.writer = None
        story.mount()
        story.mode("replicated")
        story.write(4)
        return lacking + self.after_the_primary(story)

    def after_the_replica(self, story):
        """The volume goes on without it; then the primary dies, and one other replica loses its memory (f - 1)."""
        site = story.site
        story.write(4)
        story.power_cut()
        site.replicas[0].restart()
        site.replicas[1].reboot()
        lacking = story.lacks()
        story.check()
        return lacking

    def test_salius_mount_while_a_session_starts(self):
        self.drawn(0, 3, "crash points of the daemons")
        self.every_point(session_start, False, 8, self.and_again)

    def test_salius_mount_while_a_checkpoint_is_made(self):
        self.drawn(0, 3, "crash points of the daemons")
        self.every_point(checkpoint, True, 8, self.after_the_primary)

    def test_salius_mount_while_it_goes_to_mode_local_and_back(self):
        self.drawn(1, 3, "crash points of the daemons")
        self.every_point(mode_changes, True, 10, self.after_the_primary)

    def test_salius_replica_while_it_takes_its_memory_over_again(self):
        self.drawn(2, 3, "crash points of the daemons")
        self.every_point(reattach, False, 8, self.after_the_replica)

    def test_salius_recover_after_only_the_mount_died(self):
        self.drawn(2, 3, "crash points of the daemons")
        self.every_point(same_life, False, 10, self.after_the_primary)

    def test_control_memory_of_f_replicas_lost_with_the_primary_is_a_loss_that_is_refused_and_seen_when_forced(self):
        """The check of all these cases sees what is really lost; with f - 1 memories lost nothing is. The third replica
        is cut off, so that only f hold the records; no checkpoint comes by itself, and mode local not soon."""
        site = self.own(Site(tau="600s", more=("--delta", "2s")))
        base = Base(site)
        for lost in range(1, site.acks + 1):
            story = Story(site, base, tool=None)
            try:
                story.mount()
                story.mode("replicated")
                site.net.drop(0)
                site.write_to_replicas_alone(lambda: story.write(8))
            finally:
                story.power_cut()
            for replica in site.replicas[1:1 + lost]:
                replica.reboot()
            self.assertTrue(story.lacks(), "the disk alone has everything: the replicas were not needed")
            if lost < site.acks:
                story.check()
                continue
            with self.assertRaisesRegex(AssertionError, "recovery: exit %d" % RECOVER_NOT_ENOUGH):
                story.check("--timeout", "1")
            with self.assertRaises(ops.Damage) as caught:
                story.check("--timeout", "1", "--force")
            self.report("%d acknowledged; memory of %d replicas lost, recovery forced: %s", story.ledger.total(), lost,
                        caught.exception)
