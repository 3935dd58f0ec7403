"""PostgreSQL as a workload: the server, psql clients that insert numbered rows, pgbench beside them.

The server runs as user postgres on a data directory in the volume; sockets, logs and ledger are
outside of it.
"""
import hashlib
import os
import shutil
import signal
import threading

from harness.proc import Proc, tail
from harness.run import HarnessError, current, sh, wait_until
from harness.volume import as_user

BIN = "/usr/lib/postgresql/15/bin"
AS_POSTGRES = as_user("postgres")


def payload(stream, number):
    return hashlib.md5(b"%d/%d" % (stream, number)).hexdigest() * (1 + number % 20)


class Postgres:
    """A cluster in `data`, which initdb must create. `wrapper`: words before the server's own, as
    user postgres: eatmydata for the control, or salius-run."""

    _serial = 0

    def __init__(self, data, wrapper=()):
        Postgres._serial += 1
        self.data, self.wrapper = data, list(wrapper)
        self.sockets = os.path.join(current().dir, "postgres%d" % Postgres._serial)
        self.log = os.path.join(current().dir, "postgres%d.log" % Postgres._serial)
        os.mkdir(self.sockets, 0o755)
        shutil.chown(self.sockets, "postgres", "postgres")
        self.proc = None

    def initdb(self):
        os.mkdir(self.data, 0o700)
        shutil.chown(self.data, "postgres", "postgres")
        sh(*AS_POSTGRES, *self.wrapper, BIN + "/initdb", "-D", self.data, "--data-checksums", "--locale=C.UTF-8",
           "-E", "UTF8", "-A", "trust", timeout=300)

    def start(self):
        """Starts the server. Returns when it answers a query; after a crash, that is when its own
        recovery is done."""
        # The machine has booted since: the process ids may be in use, or not reaped yet.
        for left in (os.path.join(self.data, "postmaster.pid"), os.path.join(self.sockets, ".s.PGSQL.5432.lock")):
            if os.path.exists(left):
                os.unlink(left)
        # Small shared_buffers and segments give dirty pages and WAL recycling even in a short run.
        self.proc = Proc(AS_POSTGRES + self.wrapper + [BIN + "/postgres", "-D", self.data, "-k", self.sockets, "-h", "",
                                         "-c", "shared_buffers=16MB", "-c", "checkpoint_timeout=30s",
                                         "-c", "max_wal_size=64MB", "-c", "autovacuum=on"], self.log)
        wait_until(self._ready, 120, lambda: "postgres does not answer; log:\n" + tail(self.log), 0.05)
        return self

    def _ready(self):
        if not self.proc.alive():
            raise HarnessError("postgres ended; log:\n" + tail(self.log))
        return self.query("SELECT 1", check=False) == "1"

    def psql_argv(self):
        return AS_POSTGRES + [BIN + "/psql", "-h", self.sockets, "-qAtX", "-v", "ON_ERROR_STOP=1", "postgres"]

    def query(self, sql, check=True):
        done = sh(*self.psql_argv(), "-c", sql, check=False)
        if done.returncode != 0:
            if check:
                raise Damage("%s: %s" % (sql[:60], done.stderr))
            return None
        return done.stdout.strip()

    def pgbench_init(self):
        sh(*AS_POSTGRES, BIN + "/pgbench", "-h", self.sockets, "-i", "-q", "-s", "1", "postgres", timeout=300)

    def pgbench(self):
        """Starts pgbench's TPC-B load, which runs until it is killed; returns a Proc."""
        return Proc(AS_POSTGRES + [BIN + "/pgbench", "-h", self.sockets, "-n", "-c", "2", "-T", "3600", "postgres"],
                    os.path.join(current().dir, "pgbench.log"))

    def make_ledger_table(self):
        self.query("CREATE TABLE ledger(stream int, n int, body text NOT NULL, PRIMARY KEY(stream, n))")

    def kill(self):
        """Kills every process of the server: each backend has a session of its own."""
        if self.proc:
            self.proc.kill_tree()
            self.proc = None

    def shutdown(self):
        """Stops it cleanly (SIGINT, fast mode)."""
        self.proc.signal(signal.SIGINT)  # salius-run passes it on
        self.proc.wait(60)
        self.proc = None

    close = kill


class Damage(AssertionError):
    """The database differs from its required content."""


class PsqlWriter:
    """A psql coprocess that inserts rows (stream, first), (stream, first + 1), …, one transaction
    each. A row is acknowledged when the server's answer to its INSERT has arrived."""

    def __init__(self, server, ledger, stream, first):
        self.ledger, self.stream, self.first = ledger, stream, first
        self.proc = Proc(server.psql_argv(), os.path.join(current().dir, "psql.log"), pipe_in=True, pipe_out=True)
        self._thread = threading.Thread(target=self._write, daemon=True)
        self._thread.start()

    def _write(self):
        number = self.first
        try:
            while True:
                self.proc.popen.stdin.write("INSERT INTO ledger VALUES (%d, %d, '%s') RETURNING n;\n" % (
                    self.stream, number, payload(self.stream, number)))
                self.proc.popen.stdin.flush()
                if self.proc.popen.stdout.readline() != "%d\n" % number:
                    return
                self.ledger.ack(number, self.stream)
                number += 1
        except (BrokenPipeError, ValueError):
            pass

    def kill(self):
        self.proc.kill()
        self._thread.join(30)
        self.proc.popen.stdout.close()


def check(server, ledger):
    """Raises Damage unless every acknowledged row exists with its bytes, each stream is a prefix,
    and pgbench's books balance. Returns {stream: last number}."""
    last = {}
    rows = server.query("SELECT stream, n, body FROM ledger ORDER BY stream, n")
    found = {}
    for line in rows.splitlines():
        stream, number, body = line.split("|")
        if body != payload(int(stream), int(number)):
            raise Damage("row %s/%s has other bytes than were written" % (stream, number))
        found.setdefault(int(stream), []).append(int(number))
    for stream in set(ledger.streams()) | set(found):
        missing = ledger.missing(found.get(stream, ()), stream)
        if missing:
            raise Damage("stream %d: %d acknowledged transactions are missing, first %d, last %d" % (
                stream, len(missing), missing[0], missing[-1]))
        if found.get(stream, []) != list(range(1, len(found.get(stream, [])) + 1)):
            raise Damage("stream %d is not a prefix" % stream)
        last[stream] = len(found.get(stream, ()))
    if server.query("SELECT to_regclass('pgbench_history') IS NOT NULL") == "t":
        sums = server.query("SELECT (SELECT sum(abalance) FROM pgbench_accounts), (SELECT sum(bbalance) FROM "
                            "pgbench_branches), (SELECT sum(tbalance) FROM pgbench_tellers), "
                            "(SELECT coalesce(sum(delta), 0) FROM pgbench_history)")
        if len(set(sums.split("|"))) != 1:
            raise Damage("pgbench's books do not balance: " + sums)
    return last


def amcheck(server):
    """Checks every index against its heap with PostgreSQL's own verifier."""
    server.query("CREATE EXTENSION IF NOT EXISTS amcheck")
    sh(*AS_POSTGRES, BIN + "/pg_amcheck", "-h", server.sockets, "--heapallindexed", "-d", "postgres", timeout=300)


def check_pages(data):
    """Checks the checksum of every page of a cluster whose server was shut down."""
    sh(*AS_POSTGRES, BIN + "/pg_checksums", "--check", "-D", data, timeout=300)
