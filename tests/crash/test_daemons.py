"""Kills salius-mount and salius-replica at a system call during one of these (stories.py): a session
starts, a checkpoint is made, the mode changes there and back, a replica re-attaches to its
memory."""
from crash.site import Site
from crash.stories import TAU, Base, Story, StoryCase, checkpoint, mode_changes, reattach, same_life, session_start
from harness import ops
from harness.run import current
from harness.volume import RECOVER_NOT_ENOUGH


class NamedSite(Site):
    """A site with `names`, and the style of its writers: without a wait for each name they leave
    several that one fsync covers."""

    def __init__(self, names, tau=TAU, more=()):
        super().__init__(tau=tau, more=("--names", names, *more), style="early" if names == "async" else "mixed")


class DaemonsKilled(StoryCase):
    """With names=wait. An ordinary run has this or the next class, by its seed."""

    LANES = 4
    NAMES = "wait"
    DRAWN = 0

    def setUp(self):
        super().setUp()
        self.drawn(self.DRAWN, 2, "crash points with names=wait and with names=async")

    def drawn_of_three(self, number):
        """Draws one of three groups, of each class in turn."""
        if not self.long_run and number != current().seed // 2 % 3:
            self.skipTest("crash points of the daemons: this run's seed chose group %d of 3; all with --long" %
                          (current().seed // 2 % 3 + 1))

    def new_site(self):
        return NamedSite(self.NAMES)

    def after_the_replica(self, story):
        """Lets the volume continue without the replica. Then the primary dies, and one other
        replica loses its memory (f - 1)."""
        site = story.site
        story.write(4)
        story.power_cut()
        site.replicas[0].restart()
        site.replicas[1].reboot()
        lacking = story.lacks()
        story.check()
        return lacking

    def test_salius_mount_while_a_session_starts(self):
        self.drawn_of_three(0)
        self.every_point(session_start, False, 8, self.crash_twice)

    def test_salius_mount_while_a_checkpoint_is_made(self):
        self.drawn_of_three(0)
        self.every_point(checkpoint, True, 8, self.after_the_primary)

    def test_salius_mount_while_it_goes_to_mode_local_and_back(self):
        self.drawn_of_three(1)
        self.every_point(mode_changes, True, 10, self.after_the_primary)

    def test_salius_replica_while_it_takes_its_memory_over_again(self):
        self.drawn_of_three(2)
        self.every_point(reattach, False, 8, self.after_the_replica)

    def test_salius_recover_after_only_the_mount_died(self):
        self.drawn_of_three(2)
        self.every_point(same_life, False, 10, self.after_the_primary)

    def test_control_f_memories_lost_with_the_primary_is_refused_and_seen_when_forced(self):
        """The check of all these cases sees a real loss; with f - 1 memories lost there is none.
        The third replica is cut off, so that only f hold the records. No checkpoint starts on its
        own, and mode local not soon."""
        site = self.own(NamedSite(self.NAMES, tau="600s", more=("--delta", "2s")))
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
                story.check("--timeout", "1s")
            with self.assertRaises(ops.Damage) as caught:
                story.check("--timeout", "1s", "--force")
            self.report("%d acknowledged; memory of %d replicas lost, recovery forced: %s", story.ledger.total(), lost,
                        caught.exception)


class DaemonsKilledWithAsyncNames(DaemonsKilled):
    """The same with names=async."""

    NAMES = "async"
    DRAWN = 1
