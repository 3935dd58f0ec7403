"""Stories: short runs of a volume in which one program is killed at a system call. Then the power
is cut, and recovery must find everything that was acknowledged (I1, I2).

The points are counted in some runs of the story, calls that change a file and messages apart. Their
number varies: records are applied one by one or together, and a checkpoint may be due. gRPC sends
at varying times, and the story's own status queries are answered. So a case whose run ended before
its point is repeated. In the last attempt the writing continues past the story's end until the
point is reached: each counted number must be hit. (A recovery ends on its own: there the numbers
that all counted runs reached must be hit.)

Both kinds of run take every call that changes a file. Of the messages the ordinary run takes as
many as fit its time, in an order from the seed; --long takes each."""
import signal

from crash import lanes
from crash.kill_at import KILLED, KillAt, kinds
from harness import ops
from harness.case import Case
from harness.ledger import Ledger
from harness.run import HarnessError, binary, current, sh, wait_until
from harness.volume import in_netns

TAU = "600ms"  # a checkpoint 0.3 s after the first record
TRIES = 4  # runs for one case
TRIES_ENDING = 20  # when the program ends on its own


class Base:
    """A clean volume of one site with some acknowledged operations."""

    def __init__(self, site):
        site.mount(mode="replicated")
        writer = ops.OpWriter(site.path, style=site.style, gated=True, wrapper=site.wrapper)
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
    """One run from the base on, with one program under `tool`."""

    def __init__(self, site, base, tool, writes_until_reached=False):
        self.site, self.tool, self.writes_until_reached = site, tool, writes_until_reached
        self.points = None  # the number of its own points, once it has ended
        self.ledger = Ledger()
        for number in sorted(base.acked):
            self.ledger.ack(number)
        self.writer = None
        site.put_disk(base.disk)
        site.put_memory(base.memory)

    def mount(self, wrapper=()):
        self.site.mount(wrapper=wrapper)

    def start(self):
        """Starts the mount under the tool, from its first instruction."""
        self.mount(self.tool.argv)
        self.mode("replicated")

    def arm(self):
        """Makes points count from here on."""
        self.site.mount_.proc.signal(signal.SIGUSR1)

    def mode(self, mode):
        self.site.mount_.wait_mode(mode)

    def write(self, count):
        """Writes `count` acknowledged operations; then the writer pauses."""
        if self.writer is None:
            first = max(self.ledger.acked(), default=0) + 1
            self.writer = ops.OpWriter(self.site.path, self.ledger, first, self.site.style, gated=True,
                                       wrapper=self.site.wrapper)
        self.writer.do(count)

    def checkpoint(self):
        self.site.mount_.wait_status(lambda s: s["checkpoint"] == s["issued"], 20, "a checkpoint of everything")

    def applied(self):
        """Waits until everything written so far is applied: the applier's work for it is part of
        the story."""
        self.site.mount_.wait_status(lambda s: s["applied"] == s["issued"], 20, "everything applied")

    def back(self, index):
        """Waits until replica `index` is a member and keeps up."""
        def keeps_up(status):
            replica = status["replicas"][index]
            return replica["member"] and replica["connected"] and replica["lag_records"] == 0
        self.site.mount_.wait_status(keeps_up, 20, "replica %d keeps up again" % index)

    def end(self):
        """Ends the story. With `writes_until_reached` it writes until the point is reached. A
        call at that point has time to return."""
        self.points = len(self.tool.points())
        for _ in range(200 if self.writes_until_reached else 0):
            if self.tool.killed():
                break
            self.write(1)
            if self.site.direct:  # the writer itself sends: the coordinator answers questions
                self.mode("replicated")
        if self.tool.reached():
            wait_until(self.tool.killed, 60, "it came to its point, and is not killed there")

    def power_cut(self, cut=True):
        """Kills the primary's programs and the program under the tool; with `cut` the disk loses
        unsynced data."""
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
        """Returns whether the disk alone, before recovery, lacks something acknowledged."""
        try:
            self.check_disk()
            return False
        except (ops.Damage, FileNotFoundError):
            return True

    def check(self, *options):
        """Recovers with these options and checks that everything is there."""
        done = self.site.volume.recover(*options)
        if done.returncode != 0:
            raise AssertionError("recovery: exit %d\n%s%s" % (done.returncode, done.stdout, done.stderr))
        self.check_disk()

    def check_disk(self):
        # On a direct volume an operation that was not acknowledged may be there in part.
        ops.check(self.site.backing, self.ledger, self.site.style, torn=self.site.direct)


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
    """Kills replica 0 and starts it with its memory, under the tool; the mount runs without it.
    Nearly all points are acknowledgements, one of which may answer many records."""
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
    """Kills only the mount; salius-recover under the tool finds the whole page cache."""
    site = story.site
    story.mount()
    story.mode("replicated")
    story.write(12)
    site.mount_.kill()
    story.writer.kill()
    done = sh(*in_netns(site.volume.netns), *story.tool.argv, binary("salius-recover"), site.backing, check=False)
    if done.returncode not in (0, KILLED):
        raise HarnessError("salius-recover: exit %d\n%s%s" % (done.returncode, done.stdout, done.stderr))


