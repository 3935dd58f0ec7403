"""Unmodified programs on a direct volume, under salius-run.

Each program does the same work in a plain directory and on the volume, and must answer the same.
The summary of syncs must show what docs/direct.md says of it. Then the power is cut right after an
acknowledgement, and everything that was acknowledged must be there.
"""
import glob
import os
import shutil
import signal
import subprocess
import sys

from harness.direct import DirectCase, read_stats
from harness.proc import Proc
from harness.run import current, sh, wait_until


class Programs(DirectCase):

    def both(self, work, *command, options=("--stats",), input=None, env=None, timeout=60):
        """Runs the command in the directory `work` of a plain file system, and then in that of the
        volume. The word "@" of the command stands for the directory. Returns the Stats."""
        plain = os.path.join(self.rig_.image.path, work)
        os.makedirs(plain, exist_ok=True)
        os.makedirs(self.path(work), exist_ok=True)
        expected = subprocess.run([word.replace("@", plain) for word in command], capture_output=True, text=True,
                                  timeout=timeout, input=input, env=env)
        done = self.run_once(*[word.replace("@", self.path(work)) for word in command], options=options, input=input,
                             env=env, timeout=timeout)
        self.assertEqual((done.returncode, done.stdout), (expected.returncode, expected.stdout), done.stderr)
        return read_stats(done.stderr)

    def show(self, what, stats):
        self.report("%s: %d syncs, %d of them logged, %d by fsync(2) %s", what, stats.syncs, stats.logged, stats.real,
                    stats.reasons)

    def assert_covered(self, what, stats, real=0.2):
        """Requires that at most that share of the syncs was a real one."""
        self.show(what, stats)
        self.assertGreater(stats.logged, 0)
        self.assertLessEqual(stats.real, real * stats.syncs, stats)

    def assert_all_real(self, what, stats):
        self.show(what, stats)
        self.assertGreater(stats.real, 0)
        self.assertEqual(stats.logged, 0)


# ---- databases

ROWS = 100


class Sqlite(Programs):

    SETUP = "pragma journal_mode = %s; pragma synchronous = %s; create table rows (n integer primary key, t text);\n"
    INSERT = "insert into rows values (%d, hex(randomblob(50))); select max(n) from rows;\n"

    def test_shell(self):
        # In mode truncate SQLite sets the journal's owner at each commit, when it runs as root. In
        # mode delete each journal is a new file.
        for journal, synchronous, real in (("wal", "full", 0.1), ("truncate", "full", 0.3), ("delete", "extra", 0.4)):
            text = self.SETUP % (journal, synchronous) + "".join(self.INSERT % n for n in range(1, ROWS + 1))
            stats = self.both(journal, "sqlite3", "@/db", input=text)
            self.assert_covered("sqlite3, %s" % journal, stats, real)
            self.cut_after_last_row(journal, synchronous)

    def cut_after_last_row(self, journal, synchronous):
        name = self.path(journal + ".db")
        shell = self.start("sqlite3", name, pipe_in=True)
        shell.popen.stdin.write(self.SETUP % (journal, synchronous))
        self.assertEqual(shell.popen.stdout.readline().strip(), journal)
        for n in range(1, ROWS + 1):
            shell.popen.stdin.write(self.INSERT % n)
            self.assertEqual(shell.popen.stdout.readline(), "%d\n" % n)
        self.cut(shell)
        rows = sh("sqlite3", name, "pragma integrity_check; select count(*), max(n) from rows").stdout
        self.assertEqual(rows, "ok\n%d|%d\n" % (ROWS, ROWS))


