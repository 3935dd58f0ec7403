"""Kills a writer of a direct volume (SIGKILL) at each system call of a write and of its sync, before
and after the call, while another process uses the same file. The other continues, and its syncs
succeed. Then the power is cut: everything that either acknowledged is there.

In half of the cases the other is writing at that moment. In a third a replica loses its memory with
the primary (f - 1)."""
import collections

from crash import lanes
from crash.file_writer import HOWS, SLOTS, FileWriter, Wanted, build, check
from crash.kill_at import KillAt, kinds
from crash.site import Site
from harness import ops
from harness.case import Case
from harness.ledger import Ledger
from harness.run import wait_until

SECONDS = 25  # for the cases of an ordinary run, in an order from its seed
TRIES = 4  # runs for one case: the number of calls varies
WARM = 2  # operations before the one in which it is killed
BUSY = 30  # operations of the other process meanwhile
MORE = 3  # operations of the other process after the kill


class Pair:
    """The victim and the other process on one site. Their numbers continue over the power cuts."""

    def __init__(self, site):
        self.site = site
        self.ledgers = {Wanted("v", 0): Ledger(), Wanted("o", SLOTS): Ledger()}
        self.victims, self.others = self.ledgers
        self.processes = []

    def start(self, wanted, how, tool=()):
        first = max(wanted.asked, default=0) + 1
        writer = FileWriter(self.site.path, self.ledgers[wanted], first, how, wanted.ident, wanted.first_slot,
                            [*self.site.wrapper, *tool])
        self.processes.append(writer)
        return writer

    def ask(self, wanted, writer):
        writer.ask()
        wanted.asked[writer.asked] = writer.style

    def do(self, wanted, writer, count):
        for _ in range(count):
            self.ask(wanted, writer)
        ledger = self.ledgers[wanted]
        wait_until(lambda: writer.asked in ledger.acked() or not writer.proc.alive(), 60,
                   lambda: "%s waits for number %d" % (wanted.ident, writer.asked))
        if writer.asked not in ledger.acked():
            raise AssertionError("%s failed at one of its operations up to %d: %s" % (
                wanted.ident, writer.asked, writer.wait_failed()))

    def kill(self):
        for writer in self.processes:
            writer.kill()
        self.processes = []

    def power_cut(self, lose_one):
        """Cuts the power and recovers. Returns whether the disk alone lacked something."""
        site = self.site
        site.power_cut(also=self.kill)
        if lose_one:
            site.replicas[0].reboot()
        lacks = False
        try:
            check(site.backing, self.ledgers)
        except (ops.Damage, FileNotFoundError):
            lacks = True
        done = site.volume.recover()
        if done.returncode != 0:
            raise AssertionError("recovery: exit %d\n%s%s" % (done.returncode, done.stdout, done.stderr))
        check(site.backing, self.ledgers)
        return lacks


class WriterKilled(Case):
    """An ordinary run has one of the file systems, by its seed."""

    LANES = 4
    FS, NUMBER = "ext4", 0

    def attempt(self, pair, item, last):
        """Returns where the victim was killed, how many calls its operation had, and whether the
        disk alone lacked something."""
        how, at, after = item
        site = pair.site
        site.mount(mode="replicated")
        tool = KillAt(at, after, armed=True, only="calls")
        other = pair.start(pair.others, how)
        victim = pair.start(pair.victims, how, tool.argv)
        try:
            pair.do(pair.others, other, WARM)
            pair.do(pair.victims, victim, WARM)
            tool.arm()
            acked = pair.ledgers[pair.victims].acked
            for _ in range(BUSY if (at + after) % 2 else 0):
                pair.ask(pair.others, other)
            points = 0
            for _ in range(40):
                pair.ask(pair.victims, victim)
                wait_until(lambda: tool.killed() or victim.asked in acked(), 60, "the victim hangs")
                points = points or len(tool.points())
                # The point may be the call that waits for the next number.
                if tool.killed() or not (last or tool.reached()):
                    break
            pair.do(pair.others, other, MORE)
            where = tool.points()[at - 1].split()[1] if tool.killed() else ""
            lacks = pair.power_cut(lose_one=at % 3 == 0)
            return [where, points, lacks]
        finally:
            pair.kill()
            tool.close()

    def calls(self, pair, how):
        """Returns the system calls of one operation, of its sync and of the answer: ["number
        name…"]."""
        site = pair.site
        site.mount(mode="replicated")
        tool = KillAt(armed=True, only="calls")
        victim = pair.start(pair.victims, how, tool.argv)
        pair.do(pair.victims, victim, WARM)
        tool.arm()
        pair.do(pair.victims, victim, 1)
        points = tool.points()
        points = points[:max(n for n, line in enumerate(points, 1) if line.split()[1] == "write")]  # the answer
        pair.power_cut(False)
        tool.close()
        return points

    def test_killed_at_each_system_call_of_a_write_and_its_sync(self):
        self.drawn(self.NUMBER, 2, "crash points of a writer")
        build()
        pairs = [Pair(self.own(Site(direct=True, fs=self.FS))) for _ in range(self.LANES)]
        for pair in pairs:
            self.addCleanup(pair.kill)
        items = []
        for how in HOWS:
            points = max(lanes.each(pairs, lambda pair, how=how: self.calls(pair, how)).values(), key=len)
            self.report("%s: %d calls: %s", how, len(points), kinds(points))
            items += [(how, at, after) for at in range(1, len(points) + 1) for after in (False, True)]
        self.rng.shuffle(items)

        def case(pair, item):
            return lanes.until_hit(lambda last: self.attempt(pair, item, last), item[1], TRIES)
        cases = lanes.Cases(pairs, items, case, None if self.long_run else SECONDS, self)
        where = collections.Counter(where for where, *_ in cases.results.values())
        self.report("%d of %d cases; killed at %s; in %d the disk alone lacked something", len(cases.results), len(items),
                    dict(where), sum(lacks for *_, lacks in cases.results.values()))
        if cases.failures:
            self.fail(lanes.text(cases.failures))
        self.assertEqual([item for item, (hit, *_) in cases.results.items() if not hit], [], "never hit")
        self.assertGreater(sum(lacks for *_, lacks in cases.results.values()), 0, "no case needed recovery")


class WriterKilledOnXfs(WriterKilled):

    FS, NUMBER = "xfs", 1
