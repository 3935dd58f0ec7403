"""The tool kill_at (kill_at.cc) as tests use it: points counted, and programs killed at one of them."""
import collections
import os
import signal

from harness.run import HarnessError, binary, current

# Exit status of the tool when it killed the program.
KILLED = 128 + signal.SIGKILL


class KillAt:
    """One run of a program under the tool: `argv` goes before the program's own. `at` None only counts."""

    _serial = 0

    def __init__(self, at=None, after=False, armed=False):
        KillAt._serial += 1
        self.at, self.after = at, after
        self.report = os.path.join(current().dir, "points%d" % KillAt._serial)
        self.argv = [binary("kill_at"), "--report", self.report]
        if at is not None:
            self.argv += ["--at", str(at)] + (["--after"] if after else [])
        if armed:
            self.argv.append("--armed")
        self.argv.append("--")

    def points(self):
        """What was reached so far: a line "number call file" for each point. Then the report is gone."""
        try:
            with open(self.report) as f:
                lines = f.read().splitlines()
        except FileNotFoundError:
            raise HarnessError("kill_at made no report: %s" % " ".join(self.argv)) from None
        os.unlink(self.report)
        return lines

    def __str__(self):
        return "%s point %s" % ("after" if self.after else "before", self.at)


def kinds(points):
    """How many points of each system call, for the report: "fchownat 56, chmod 56, …"."""
    counted = collections.Counter(line.split()[1] for line in points)
    return ", ".join("%s %d" % pair for pair in counted.most_common())