class Redis(Programs):

    def setUp(self):
        super().setUp()
        # The one program of Debian's redis-tools is the server by that name.
        self.server = os.path.join(current().dir, "redis-server")
        if not os.path.exists(self.server):
            os.symlink("/usr/bin/redis-check-rdb", self.server)
        self.socket = os.path.join(current().dir, "redis.sock")

    def command(self, directory):
        return (self.server, "--dir", directory, "--appendonly", "yes", "--appendfsync", "always", "--save", "",
                "--port", "0", "--unixsocket", self.socket)

    def ask(self, *words, check=True):
        return sh("redis-cli", "-s", self.socket, *words, check=check).stdout.strip()

    def await_server(self):
        wait_until(lambda: self.ask("ping", check=False) == "PONG", 30, "redis does not answer")

    def count_up(self):
        return [self.ask("-r", str(ROWS), "incr", "n"), self.ask("hset", "h", "a", "1"), self.ask("get", "n")]

    def test_appendfsync_always(self):
        plain = os.path.join(self.rig_.image.path, "redis")
        os.mkdir(plain)
        server = Proc(self.command(plain), self.log)
        self.addCleanup(server.kill)
        self.await_server()
        expected = self.count_up()
        self.ask("shutdown")
        self.assertEqual(server.wait(30), 0)

        server = self.start(*self.command(self.directory), options=("--stats",))
        self.await_server()
        self.assertEqual(self.count_up(), expected)
        self.ask("shutdown")
        self.assertEqual(server.wait(30), 0)
        self.assert_covered("redis", read_stats(server.tail()))

        server = self.start(*self.command(self.directory))
        self.await_server()
        self.assertEqual(self.ask("-r", str(ROWS), "incr", "n").splitlines()[-1], str(2 * ROWS))
        self.cut(server)
        server = self.start(*self.command(self.directory))
        self.await_server()
        self.assertEqual(self.ask("get", "n"), str(2 * ROWS))
        self.assertEqual(self.ask("hget", "h", "a"), "1")


class RocksDb(Programs):

    def bench(self, benchmarks, count, directory):
        return ("db_bench", "--benchmarks=" + benchmarks, "--sync=1", "--num=%d" % count, "--threads=1",
                "--db=" + directory, "--use_existing_db=0")

    def keys(self, directory):
        return len(sh("ldb", "--db=" + directory, "scan", "--no_value", "--hex").stdout.splitlines())

    def test_db_bench(self):
        done = self.run_once(*self.bench("fillseq", ROWS, self.path("rocks")), options=("--stats",))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stdout, r"(?m)^fillseq +:")
        self.assert_covered("db_bench", read_stats(done.stderr))
        self.assertEqual(self.keys(self.path("rocks")), ROWS)
        # It prints a benchmark's line when that has ended; the next one takes far longer than the cut.
        proc = self.start(*self.bench("fillseq,readrandom", ROWS, self.path("cut")), "--reads=100000000")
        for line in proc.popen.stdout:
            if line.startswith("fillseq"):
                break
        self.assertTrue(proc.alive())
        self.cut(proc)
        self.assertEqual(self.keys(self.path("cut")), ROWS)


class MariaDb(Programs):
    """Its native asynchronous I/O (io_uring or libaio) must fall back to calls that are seen."""

    MEMORY, LOG_MAX, SIZE_MB = "256MiB", "64MiB", 1024
    # Debian's default opens the redo log with O_DIRECT, which is never covered.
    BUFFERED = ("--innodb-flush-method=fsync", "--loose-innodb-log-file-buffering=ON")
    INSERT = "insert into test.rows values (%d, repeat('x', 100)); select max(n) from test.rows"

    def setUp(self):
        super().setUp()
        self.socket = os.path.join(current().dir, "mariadb.sock")

    def install(self):
        return ("mariadb-install-db", "--no-defaults", "--user=root", "--datadir=" + self.path("db"),
                "--skip-test-db", "--auth-root-authentication-method=normal")

    def server(self, *options):
        return ("mariadbd", "--no-defaults", "--user=root", "--datadir=" + self.path("db"), "--socket=" + self.socket,
                "--pid-file=" + os.path.join(current().dir, "mariadb.pid"), "--skip-networking",
                "--innodb-use-native-aio=ON", "--innodb-flush-log-at-trx-commit=1", *options)

    def ask(self, sql, check=True):
        return sh("mariadb", "--no-defaults", "--socket=" + self.socket, "-u", "root", "-N", "-B", "-e", sql,
                  check=check).stdout.strip()

    def started(self, *options):
        proc = self.start(*self.server(*options), options=("--stats",))
        wait_until(lambda: self.ask("select 1", check=False) == "1", 60,
                   lambda: "mariadbd does not answer: " + proc.tail(), 0.05)
        return proc

    def insert(self, first, last):
        for n in range(first, last + 1):
            self.assertEqual(self.ask(self.INSERT % n), str(n))

    def test_innodb(self):
        done = self.run_once(*self.install())
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        server = self.started(*self.BUFFERED)
        self.assertEqual(self.ask("select @@innodb_use_native_aio"), "0")
        self.assertIn("innodb_use_native_aio=OFF", server.tail(200))
        self.ask("create database test; create table test.rows (n int primary key, t text) engine=innodb")
        self.insert(1, 50)
        self.ask("shutdown")
        self.assertEqual(server.wait(60), 0)
        self.assert_covered("mariadbd, buffered redo log", read_stats(server.tail()), 0.5)

        server = self.started()
        self.insert(51, 100)
        self.cut(server)
        server = self.started()
        self.assertEqual(self.ask("select count(*), max(n) from test.rows").split(), ["100", "100"])
        self.assertEqual(self.ask("check table test.rows").split()[-1], "OK")
        self.ask("shutdown")
        self.assertEqual(server.wait(60), 0)
        self.show("mariadbd, redo log with O_DIRECT", read_stats(server.tail()))


