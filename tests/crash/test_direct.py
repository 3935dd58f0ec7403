"""Kills the coordinator of a direct volume, salius-run, at a system call during one of these
(stories.py): a session starts, a checkpoint is made, the mode changes there and back, the session
ends. The calls of its command, `cat`, count too. The writer is a process of another salius-run.

After the coordinator's death no data is reported durable. Everything that was acknowledged before
is there after a power cut."""
import contextlib

from crash.site import Site
from crash.stories import TAU, StoryCase, checkpoint, closing, mode_changes, same_life, session_start
from harness import op_writer


class CoordinatorKilled(StoryCase):
    """An ordinary run has one of the five on one of the file systems, by its seed."""

    LANES = 4
    FS, FIRST = "ext4", 0

    def setUp(self):
        super().setUp()
        self.refused = []  # the number that each writer was at when it was asked for more

    def new_site(self):
        return Site(tau=TAU, direct=True, fs=self.FS)

    def after_the_coordinator(self, story):
        if story.tool.killed() and story.writer and story.writer.proc.alive():
            self.no_success(story)
        story.power_cut()
        lacking = story.lacks()
        story.check()
        return lacking

    def no_success(self, story):
        """Asks the writer for more: its next sync must fail. (fsync(2) of a directory is the
        kernel's, and tells the truth.)"""
        story.tool.kill()  # returns when the coordinator is dead
        writer = story.writer
        asked = writer.asked
        if not any(n >= writer.first for n in writer.ledger.acked()):
            return  # it may not have joined yet
        with contextlib.suppress(BrokenPipeError):  # it has failed
            writer.proc.popen.stdin.write("\n" * 4)
        self.assertEqual(writer.wait_failed(), "EIO")
        late = [n for n in writer.ledger.acked() if n > asked and op_writer.kind(n, story.site.style) != "rename"]
        self.assertEqual(late, [], "acknowledged after the coordinator's death")
        self.refused.append(asked)

    def kill_at_every_point(self, script, armed, seconds):
        self.every_point(script, armed, seconds, self.after_the_coordinator)
        if script is not same_life:
            self.report("%d writers were asked for more after its death, and refused", len(self.refused))
            self.assertTrue(self.refused, "no writer was asked for more")

    def test_while_a_session_starts(self):
        self.drawn(self.FIRST + 0, 10, "crash points of the coordinator")
        self.kill_at_every_point(session_start, False, 8)

    def test_while_a_checkpoint_is_made(self):
        self.drawn(self.FIRST + 1, 10, "crash points of the coordinator")
        self.kill_at_every_point(checkpoint, True, 8)

    def test_while_it_goes_to_mode_local_and_back(self):
        self.drawn(self.FIRST + 2, 10, "crash points of the coordinator")
        self.kill_at_every_point(mode_changes, True, 10)

    def test_while_the_session_ends(self):
        self.drawn(self.FIRST + 3, 10, "crash points of the coordinator")
        self.every_point(closing, True, 8, self.after_the_coordinator)  # the writer has ended before

    def test_salius_recover_after_only_the_processes_died(self):
        self.drawn(self.FIRST + 4, 10, "crash points of the coordinator")
        self.kill_at_every_point(same_life, False, 10)


class CoordinatorKilledOnXfs(CoordinatorKilled):

    FS, FIRST = "xfs", 5