def closing(story):
    """The last program ends, and the volume is drained and closed."""
    story.start()
    story.write(12)
    story.arm()
    story.writer.kill()
    story.site.mount_.umount()
    story.end()


ENDING = (same_life, closing)  # nothing makes these longer


class StoryCase(Case):
    """Plays stories, and kills a program in them. self.bases: the volume that each site's stories
    begin with."""

    def play(self, story, script):
        """Plays the story up to its end or to the kill. Returns whether it was killed."""
        try:
            script(story)
        except Exception:
            # A call failed. Either the kill caused that, and the program has reached its point by
            # now; or it is an error.
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
        """Returns the points of some runs, fewest first. They are kept: a resumed long run uses the
        same ones."""
        what = "%s %s counted" % (script.__name__, only)
        counted = self.done_before(what, None)
        if counted is None:
            # As busy as the cases will be; only a quiet machine has acknowledgements that answer
            # one record each.
            rounds, at_once = {same_life: (3, sites), closing: (2, sites), reattach: (4, sites[:1])}.get(script, (1, sites))
            counted = []
            for _ in range(rounds):
                counted += lanes.each(at_once, lambda site: self.count_points(site, script, only)).values()
            counted.sort(key=len)
            self.keep(what, counted)
        self.report("%s: %d points (counted: %s): %s", only, len(counted[-1]), [len(c) for c in counted],
                    kinds(counted[-1]))
        return counted

    def every_point(self, script, armed, seconds, then):
        """Kills before and after each point of `script` (each message for which there is time), and
        checks after each."""
        self.armed = armed
        sites = [self.own(self.new_site()) for _ in range(self.LANES)]
        self.bases = lanes.each(sites, Base)

        def attempt(site, item, last):
            """Returns where it was killed, how many points the story had, and how often the disk
            alone lacked something."""
            only, at, after = item
            tool = KillAt(at, after, armed, only)
            story = Story(site, self.bases[site], tool, writes_until_reached=last)
            try:
                self.play(story, script)
                lacking = then(story)
                points = tool.points()
                # Points after the end of the story, while it was being ended, do not belong to it.
                had = len(points) if story.points is None else story.points
                if not tool.killed() and had >= at:
                    raise AssertionError("it was not killed at its point, %s" % points[at - 1])
                return [points[-1].split()[1] if tool.killed() else "", had, lacking]
            finally:
                story.power_cut(cut=False)
                tool.close()

        tries = TRIES_ENDING if script in ENDING else TRIES
        results, failures, sure, total = {}, [], {}, 0
        for only in ("files", "messages"):
            counted = self.counted(sites, script, only)
            sure[only] = len(counted[0 if script in ENDING else -1])
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

    def crash_twice(self, story):
        """Checks that a session on the recovered volume starts, and that its work is there after
        it."""
        lacking = self.after_the_primary(story)
        story.writer = None
        story.mount()
        story.mode("replicated")
        story.write(4)
        return lacking + self.after_the_primary(story)
