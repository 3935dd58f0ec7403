"""Rethink the Sync, figure 3: a program writes, syncs and shows a number outside; the power is cut; is
each write there whose number was recorded? The cuts are tests of the fault suite, in processes of
their own. This part runs them and makes their table.
"""
import os
import re
import subprocess
import sys
from dataclasses import dataclass

from harness.run import NAMESPACE_MARK, HarnessError

TITLE = "Rethink the Sync, figure 3: power cuts"
SUITES = ("fault/test_gate_cuts.py", "fault/test_mount_cuts.py")
GROUNDS = {
    "test_gate_cuts.py::PowerCuts": "direct volume on ext4",
    "test_gate_cuts.py::BareFileSystem": "bare ext4",
    "test_mount_cuts.py::PowerCuts": "mount over ext4",
    "test_mount_cuts.py::PowerCutsOnXfs": "mount over XFS",
}
TIMEOUT_S = 4 * 3600


@dataclass
class Sizes:
    rounds: int = 1
    cuts: int = 200  # of each row

    @staticmethod
    def short():
        return Sizes(cuts=20)


def rows(text):
    """Returns [(ground, program, writes recorded, cuts that lost one)] of the suite's output."""
    found, ground = [], None
    for line in text.splitlines():
        begun = re.match(r"(?:test \d+ of \d+: )?fault/(test_\w+\.py::\w+)::\w+ \.\.\.$", line)
        if begun:
            ground = GROUNDS[begun[1]]
        report = re.match(r"    test_\w+: (.+): (\d+) writes recorded(?:; (\d+) cuts lost a recorded write|, all there)$", line)
        if report:
            if ground is None:
                raise HarnessError("no test began before its report: " + line)
            found.append((ground, report[1], int(report[2]), int(report[3] or 0)))
    return found


def lines(found, cuts):
    """Returns lines of Markdown."""
    return ["The power was cut %d times in each row. `outside`: the program syncs and runs without" % cuts,
            "`salius-run`. `ordered` and `fsync=osync` promise order and no durability: their syncs do not",
            "wait. `no sync` is the control. After each cut of a mount the tests also check that no write is",
            "there without all before it.", "",
            "| ground | program | writes that were recorded | cuts that lost one |", "|---|---|---|---|",
            *("| %s | %s | %d | %d |" % row for row in found)]


def measure(sizes):
    env = {name: value for name, value in os.environ.items() if name != NAMESPACE_MARK}
    words = [sys.executable, "-m", "harness", *(["--long"] if sizes.cuts == 200 else []), *SUITES]
    done = subprocess.run(words, cwd=os.path.dirname(os.path.dirname(os.path.abspath(__file__))), env=env,
                          stdout=subprocess.PIPE, text=True, timeout=TIMEOUT_S, check=False)
    if done.returncode != 0:
        raise HarnessError("the cuts failed:\n" + done.stdout[-4000:])
    return [], lines(rows(done.stdout), sizes.cuts), True