class PostgreSql(Programs):
    USER, MEMORY, LOG_MAX, SIZE_MB = "postgres", "256MiB", "64MiB", 1024
    BIN = "/usr/lib/postgresql/15/bin/"

    def setUp(self):
        super().setUp()
        self.sockets = os.path.join(current().dir, "pg")
        if not os.path.exists(self.sockets):
            os.mkdir(self.sockets)
        shutil.chown(self.sockets, self.USER)

    def as_user(self, program, *words, check=True):
        return sh(*self.rig_.volume.as_user, self.BIN + program, "-h", self.sockets, *words, check=check)

    def query(self, sql, check=True):
        return self.as_user("psql", "-qAtX", "postgres", "-c", sql, check=check).stdout.strip()

    def started(self, data, start):
        server = start(self.BIN + "postgres", "-D", data, "-k", self.sockets, "-h", "", options=("--stats",))
        wait_until(lambda: self.query("select 1", check=False) == "1", 60,
                   lambda: "postgres does not answer: " + server.tail(), 0.05)
        return server

    def test_initdb_and_pgbench(self):
        data = self.path("pg")
        done = self.run_once(self.BIN + "initdb", "-D", data, "--locale=C.UTF-8", "-A", "trust", options=("--stats",))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("Success. You can now start the database server", done.stdout)
        self.show("initdb", read_stats(done.stderr))
        server = self.started(data, self.start)
        self.as_user("pgbench", "-i", "-q", "-s", "1", "postgres")
        done = self.as_user("pgbench", "-n", "-c", "2", "-t", "150", "postgres")
        self.assertIn("number of transactions actually processed: 300/300", done.stdout)
        self.assertIn("number of failed transactions: 0 ", done.stdout)
        self.assertEqual(self.query("select count(*) from pgbench_history"), "300")
        server.signal(signal.SIGINT)  # salius-run passes it on: fast shutdown
        self.assertEqual(server.wait(60), 0, server.tail())
        self.assert_covered("postgres, 300 transactions", read_stats(server.tail()), 0.5)

        server = self.started(data, self.start_contained)
        self.query("create table ledger (n int primary key)")
        for n in range(1, 21):
            self.assertEqual(self.query("insert into ledger values (%d) returning n" % n), str(n))
        self.cut(server)
        # Their pid may be in use: each namespace counts from 1.
        for left in (os.path.join(data, "postmaster.pid"), *glob.glob(os.path.join(self.sockets, ".s.PGSQL.*.lock"))):
            os.unlink(left)
        server = self.started(data, self.start_contained)
        self.assertEqual(self.query("select count(*), max(n) from ledger"), "20|20")
        self.assertEqual(self.query("select count(*) from pgbench_history"), "300")


# ---- languages and tools

PYTHON = """
import mmap, os, sys
os.chdir(sys.argv[1])
fd = os.open("synchronous", os.O_CREAT | os.O_RDWR | os.O_SYNC, 0o600)
for n in range(100):
    os.pwrite(fd, b"%512d" % n, n * 512)
print(os.path.getsize("synchronous"), flush=True)
with open("buffered", "wb") as f:
    for n in range(100):
        f.write(b"%512d" % n)
        f.flush()
        os.fsync(f.fileno())
print(os.path.getsize("buffered"), flush=True)
with open("text", "a") as f:
    for n in range(100):
        print("line", n, file=f, flush=True)
        os.fdatasync(f.fileno())
print(sum(1 for _ in open("text")), flush=True)
with open("mapped", "w+b") as f:
    f.truncate(8192)
    with mmap.mmap(f.fileno(), 8192) as m:
        m[100:106] = b"stored"
        m.flush()
print("done", flush=True)
sys.stdin.read(1)
"""

