"""Unmodified programs under external synchrony: they answer as in a plain directory, and their syncs
return early."""
import os
import re

from apps import test_direct_programs
from harness.direct import read_stats

SQLITE = ("pragma journal_mode = wal; pragma synchronous = full; create table if not exists rows (n); "
          "insert into rows values (1); insert into rows values (2); select count(*) from rows")
POOL = ("import multiprocessing, subprocess; pool = multiprocessing.Pool(2); print(pool.map(abs, [-1, -2])); "
        "pool.close(); pool.join(); print(subprocess.check_output(['echo', 'x']))")
GIT = ("set -e; cd @; git init -q -b main; git config core.fsync all; for n in 1 2 3; do echo $n > f$n; git add f$n; "
       "git commit -q -m $n; done; git gc -q; git fsck --strict; git log --format='%H %s'")


class Gated(test_direct_programs.Programs):

    def gated(self, work, *command, env=None):
        """Returns how many syncs returned early."""
        done = self.both_gated(work, command, env)
        found = re.search(r"(\d+) syncs returned early", done)
        self.report("%s: %s; %s", work, found.group(0), read_stats(done))
        return int(found.group(1))

    def both_gated(self, work, command, env):
        texts = []
        real = self.run_once

        def keep(*words, **keywords):
            done = real(*words, **keywords)
            texts.append(done.stderr)
            return done

        self.run_once = keep
        try:
            self.both(work, *command, options=("--stats", "--commit=external"), env=env)
        finally:
            self.run_once = real
        return texts[-1]

    def test_sqlite(self):
        self.assertGreater(self.gated("sqlite", "sh", "-c", "for i in 1 2 3; do sqlite3 @/db '%s'; done" % SQLITE), 3)

    def test_pipes_of_a_shell(self):
        self.gated("shell", "sh", "-c", "seq 1 1000 | sort -r | head -3 > @/x; cat @/x; cp @/x @/y; cat @/y | wc -l")

    def test_compiler(self):
        self.gated("compiler", "sh", "-c", "echo 'int main(){return 3;}' > @/a.c; gcc -o @/a @/a.c && @/a; echo $?")

    def test_processes_of_python(self):
        self.gated("python", "python3", "-c", POOL)

    def test_git(self):
        names = {"GIT_%s_%s" % (who, what): value for who in ("AUTHOR", "COMMITTER")
                 for what, value in (("NAME", "n"), ("EMAIL", "e@example"), ("DATE", "2020-01-01T00:00:00Z"))}
        self.assertGreater(self.gated("git", "sh", "-c", GIT, env=dict(os.environ, GIT_CONFIG_NOSYSTEM="1", **names)), 10)
