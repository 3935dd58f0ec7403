"""The campaign's workloads, each with its ledger: start, end, check, and continue after the check.

A workload writes below the volume's top in a directory of its own. A check raises that workload's
Damage. Now and then a workload begins a new generation: another directory or an emptied table. So
a check stays short in a run of hours. By then the old generation has had its last check, and it is
removed through the mount.
"""
import os
import shutil
import sqlite3

from harness import bulk, ops, postgres, sqlite
from harness.ledger import Ledger
from harness.proc import tail
from harness.run import HarnessError, wait_until
from harness.tree import Stopped

GENERATION = 4000  # acknowledgements after which a new generation begins


class Work:
    """`own` registers a clean-up with the test. `direct`: its data may go past the log, so that
    an error of the disk is its own and not the volume's. `ends`: the first error that it gets
    ends it."""

    name = ""
    direct = False
    ends = True
    wrapper = ()  # words before its program's own, for the controls

    def __init__(self, own):
        self.own = own
        self.ledger, self.last, self.generation = Ledger(), 0, 0
        self.acked_before = 0  # in earlier generations
        self.writer = None
        self._stopped = None

    def acked(self):
        return self.acked_before + self.ledger.total()

    def folder(self, top):
        return os.path.join(top, "%s%d" % (self.name, self.generation))

    def alive(self):
        return self.writer is not None and self.writer.proc.alive()

    def ended_with(self, error):
        """Returns whether it got this error (an errno's name)."""
        return not self.alive() and error in self.why()

    def kill(self):
        if self.writer:
            self.writer.kill()
            self.writer = None

    def processes(self):
        """Returns its first processes; their descendants belong to them."""
        return [self.writer.proc.pid] if self.alive() else []

    def stop(self):
        """Stops all processes of this workload before it returns."""
        self._stopped = Stopped(self.processes())

    def cont(self):
        """Continues the stopped processes, unless they are dead by now. Idempotent."""
        if self._stopped:
            self._stopped.cont()
            self._stopped = None

    def progress(self, count, timeout_s):
        """Waits for `count` more acknowledgements; raises for a stuck or dead writer."""
        want = self.acked() + count
        self._wait_acked(want, timeout_s)
        if not self.alive() and self.acked() < want:
            raise HarnessError("%s got an error that no fault explains: %s" % (self.name, self.why()))

    def acknowledges_or_ends(self, timeout_s):
        self._wait_acked(self.acked() + 1, timeout_s)

    def _wait_acked(self, want, timeout_s):
        wait_until(lambda: self.acked() >= want or not self.alive(), timeout_s,
                   lambda: "%s is stuck at %d acknowledgements" % (self.name, self.acked()), 0.02)

    def why(self):
        return tail(self.writer.log, 4) if self.writer else "not started"

    def next_generation(self, top):
        """Begins a new generation after a check on the mounted volume; nothing may be running."""
        if self.ledger.total() < GENERATION:
            return
        old = self.folder(top)
        self.acked_before += self.ledger.total()
        self.ledger, self.last = Ledger(), 0
        self.generation += 1
        shutil.rmtree(old)


class Ops(Work):
    """The op writer: overwrites, fsyncs, creates, renames, bursts of names and attributes; its
    check is exact (prefix)."""

    name = "ops"

    def __init__(self, own, style="early"):
        super().__init__(own)
        self.style = style

    def start(self, top):
        os.makedirs(self.folder(top), exist_ok=True)
        self.writer = ops.OpWriter(self.folder(top), self.ledger, self.last + 1, self.style, wrapper=self.wrapper)

    def check(self, top, mounted):
        try:
            self.last = ops.check(self.folder(top), self.ledger, self.style) if self._begun(top) else 0
        except FileNotFoundError as error:
            raise ops.Damage("gone as a whole: %s" % error) from None

    def _begun(self, top):
        """Returns False when the cut came before the writer's own mkdirs, and nothing was
        acknowledged."""
        return self.ledger.total() or all(
            os.path.isdir(os.path.join(self.folder(top), d)) for d in ("new", "kept"))


