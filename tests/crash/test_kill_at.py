"""Tests the tool itself: its counts are right, calls before the N-th are done, and none after
it."""
import fcntl
import os
import sys

from crash import lanes
from crash.kill_at import KILLED, KillAt
from harness.case import Case
from harness.proc import Proc
from harness.run import current, sh, wait_until

# Five directories by two threads and a child, in order; a message between the third and the fourth.
# Output is no point.
PROGRAM = """
import os, socket, sys, threading
def make(n):
    os.mkdir(os.path.join(sys.argv[1], str(n)))
    os.write(1, b"made\\n")
make(1)
thread = threading.Thread(target=make, args=(2,))
thread.start()
thread.join()
child = os.fork()
if child == 0:
    make(3)
    os._exit(0)
os.waitpid(child, 0)
a, b = socket.socketpair()
a.send(b"message")
make(4)
make(5)
"""


# Holds a lock for ever, and memory that takes a while to free.
HOLDER = """
import fcntl, os, signal, sys
memory = bytearray(64 << 20)
fd = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)
fcntl.flock(fd, fcntl.LOCK_EX)
os.mkdir(sys.argv[1] + ".held")
signal.pause()
"""


class Tool(Case):

    _serial = 0

    def run_under(self, **options):
        """Returns (exit status, names made, points)."""
        Tool._serial += 1
        top = os.path.join(current().dir, "kill-at%d" % Tool._serial)
        os.mkdir(top)
        tool = KillAt(**options)
        done = sh(*tool.argv, sys.executable, "-S", "-B", "-c", PROGRAM, top, check=False,
                  env={"PATH": os.environ["PATH"]})
        points = tool.points()
        tool.close()
        return done.returncode, sorted(map(int, os.listdir(top))), [" ".join(p.split()[1:]) for p in points]

    def test_points_are_counted_over_threads_and_children(self):
        code, made, points = self.run_under()
        self.assertEqual((code, made), (0, [1, 2, 3, 4, 5]))
        self.assertEqual(points, ["mkdir"] * 3 + ["sendto socket"] + ["mkdir"] * 2)
        self.assertEqual(self.run_under(only="files")[2], ["mkdir"] * 5)
        self.assertEqual(self.run_under(only="messages")[2], ["sendto socket"])

    def test_killed_before_and_after_each_point(self):
        for number in range(1, 6):
            self.assertEqual(self.killed(number, False), list(range(1, number)), number)
            self.assertEqual(self.killed(number, True), list(range(1, number + 1)), number)

    def killed(self, at, after):
        code, made, points = self.run_under(at=at, after=after, only="files")
        self.assertEqual((code, len(points)), (KILLED, at))
        return made

    def test_a_number_that_is_not_reached_lets_the_program_end(self):
        self.assertEqual(self.run_under(at=7, only="files")[:2], (0, [1, 2, 3, 4, 5]))


    def test_kill_releases_everything_the_program_held(self):
        for number in range(10):
            tool = KillAt(only="files")
            path = os.path.join(current().dir, "held%d" % number)
            holder = Proc([*tool.argv, sys.executable, "-S", "-B", "-c", HOLDER, path], path + ".log")
            try:
                wait_until(lambda: os.path.exists(path + ".held"), 30, holder.tail)
                tool.kill()
                with open(path) as lock:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                self.assertEqual((holder.wait(30), tool.killed()), (KILLED, False))
            finally:
                holder.kill()
                tool.close()


class EveryPoint(Case):
    """The loop that repeats the cases, and the judgement of the hits."""

    def test_a_case_is_repeated_until_it_is_hit_or_its_runs_are_used_up(self):
        def case(runs, tries):
            runs, lasts = iter(runs), []

            def attempt(last):
                lasts.append(last)
                return next(runs)
            return lanes.until_hit(attempt, 7, tries), lasts
        self.assertEqual(case([["", 5, 1], ["", 6, 0], ["fsync", 7, 1], ["", 9, 9]], 20),
                         (["fsync", [5, 6], 2], [False] * 3))
        self.assertEqual(case([["", 6, 1]] * 3, 3), (["", [6, 6, 6], 3], [False, False, True]))
        # In the last attempt the program continues past its end.
        self.assertEqual(case([["", 6, 1], ["write", 5, 1]], 2), (["write", [6, 5], 2], [False, True]))

    def test_point_that_was_never_hit_is_reported(self):
        hit, not_hit = ["fsync", [], 0], ["", [6, 6], 0]
        results = {("files", 6, False): hit, ("files", 6, True): hit, ("files", 7, True): not_hit,
                   ("messages", 2, False): hit}
        sure = {"files": 6, "messages": 2}
        self.assertEqual(lanes.not_hit(self, results, sure), [])
        results["files", 6, True] = results["messages", 2, True] = not_hit
        self.assertEqual(lanes.not_hit(self, results, sure), [("files", 6, True), ("messages", 2, True)])
