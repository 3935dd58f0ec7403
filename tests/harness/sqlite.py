"""SQLite as a workload: a writer process whose acknowledged rows go to a ledger, and the check."""
import json
import os
import sys
import threading

from harness import sqlite_reader, sqlite_writer
from harness.proc import Proc
from harness.run import current, sh


class SqliteWriter:
    """Writes rows `first`, … into `db` until killed. `wrapper`: words before the program's own,
    eatmydata for the control, or salius-run.

    `synchronous`: SQLite's own words. FULL in DELETE mode does not sync the directory after the
    journal's unlink, which is the commit. So on a bare file system only EXTRA keeps the last
    transaction, and the same on a Salius mount with names=async. With names=wait or dirsync an
    unlink is durable when it returns, and FULL is enough."""

    def __init__(self, db, journal, ledger, first, wrapper=(), synchronous="full"):
        self.ledger = ledger
        log = os.path.join(current().dir, "sqlite-writer.log")
        self.proc = Proc(list(wrapper) + [sys.executable, sqlite_writer.__file__, db, journal, synchronous,
                                     str(first)],
                         log, pipe_out=True, group=True)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self):
        for line in self.proc.popen.stdout:
            if line.endswith("\n"):
                self.ledger.ack(int(line.split()[0]))

    def wait(self, rows, timeout_s=60):
        """Waits until the ledger holds `rows` in total."""
        self.ledger.wait_total(rows, timeout_s, self.proc.alive)

    def kill(self):
        """Ends the writer; afterwards the ledger holds every acknowledgement it ever gave."""
        self.proc.kill()
        self._reader.join(30)
        self.proc.popen.stdout.close()


class Damage(AssertionError):
    """The database differs from its required content."""


def _read(db, wrapper):
    if not wrapper:
        return sqlite_reader.read(db)
    found = json.loads(sh(*wrapper, sys.executable, sqlite_reader.__file__, db).stdout)
    return {**found, "rows": {int(n): body for n, body in found.get("rows", {}).items()}}


def check(db, ledger, wrapper=()):
    """Opens the database as SQLite does after a crash, under `wrapper`: that may write to it.
    Raises Damage unless its integrity is whole, every acknowledged row exists with its bytes, and
    the rows are a prefix of those written. Returns the number of the last row."""
    found = _read(db, wrapper)
    if "error" in found:
        raise Damage("SQLite cannot read it: %s" % found["error"])
    if found["integrity"] != ["ok"]:
        raise Damage("integrity_check: %s" % found["integrity"][:5])
    rows = found["rows"]
    missing = ledger.missing(rows)
    if missing:
        raise Damage("%d acknowledged rows are missing, the first %d, the last %d, of %d" % (
            len(missing), missing[0], missing[-1], ledger.total()))
    wrong = [n for n, body in rows.items() if body != sqlite_writer.payload(n)]
    if wrong:
        raise Damage("rows with other bytes than were written: %s" % wrong[:5])
    if sorted(rows) != list(range(1, len(rows) + 1)):
        raise Damage("rows are not a prefix of what was written")
    return len(rows)
