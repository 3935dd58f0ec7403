"""salius-mount and salius-replica killed at a system call while a session starts, a checkpoint is made, the mode
changes there and back, and a replica takes its memory over again. Then the power is cut, and recovery must find
everything that was acknowledged (I1, I2).

The points are counted in one run of the story; the ordinary run takes as many as fit its time, in an order from the
seed, --long takes each of them."""
import signal

from crash import lanes
from crash.kill_at import KILLED, KillAt, kinds
from crash.site import Site
from harness import ops
from harness.case import Case
from harness.ledger import Ledger
from harness.run import HarnessError, binary, sh, wait_until
from harness.volume import in_netns

TAU = "600ms"  # a checkpoint 0.3 s after the first record
# How often a run is repeated that ended before its point, and the share of the points that must be hit. The ordinary
# run, whose sample is small, repeats less.
TRIES, REACHED = (2, 6), (0.75, 0.9)


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

    def __init__(self, site, base, tool):
        self.site, self.tool = site, tool
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

    def back(self, index):
        """Until replica `index` is a member and keeps up."""
        def keeps_up(status):
            replica = status["replicas"][index]
            return replica["member"] and replica["connected"] and replica["lag_records"] == 0
        self.site.mount_.wait_status(keeps_up, 20, "replica %d keeps up again" % index)

    def power_cut(self, cut=True):
        """The primary's programs die; with `cut` the disk loses what was not synced."""
        site = self.site
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

    def check(self):
        done = self.site.volume.recover()
        if done.returncode != 0:
            raise AssertionError("recovery: exit %d\n%s%s" % (done.returncode, done.stdout, done.stderr))
        ops.check(self.site.backing, self.ledger)


def session_start(story):
    story.start()
    story.write(4)


def checkpoint(story):
    story.start()
    story.write(20)
    story.arm()
    story.write(4)
    story.checkpoint()
    story.write(4)


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


def reattach(story):
    """Replica 0 dies and comes back with its memory, under the tool; the mount runs free. Nearly all points are
    acknowledgements, one of which may answer many records: the writing goes on until the point is reached."""
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
    for _ in range(200 if story.tool.at else 0):
        if story.tool.killed():
            break
        story.write(1)


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
        except Exception as error:
            # A call failed: because of the kill, or this is an error.
            try:
                wait_until(story.tool.killed, 5, "")
            except HarnessError:
                raise error from None
        return story.tool.killed()

    def count_points(self, site, script):
        story = Story(site, self.bases[site], KillAt(armed=self.armed))
        try:
            self.play(story, script)
            points = story.tool.points()
        finally:
            story.power_cut()
        story.check()
        return points

    def every_point(self, script, armed, seconds, then):
        """Kills at the points of `script`, as many as there is time for, and checks after each."""
        self.armed = armed
        sites = [self.own(Site(tau=TAU)) for _ in range(self.LANES)]
        self.bases = lanes.each(sites, Base)
        # How many there are varies: counted as crowded as the cases will be, and the run that had most left out. Where a
        # story goes on until its point is reached every number can be hit: there one run on a quiet machine counts.
        counting = sites[:1] if script is reattach else sites
        counted = sorted(lanes.each(counting, lambda site: self.count_points(site, script)).values(), key=len)
        points = counted[-2:][0]
        self.report("%d points (counted: %s): %s", len(points), [len(c) for c in counted], kinds(points))
        items = [(at, after) for at in range(1, len(points) + 1) for after in (False, True)]
        self.rng.shuffle(items)

        def attempt(site, item):
            """Where it was killed ("": it ended before its point), and how often the disk alone lacked something."""
            tool = KillAt(*item, armed=armed)
            story = Story(site, self.bases[site], tool)
            try:
                killed = tool.points()[-1].split()[1] if self.play(story, script) else ""
                return [killed, then(story)]
            finally:
                story.power_cut(cut=False)
                tool.close()

        def case(site, item):
            return lanes.until_hit(lambda: attempt(site, item), self.count(*TRIES))

        cases = lanes.Cases(sites, items, case, None if self.long_run else seconds, self, script.__name__)
        done, lacking = len(cases.results), sum(lacked for _, lacked in cases.results.values())
        killed = [where for where, _ in cases.results.values() if where]
        self.report("%d of %d cases (before and after each point): %d killed (at %s), %d ended before their point; in "
                    "%d the disk alone lacked acknowledged operations", done, len(items), len(killed),
                    ", ".join(sorted(set(killed))), done - len(killed), lacking)
        reached, never = lanes.never_reached(cases.results, lambda item: item[0])
        self.report("%d of %d points hit; never reached: %s", len(reached), len(reached) + len(never), never or "none")
        if cases.failures:
            self.fail(lanes.text(cases.failures))
        if self.long_run:
            self.assertEqual(len(reached) + len(never), len(points))
        self.assertGreaterEqual(len(reached), (len(reached) + len(never)) * self.count(*REACHED),
                                "too many runs ended before their point")
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
        self.every_point(session_start, False, 12, self.and_again)

    def test_salius_mount_while_a_checkpoint_is_made(self):
        self.every_point(checkpoint, True, 12, self.after_the_primary)

    def test_salius_mount_while_it_goes_to_mode_local_and_back(self):
        self.every_point(mode_changes, True, 15, self.after_the_primary)

    def test_salius_replica_while_it_takes_its_memory_over_again(self):
        self.every_point(reattach, False, 8, self.after_the_replica)

    def test_salius_recover_after_only_the_mount_died(self):
        self.every_point(same_life, False, 10, self.after_the_primary)