C_PROGRAM = r"""
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { WORKERS = 4, BLOCKS = 64, SIZE = 512 };
static int shared;

/* Writes BLOCKS blocks to a file of its own and to its part of the shared one. */
static void* work(void* argument) {
  const long who = (long)argument;
  char name[32], block[SIZE];
  snprintf(name, sizeof(name), "own-%ld", who);
  const int own = open(name, O_CREAT | O_WRONLY, 0600);
  for (long n = 0; n < BLOCKS; ++n) {
    memset(block, 'a' + (int)(n + who) % 26, SIZE);
    if (pwrite(own, block, SIZE, n * SIZE) != SIZE || fdatasync(own) != 0) _exit(1);
    if (pwrite(shared, block, SIZE, (who * BLOCKS + n) * SIZE) != SIZE || fsync(shared) != 0) _exit(2);
  }
  close(own);
  return NULL;
}

int main(int count, char** words) {
  if (count != 3 || chdir(words[2]) != 0) return 3;
  shared = open("shared", O_CREAT | O_RDWR, 0600);
  if (strcmp(words[1], "threads") == 0) {
    pthread_t threads[WORKERS];
    for (long i = 0; i < WORKERS; ++i) pthread_create(&threads[i], NULL, work, (void*)i);
    for (long i = 0; i < WORKERS; ++i) pthread_join(threads[i], NULL);
  } else {
    for (long i = 0; i < WORKERS; ++i) {
      if (fork() == 0) {
        work((void*)i);
        _exit(0);
      }
    }
    int status;
    while (wait(&status) > 0) {
      if (status != 0) return 4;
    }
  }
  printf("%s done\n", words[1]);
  fflush(stdout);
  getchar();
  return 0;
}
"""


def bytes_of(directory):
    """Returns {name: bytes} of the files in a directory."""
    found = {}
    for name in sorted(os.listdir(directory)):
        with open(os.path.join(directory, name), "rb") as f:
            found[name] = f.read()
    return found


class Languages(Programs):

    def check(self, what, real, *command):
        """Runs the command, which prints "done" and then waits for its input, in both directories;
        and again on the volume, with a power cut at "done"."""
        work = what.replace(" ", "-")
        self.assert_covered(what, self.both(work, *command, input=""), real)
        expected = bytes_of(os.path.join(self.rig_.image.path, work))
        self.assertEqual(bytes_of(self.path(work)), expected)
        os.mkdir(self.path(work + "-cut"))
        proc = self.start(*[word.replace("@", self.path(work + "-cut")) for word in command], pipe_in=True)
        for line in proc.popen.stdout:
            if "done" in line:
                break
        self.assertTrue(proc.alive())
        self.cut(proc)
        self.assertEqual(bytes_of(self.path(work + "-cut")), expected)

    def test_python(self):
        self.check("python", 0.1, "python3", "-c", PYTHON, "@")

    def test_threads_and_processes(self):
        program = os.path.join(current().dir, "workers")
        sh("gcc", "-O1", "-pthread", "-o", program, "-x", "c", "-", input=C_PROGRAM)
        for how in ("threads", "processes"):
            self.check("C program with " + how, 0.1, program, how, "@")


class Tools(Programs):

    def test_dd_with_oflag_sync_syncs_for_real(self):
        # It writes through descriptor 1, which is uncovered until the run ends: safe, and slow.
        stats = self.both("dd", "dd", "if=/dev/zero", "of=@/f", "bs=4k", "count=50", "oflag=sync", "status=none")
        self.assert_all_real("dd oflag=sync", stats)
        self.assertEqual(stats.reasons["stdio"], stats.real)
        self.assertEqual(os.path.getsize(self.path("dd", "f")), 50 * 4096)
        done = self.start("sh", "-c", "dd if=/dev/urandom of=%s bs=4k count=50 oflag=sync status=none && echo done && cat"
                          % self.path("g"), pipe_in=True)
        self.assertEqual(done.popen.stdout.readline(), "done\n")
        self.cut(done)
        with open(self.path("g"), "rb") as f:
            data = f.read()
        self.assertEqual(len(data), 50 * 4096)
        self.assertNotIn(bytes(4096), [data[at:at + 4096] for at in range(0, len(data), 4096)])

    GIT = ("set -e; cd @; git init -q -b main; git config core.fsync all; "
           "for n in 1 2 3 4 5; do echo $n > f$n; git add f$n; git commit -q -m $n; done; "
           "git gc -q; git fsck --strict; git log --format='%H %s'")

    def test_git(self):
        names = {"GIT_%s_%s" % (who, what): value for who in ("AUTHOR", "COMMITTER")
                 for what, value in (("NAME", "n"), ("EMAIL", "e@example"), ("DATE", "2020-01-01T00:00:00Z"))}
        env = dict(os.environ, HOME=current().dir, GIT_CONFIG_NOSYSTEM="1", **names)
        # Each object and each reference is a new file, and its first sync is a real one.
        self.assert_all_real("git", self.both("git", "sh", "-c", self.GIT, env=env))
        # git(1) does not sync the directory of a reference: sync(1) does.
        shell = self.start("sh", "-c", self.GIT.replace("@", self.path("git")).replace("for n in 1 2 3 4 5", "for n in 6 7")
                           + "; sync && echo done && cat", pipe_in=True, env=env)
        for line in shell.popen.stdout:
            if line == "done\n":
                break
        self.assertTrue(shell.alive())
        self.cut(shell)
        log = sh("git", "-C", self.path("git"), "log", "--format=%s", env=env).stdout.split()
        self.assertEqual(log, ["7", "6", "5", "4", "3", "2", "1"])
        sh("git", "-C", self.path("git"), "fsck", "--strict", env=env)


