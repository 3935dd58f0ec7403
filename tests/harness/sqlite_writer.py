"""Writes one transaction per row into an SQLite database; prints "NUMBER MICROSECONDS" after each
COMMIT.

usage: sqlite_writer.py DB {wal|delete} {full|extra} FIRST [COUNT]

It writes rows FIRST, FIRST+1, …: COUNT of them, or until it is killed. MICROSECONDS is the time of
the transaction. Stand-alone, so that it can run under eatmydata and die like any program.
"""
import os
import sqlite3
import sys
import time


def payload(number):
    """Returns the content of a row, unique to it; between 20 and 3,000 bytes."""
    return ("row %d " % number) * (3 + number * 7919 % 250)


def connect(path, journal, synchronous):
    db = sqlite3.connect(path, isolation_level=None, timeout=30)
    mode = db.execute("PRAGMA journal_mode=" + journal).fetchone()[0]
    if mode != journal:
        raise SystemExit("journal mode is %s, not %s" % (mode, journal))
    db.execute("PRAGMA synchronous=" + synchronous)
    db.execute("PRAGMA wal_autocheckpoint=200")  # several WAL checkpoints in a short run
    return db


def main():
    path, journal, synchronous, first = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])
    db = connect(path, journal, synchronous)
    db.execute("CREATE TABLE IF NOT EXISTS ledger(n INTEGER PRIMARY KEY, body TEXT NOT NULL)")
    db.execute("CREATE INDEX IF NOT EXISTS by_body ON ledger(body)")
    number = first
    last = first + int(sys.argv[5]) - 1 if len(sys.argv) > 5 else float("inf")
    while number <= last:
        began = time.perf_counter_ns()
        db.execute("BEGIN")
        db.execute("INSERT INTO ledger VALUES(?, ?)", (number, payload(number)))
        db.execute("COMMIT")
        os.write(1, b"%d %d\n" % (number, (time.perf_counter_ns() - began) // 1000))
        number += 1


if __name__ == "__main__":
    main()
