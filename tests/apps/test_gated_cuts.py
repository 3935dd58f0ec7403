"""Unmodified programs under external synchrony, whose power is cut: all that they had printed is there
after the recovery. They sync as usual, or not at all: an output waits for everything before it.

At a mount the volume is then a state that it had (I2). A direct volume promises only what was
printed.
"""
import contextlib
import os
import sqlite3
import sys

from fault.test_mount_run import MountCase
from harness.direct import DirectCase, whole_lines
from harness.rig import SMALL_LOG
from harness.run import sh

# Each prints its n-th line when it has done its n-th work in the directory: the first word is n. They
# end with the first error.
ROWS = """
import sqlite3, sys
db = sqlite3.connect(sys.argv[1] + "/db", isolation_level=None)
db.execute("pragma journal_mode = wal")
db.execute("pragma synchronous = full")
db.execute("create table rows (n integer)")
n = 0
while True:
    n += 1
    db.execute("insert into rows values (?)", (n,))
    print(n, flush=True)
"""
COMMITS = """
set -e; git init -q -b main "$0"; cd "$0"; n=0
while n=$((n + 1)); do
    echo $n > f$n; git add f$n; git commit -q -m $n; head=$(git rev-parse HEAD); echo $n $head
done
"""
BUILDS = """
set -e; cd "$0"; n=0
while n=$((n + 1)); do
    echo "int main(void) { return $n % 100; }" > p$n.c
    gcc -c -o p$n.o p$n.c; gcc -o p$n p$n.o; echo $n
done
"""
NAMES = {"GIT_%s_%s" % (who, what): value for who in ("AUTHOR", "COMMITTER")
         for what, value in (("NAME", "n"), ("EMAIL", "e@example"))}


class Programs:
    """The programs and their checks. A part of a Case."""

    WHOLE = False  # the volume is one of its earlier states

    def program(self, directory, *command):
        """Starts the command under the gate, in a new directory of the volume."""
        return self.start(*command, directory, env=dict(os.environ, GIT_CONFIG_NOSYSTEM="1", HOME=directory, **NAMES))

    def cuts(self, least, most, check, *command):
        """Cuts the power after `least` to `most` lines, again and again. `check` gets the volume's
        directory and the lines."""
        printed = 0
        for number in self.rounds("cuts", self.count(2, 40), lambda: "%d lines" % printed):
            name = "cut%d-%s" % (number, command[0].rpartition("/")[2])
            lines = self.lines_before_a_cut(name, self.rng.randint(least, most), *command)
            self.assertEqual([int(line.split()[0]) for line in lines], list(range(1, len(lines) + 1)))
            check(os.path.join(self.rig_.backing, name), lines)
            printed += len(lines)
        self.report("%d lines printed, all there", printed)

    def check_rows(self, directory, lines):
        with contextlib.closing(sqlite3.connect(directory + "/db")) as db:
            self.assertEqual(db.execute("pragma integrity_check").fetchone(), ("ok",))
            found = [n for n, in db.execute("select n from rows order by n")]
        self.assertEqual(found, list(range(1, len(found) + 1)))
        self.assertGreaterEqual(len(found), len(lines))

    def check_commits(self, directory, lines):
        def git(*words):
            return sh("git", "-c", "safe.directory=*", "-C", directory, *words).stdout.split()

        last = lines[-1].split()[1]
        self.assertEqual(list(map(int, git("log", "--format=%s", last))), list(range(len(lines), 0, -1)))
        for n in range(1, len(lines) + 1):
            self.assertEqual(git("show", "%s:f%d" % (last, n)), [str(n)])
        if self.WHOLE:
            git("fsck", "--strict")
            git("merge-base", "--is-ancestor", last, "main")

    def check_builds(self, directory, lines):
        for n in range(1, len(lines) + 1):
            self.assertEqual(sh("%s/p%d" % (directory, n), check=False).returncode, n % 100)

    def test_sqlite(self):
        self.cuts(30, 300, self.check_rows, sys.executable, "-c", ROWS)

    def test_git(self):
        self.cuts(2, 12, self.check_commits, "sh", "-c", COMMITS)

    def test_compiler(self):
        self.cuts(2, 8, self.check_builds, "sh", "-c", BUILDS)


class AtAMount(Programs, MountCase):

    OPTIONS = None  # each cut mounts
    INIT = (*SMALL_LOG, "--delta", "500ms")
    WHOLE = True

    def lines_before_a_cut(self, name, count, *command):
        self.rig_.mount("recover=auto,commit=external", mode="replicated")
        os.mkdir(self.rig_.file(name))
        run = self.program(self.rig_.file(name), *command)
        lines = [run.popen.stdout.readline().strip() for _ in range(count)]
        self.rig_.power_cut(shutdown_first=self.rng.random() < 0.5, also=run.kill_group)
        lines += whole_lines(run.popen.stdout.read())
        done = self.rig_.volume.recover()
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return lines


class OnADirectVolume(Programs, DirectCase):

    def lines_before_a_cut(self, name, count, *command):
        os.mkdir(self.path(name))
        run = self.program(self.path(name), *command)
        lines = [run.popen.stdout.readline().strip() for _ in range(count)]
        return lines + self.cut_lines(run)

    def program(self, directory, *command):
        return self.start(*command, directory, options=("--commit=external",),
                          env=dict(os.environ, GIT_CONFIG_NOSYSTEM="1", HOME=directory, **NAMES))
