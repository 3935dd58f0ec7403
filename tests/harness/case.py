"""Base class of the tests: seeds, clean-up, and progress of long runs."""
import hashlib
import random
import shutil
import unittest

from harness import run as harness_run
from harness.rig import Rig


class Case(unittest.TestCase):
    """A test with self.rng, seeded by the run's seed and the test's own name."""

    def setUp(self):
        run = harness_run.current()
        self._seed_rng(self.id())
        self.long_run = run.long_run

    def _seed_rng(self, what):
        seed = "%d %s" % (harness_run.current().seed, what)
        self.rng = random.Random(int.from_bytes(hashlib.sha256(seed.encode()).digest()[:8], "little"))

    def done_before(self, what, default):
        """Returns what keep() kept in an earlier part of this run (harness/journal.py)."""
        return harness_run.current().journal.get("%s %s" % (self.id(), what), default)

    def keep(self, what, value):
        """Keeps progress of a long run."""
        harness_run.current().journal.put("%s %s" % (self.id(), what), value)

    def rounds(self, what, total, so_far):
        """Yields the numbers of the rounds that are left of `total`. A long run may end within the
        loop and continue it later, on disks and processes that the test has made again.

        A round is kept when the loop asks for the next one. The last one is kept only with the
        test, which still has work to do after it. --long prints every tenth, with so_far()."""
        first = self.done_before(what, 0)
        if first:
            self.report("continues after %d of %d %s, on new disks", first, total, what)
            # Other choices than those of the first rounds.
            self._seed_rng("%s %s %d" % (self.id(), what, first))
        for number in range(first, total):
            yield number
            done = number + 1
            if done == total:
                return
            self.keep(what, done)
            if self.long_run and done % 10 == 0:
                self.report("%d of %d %s; %s", done, total, what, so_far())

    def rig(self, *args, **kwargs):
        """Returns a Rig that is closed after the test, whatever happens."""
        rig = Rig(*args, **kwargs)
        self.addCleanup(rig.close)
        return rig

    def own(self, thing):
        """Registers thing.close() for after the test."""
        self.addCleanup(thing.close)
        return thing

    def report(self, text, *args):
        """Prints one line about the observed facts in the run's output."""
        print("    %s: %s" % (self._testMethodName, text % args if args else text), flush=True)

    def eatmydata(self):
        """Returns the words before a program's own under which its syncs do nothing: for the
        controls."""
        self.assertTrue(shutil.which("eatmydata"), "eatmydata is not installed: deploy/packages.sh")
        return ("eatmydata",)

    def drawn(self, number, of, what):
        """Draws one of `of` slow tests: an ordinary run does one of them, by its seed, and --long
        all. Skips this one, number `number`, if another was drawn."""
        chosen = harness_run.current().seed % of
        if not self.long_run and number != chosen:
            self.skipTest("%s: this run's seed chose number %d of %d, this is %d; all with --long"
                          % (what, chosen + 1, of, number + 1))

    def count(self, short, long):
        """Returns how often to do something: `short` in the ordinary run, `long` with --long."""
        return long if self.long_run else short
