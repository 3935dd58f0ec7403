"""SQLite as a workload: a writer process whose acknowledged rows go to a ledger, and the check."""
import os
import sqlite3
import sys
import threading

from harness import sqlite_writer
from harness.proc import Proc
from harness.run import current


class SqliteWriter:
    """Writes rows `first`, … into `db` until killed. `wrapper`: eatmydata, for the control.

    `synchronous`: SQLite's own words. FULL in DELETE mode does not sync the directory after the
    journal's unlink, which is the commit. So on a bare file system only EXTRA keeps the last
    transaction, and the same on a Salius mount with names=async. With names=wait or dirsync an
    unlink is durable when it returns, and FULL is enough."""

    def __init__(self, db, journal, ledger, first, wrapper=(), synchronous="full"):
        self.ledger = ledger
        log = os.path.join(current().dir, "sqlite-writer.log")
        self.proc = Proc(list(wrapper) + [sys.executable, sqlite_writer.__file__, db, journal, synchronous,
                                     str(first)],
                         log, pipe_out=True)
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


def check(db, ledger):
    """Opens the database as SQLite does after a crash. Raises Damage unless its integrity is whole,
    every acknowledged row exists with its bytes, and the rows are a prefix of those written.
    Returns the number of the last row."""
    connection = sqlite3.connect(db, timeout=30)
    try:
        try:
            verdict = [row[0] for row in connection.execute("PRAGMA integrity_check")]
            if verdict != ["ok"]:
                raise Damage("integrity_check: %s" % verdict[:5])
            rows = dict(connection.execute("SELECT n, body FROM ledger ORDER BY n"))
        except sqlite3.DatabaseError as error:
            raise Damage("SQLite cannot read it: %s" % error) from None
    finally:
        connection.close()
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