class Bulk(Work):
    """Ten MiB at a time past the log, then fsync."""

    name = "bulk"
    direct = True

    def start(self, top):
        os.makedirs(self.folder(top), exist_ok=True)
        self.writer = bulk.BulkWriter(self.folder(top), self.ledger, self.last + 1, wrapper=self.wrapper)

    def check(self, top, mounted):
        self.last = bulk.check(self.folder(top), self.ledger)


class Sqlite(Work):
    """One transaction per row; `journal` wal or delete."""

    def __init__(self, own, journal, synchronous="full"):
        super().__init__(own)
        self.journal, self.synchronous = journal, synchronous
        self.name = "sqlite-" + journal + "-"

    def start(self, top):
        os.makedirs(self.folder(top), exist_ok=True)
        self.writer = sqlite.SqliteWriter(os.path.join(self.folder(top), "db"), self.journal, self.ledger,
                                          self.last + 1, self.wrapper, self.synchronous)

    def check(self, top, mounted):
        """Checks on the mounted volume only: opening the database is SQLite's own recovery, which
        writes."""
        db = os.path.join(self.folder(top), "db")
        if self.ledger.total() and not os.path.exists(db):
            raise sqlite.Damage("the database is gone as a whole")
        if mounted and (self.ledger.total() or os.path.exists(db) and self._has_table(db)):
            self.last = sqlite.check(db, self.ledger)

    @staticmethod
    def _has_table(db):
        """Returns False when the cut came before CREATE TABLE was acknowledged."""
        connection = sqlite3.connect(db, timeout=30)
        try:
            return connection.execute("SELECT count(*) FROM sqlite_master WHERE name = 'ledger'").fetchone()[0] == 1
        finally:
            connection.close()

    def why(self):
        return tail(self.writer.proc.log, 4) if self.writer else "not started"


class Pg(Work):
    """A PostgreSQL server on the volume, two psql clients, pgbench beside them."""

    name = "pg"
    direct = True  # data that it writes without a sync
    ends = False
    STREAMS = 2

    def __init__(self, own):
        super().__init__(own)
        self.server, self.writers, self.bench, self.tails = None, [], None, {}

    def folder(self, top):
        return os.path.join(top, "pg")

    def start(self, top):
        if self.server is None:
            self.server = postgres.Postgres(self.folder(top), self.wrapper)
            self.own(self.server)
            self.server.initdb()
            self.server.start()
            self.server.pgbench_init()
            self.server.make_ledger_table()
        elif self.server.proc is None:
            self._serve(top)
        self.bench = self.server.pgbench()
        self.writers = [postgres.PsqlWriter(self.server, self.ledger, s, self.tails.get(s, 0) + 1)
                        for s in range(self.STREAMS)]

    def _serve(self, top):
        self.server.data = self.folder(top)  # the mount point may have changed
        self.server.start()

    def alive(self):
        return bool(self.writers) and all(w.proc.alive() for w in self.writers)

    def processes(self):
        """Returns the clients first: a client that runs beside a stopped server does nothing."""
        procs = [w.proc for w in self.writers] + [self.bench, self.server and self.server.proc]
        return [p.pid for p in procs if p and p.alive()]

    def kill(self):
        if self.server:
            self.server.kill()
        for writer in self.writers:
            writer.kill()
        if self.bench:
            self.bench.kill()
        self.writers, self.bench = [], None

    def check(self, top, mounted):
        """Leaves the server running; start() continues with it."""
        if mounted and self.server:
            self._serve(top)
            self.tails = postgres.check(self.server, self.ledger)

    def why(self):
        return tail(self.server.log, 6) if self.server else "not started"

    def next_generation(self, top):
        if self.ledger.total() >= GENERATION and self.server and self.server.proc:
            self.acked_before += self.ledger.total()
            self.server.query("TRUNCATE ledger")
            self.ledger, self.tails = Ledger(), {}


def make(works, own, names=None):
    """Returns workloads by name: ops, bulk, wal, delete, pg. `names`: the volume's; None: they run
    on a bare file system, which does not keep the order of a burst."""
    extra = "full" if names == "wait" else "extra"
    makers = {"ops": Ops if names else lambda o: Ops(o, "mixed"), "bulk": Bulk, "wal": lambda o: Sqlite(o, "wal"),
              "delete": lambda o: Sqlite(o, "delete", extra), "pg": Pg}
    return [makers[work](own) for work in works]
