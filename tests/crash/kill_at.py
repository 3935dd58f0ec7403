"""The tool kill_at (kill_at.cc) for tests: counts points, or kills a program at one of them."""
import collections
import contextlib
import itertools
import os
import signal

from harness.run import binary, current, wait_until

# Exit status of the tool when it killed the program.
KILLED = 128 + signal.SIGKILL


class KillAt:
    """One run of a program under the tool: put `argv` before the program's own. `at` None only
    counts. `only` "files" or "messages" counts only these points, "calls" every system call."""

    _serial = itertools.count(1)

    def __init__(self, at=None, after=False, armed=False, only=None):
        self.at = at
        self.report = os.path.join(current().dir, "points%d" % next(KillAt._serial))
        self.argv = [binary("kill_at"), "--report", self.report]
        if at is not None:
            self.argv += ["--at", str(at)] + (["--after"] if after else [])
        if only:
            self.argv += ["--only", only]
        if armed:
            self.argv.append("--armed")
        self.argv.append("--")

    def points(self):
        """Returns the points reached so far: a line "number call file" for each."""
        return [line for line in self._lines() if line[0].isdigit()]

    def reached(self):
        """Returns whether it reached its point. The kill may come a moment later; one after the
        call comes only when the call returns."""
        return self.at is not None and len(self.points()) >= self.at

    def arm(self):
        """Makes points count from here on, wherever the tool runs. The program must run."""
        program = self._lines()[0].split()[1]
        with open("/proc/%s/stat" % program) as f:
            os.kill(int(f.read().rpartition(")")[2].split()[1]), signal.SIGUSR1)

    def killed(self):
        return "killed" in self._lines()

    def kill(self):
        """Kills the program (SIGKILL) wherever it is. Afterwards its descriptors, locks and
        listening sockets are released. They may still be held when only the tool was killed and
        reaped."""
        lines = self._lines()
        if not lines or "ended" in lines:
            return
        with contextlib.suppress(ProcessLookupError):  # it just ended
            os.kill(int(lines[0].split()[1]), signal.SIGKILL)
        wait_until(lambda: "ended" in self._lines(), 30, "the program under kill_at does not end")

    def _lines(self):
        try:
            with open(self.report) as f:
                return [line for line in f.read().splitlines() if line]
        except FileNotFoundError:
            return []  # not started yet

    def close(self):
        if os.path.exists(self.report):
            os.unlink(self.report)


def kinds(points):
    """Returns the number of points of each system call, for the report: "fchownat 56, chmod 56,
    …"."""
    counted = collections.Counter(line.split()[1] for line in points)
    return ", ".join("%s %d" % pair for pair in counted.most_common())