SERVICE = """#!/bin/sh
exec %s -c '
import os
fd = os.open("%s", os.O_CREAT | os.O_WRONLY | os.O_APPEND | os.O_DSYNC, 0o600)
os.write(fd, b"started\\n")
with open("%s.pid", "w") as f:
    f.write(str(os.getpid()))
os.rename("%s.pid", "%s.ready")
import signal
signal.pause()
'
"""


class Supervisor(Programs):

    def test_runit_starts_restarts_and_stops_services(self):
        folder = self.path("service")
        ready = os.path.join(current().dir, "ready")
        os.makedirs(os.path.join(folder, "s"))
        script = os.path.join(folder, "s", "run")
        with open(script, "w") as f:
            f.write(SERVICE % (sys.executable, self.path("log"), ready, ready, ready))
        os.chmod(script, 0o755)
        run = self.start_contained("runsvdir", folder, options=("--stats",))

        def started():
            wait_until(lambda: os.path.exists(ready + ".ready"), 30, lambda: "no service: " + run.tail())
            with open(ready + ".ready") as f:
                pid = f.read()
            os.unlink(ready + ".ready")
            return pid

        def control(*words):
            return sh("sv", *words, os.path.join(folder, "s")).stdout

        first = started()
        self.assertIn("run: ", control("status"))
        control("kill")
        self.assertNotEqual(started(), first)
        control("restart")
        started()
        self.assertRegex(control("-w", "20", "stop"), "ok: down")
        self.assertRegex(control("-w", "20", "start"), "ok: run")
        started()
        # SIGHUP ends runsvdir and its services (salius-run passes it on), with 111.
        os.kill(self.first_of(run), signal.SIGHUP)
        self.assertEqual(run.wait(30), 111, run.tail())
        with open(self.path("log")) as f:
            self.assertEqual(f.read(), "started\n" * 4)
        # The service syncs its log once in each life. Only the first time the file is new.
        stats = read_stats(run.tail())
        self.show("runsvdir, four starts", stats)
        self.assertEqual((stats.syncs, stats.logged), (4, 3))
        run = self.start_contained("runsvdir", folder)
        started()
        self.cut(run)
        with open(self.path("log")) as f:
            self.assertEqual(f.read(), "started\n" * 5)


class Refused(Programs):

    def check(self, program, reason):
        """The program is refused as the command, and as a program that the command starts."""
        done = self.run_once(program)
        self.assertEqual(done.returncode, 126, done.stderr)
        self.assertIn(program, done.stderr)
        self.assertIn(reason, done.stderr)
        done = self.run_once("sh", "-c", '"$0"; echo $?', program)
        self.assertEqual((done.returncode, done.stdout), (0, "126\n"), done.stderr)
        self.assertIn("salius: %s is not started: it " % program, done.stderr)
        self.assertIn(reason, done.stderr)

    def test_programs_whose_calls_are_not_seen(self):
        set_id = os.path.join(current().dir, "set-id")
        shutil.copy("/bin/true", set_id)
        shutil.chown(set_id, "nobody")
        os.chmod(set_id, 0o4755)
        self.addCleanup(os.unlink, set_id)
        for program, reason in (("/bin/busybox", "linked statically"),
                                ("/usr/sbin/gosu", "linked statically"),  # a static Go program
                                ("/usr/bin/etcdctl", "Go program"),  # a dynamic one
                                (set_id, "changes its identity")):
            self.check(program, reason)
