#!/usr/bin/env python3
"""The programs whose time is measured. Stand-alone: each runs under salius-run, eatmydata, or as it is.

usage: programs.py sqlite DIR TRANSACTIONS LINE_EVERY | append DIR RECORDS BYTES | save DIR TIMES BYTES

Prints a line of output where a user would see one, and at the end the seconds of the work, up to the
moment at which the last line had been written: a line that waits is in them.
"""
import os
import sqlite3
import sys
import time


def say(text):
    os.write(1, (text + "\n").encode())


def sqlite(directory, transactions, line_every):
    """Transactions of one row of 1 KiB, WAL, synchronous=FULL; a line after each `line_every`."""
    database = sqlite3.connect(os.path.join(directory, "db"), isolation_level=None)
    database.execute("PRAGMA journal_mode=WAL")
    database.execute("PRAGMA synchronous=FULL")
    database.execute("CREATE TABLE IF NOT EXISTS t(k INTEGER PRIMARY KEY, v BLOB)")
    say("ready")
    began = time.monotonic()
    for i in range(1, transactions + 1):
        database.execute("INSERT INTO t(v) VALUES (?)", (os.urandom(512) + bytes(512),))
        if i % line_every == 0:
            say("%d rows" % i)
    took = time.monotonic() - began
    database.close()
    return took


def append(directory, records, size):
    """Appends a record and calls fsync, again and again; one line."""
    fd = os.open(os.path.join(directory, "log"), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.write(fd, bytes(size))
    os.fsync(fd)
    say("ready")
    began = time.monotonic()
    for _ in range(records):
        os.write(fd, bytes(size))
        os.fsync(fd)
    say("%d records" % records)
    took = time.monotonic() - began
    os.close(fd)
    return took


def save(directory, times, size):
    """Saves a text as an editor does: a new file, fsync, rename over the old one. One line at the
    end."""
    path = os.path.join(directory, "text")
    began = time.monotonic()
    for _ in range(times):
        fd = os.open(path + ".new", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        os.write(fd, bytes(size))
        os.fsync(fd)
        os.close(fd)
        os.rename(path + ".new", path)
    say("saved")
    return time.monotonic() - began


def main():
    work = {"sqlite": sqlite, "append": append, "save": save}[sys.argv[1]]
    took = work(sys.argv[2], *map(int, sys.argv[3:]))
    say("seconds %.6f" % took)


if __name__ == "__main__":
    main()
