#!/usr/bin/env python3
"""The programs whose time is measured. Stand-alone: each runs under salius-run, eatmydata, or as it is.

usage: programs.py sqlite DIR TRANSACTIONS LINE_EVERY | append DIR RECORDS BYTES | save DIR TIMES BYTES
       programs.py mail DIR SECONDS | saves DIR | moves DIR | fill DIR MIB
       programs.py file DIR PATTERN BYTES SECONDS | trace DIR OPERATIONS FSYNC

Prints a line of output where a user would see one, and at the end the seconds of the work, up to the
moment at which the last line had been written: a line that waits is in them. `saves` and `moves` work
without end, and print the number of each version that is finished. `file` and `trace` work on the file
that `fill` makes; their seconds are those of 1000 operations.
"""
import itertools
import mmap
import os
import random
import signal
import sqlite3
import struct
import sys
import time

TEXT_BYTES = 64 << 10
ROWS, MOVED = 300, 50  # of `moves`: all rows, and those of one transaction


PAGE = 4096
CACHED_BYTES = 32 << 20
TRACE_PAUSE_S = 0.002  # between two operations of a trace
# Non-blocking Writes to Files, table 2: from, to, percent. The last row is 32, 64, 96,
# 128 and 256 KiB.
WRITE_SIZES = ((1, 4095, 28), (4096, 4096, 11), (4097, 8191, 3), (8192, 8192, 30), (8193, 16383, 7), (16384, 16384, 5),
               (16385, 32767, 1), (32768, 262144, 15))


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


def saves(directory):
    """Saves version after version of a text, as an editor does."""
    path = os.path.join(directory, "text")
    for version in itertools.count(1):
        fd = os.open(path + ".new", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        os.write(fd, struct.pack("<Q", version) * (TEXT_BYTES // 8))
        os.fsync(fd)
        os.close(fd)
        os.rename(path + ".new", path)
        top = os.open(directory, os.O_RDONLY)
        os.fsync(top)
        os.close(top)
        say(str(version))


def mail(directory, seconds):
    """A mail server's work, as Filebench's varmail: a mail is made and synced, read, appended to and
    synced, read, and an older one removed. Prints "mails N"."""
    began, mails = time.monotonic(), 0
    body = bytes(16 << 10)
    while time.monotonic() - began < seconds:
        path = os.path.join(directory, "mail%d" % mails)
        for flags in (os.O_CREAT | os.O_EXCL, 0):
            fd = os.open(path, os.O_RDWR | os.O_APPEND | flags, 0o600)
            os.write(fd, body)
            os.fsync(fd)
            os.pread(fd, 2 * len(body), 0)
            os.close(fd)
        if mails >= 100:
            os.unlink(os.path.join(directory, "mail%d" % (mails - 100)))
        mails += 1
    say("mails %d" % mails)
    return time.monotonic() - began


def rows_at(version):
    """Returns how many rows the second table of `moves` has in that version."""
    step = version % (2 * ROWS // MOVED)
    return min(step, 2 * ROWS // MOVED - step) * MOVED


def moves(directory):
    """Moves rows between two tables in transactions, with a rollback journal."""
    database = sqlite3.connect(os.path.join(directory, "db"), isolation_level=None)
    database.executescript("PRAGMA journal_mode=DELETE; PRAGMA synchronous=EXTRA; BEGIN;"
                           "CREATE TABLE one(k INTEGER, v BLOB); CREATE TABLE other(k INTEGER, v BLOB);"
                           "CREATE TABLE version(v INTEGER); INSERT INTO version VALUES (0);")
    database.executemany("INSERT INTO one VALUES (?, ?)", ((k, bytes(100)) for k in range(ROWS)))
    database.execute("COMMIT")
    for version in itertools.count(1):
        more = rows_at(version) > rows_at(version - 1)
        here, there = ("one", "other") if more else ("other", "one")
        database.execute("BEGIN")
        database.execute("INSERT INTO %s SELECT * FROM %s ORDER BY k LIMIT %d" % (there, here, MOVED))
        database.execute("DELETE FROM %s WHERE k IN (SELECT k FROM %s ORDER BY k LIMIT %d)" % (here, here, MOVED))
        database.execute("UPDATE version SET v = ?", (version,))
        database.execute("COMMIT")
        say(str(version))


def fill(directory, mib):
    """Makes the file, with data in every block."""
    began = time.monotonic()
    with open(os.path.join(directory, "file"), "wb") as f:
        for _ in range(mib):
            f.write(os.urandom(PAGE) * (256))
        os.fsync(f.fileno())
    return time.monotonic() - began


def places(pattern, size, length, seed):
    """Yields the offsets of operations, each a multiple of `size`."""
    if pattern.startswith("sequential"):
        for number in itertools.count():
            yield number * size % length
    chosen = random.Random(seed)
    while True:
        yield chosen.randrange(length // size) * size


def operate(fd, reads, offsets, size, counts, number):
    """Reads or writes without end; counts[number] is the number of operations that have ended."""
    data = os.urandom(size)
    for offset in offsets:
        if reads:
            os.pread(fd, size, offset)
        else:
            os.pwrite(fd, data, offset)
        counts[number] += 1


def work_on_file(directory, pattern, size, seconds):
    """One of the paper's works, for so long: processes of their own do it, a reader and a writer for
    random-readwrite. Operations that have not ended by then do not count. The caller reads the
    seconds while such an operation still waits for the disk."""
    fd = os.open(os.path.join(directory, "file"), os.O_RDWR)
    length = os.fstat(fd).st_size
    if pattern == "cached-write":
        length = CACHED_BYTES
        for offset in range(0, length, 1 << 20):
            os.pread(fd, 1 << 20, offset)
    roles = [False, True] if pattern == "random-readwrite" else [pattern.endswith("-read")]
    counts = memoryview(mmap.mmap(-1, PAGE)).cast("Q")
    began = time.monotonic()
    children = []
    for number, reads in enumerate(roles):
        children.append(os.fork())
        if children[-1] == 0:
            operate(fd, reads, places(pattern, size, length, number), size, counts, number)
    time.sleep(seconds)
    took, done = time.monotonic() - began, sum(counts[number] for number in range(len(roles)))
    for child in children:
        os.kill(child, signal.SIGKILL)
    say("operations %d" % done)
    say("seconds %.6f" % (1000 * took / max(done, 1)))
    for child in children:
        os.waitpid(child, 0)


def write_sizes(seed):
    """Yields (from, to, bytes) of writes with the sizes of WRITE_SIZES."""
    chosen = random.Random(seed)
    weights = [percent for *_, percent in WRITE_SIZES]
    while True:
        low, high, _ = chosen.choices(WRITE_SIZES, weights)[0]
        yield low, high, chosen.randint(low, high) if high < 32768 else chosen.choice([32, 64, 96, 128, 256]) << 10


def trace(directory, operations, synced):
    """Replays a phone's use of a file: writes and reads with pauses, of the published sizes, and an
    fsync after every fourth write. Pauses and the replay's own work are not in the seconds."""
    fd = os.open(os.path.join(directory, "file"), os.O_RDWR)
    length = os.fstat(fd).st_size
    chosen = random.Random(3)
    sizes = write_sizes(4)
    took, writes = 0, 0
    for _ in range(operations):
        *_, size = next(sizes)
        offset = chosen.randrange(length - size)
        if size % PAGE == 0:
            offset -= offset % PAGE
        reads = chosen.random() < 0.35
        data = bytes(size)
        began = time.monotonic()
        if reads:
            os.pread(fd, size, offset)
        else:
            os.pwrite(fd, data, offset)
            writes += 1
            if synced and writes % 4 == 0:
                os.fsync(fd)
        took += time.monotonic() - began
        time.sleep(TRACE_PAUSE_S)
    return 1000 * took / operations


def main():
    endless = {"saves": saves, "moves": moves}.get(sys.argv[1])
    if endless:
        endless(sys.argv[2])
    if sys.argv[1] == "file":
        work_on_file(sys.argv[2], sys.argv[3], int(sys.argv[4]), float(sys.argv[5]))
        return
    work = {"sqlite": sqlite, "append": append, "mail": mail, "save": save, "fill": fill, "trace": trace}[sys.argv[1]]
    took = work(sys.argv[2], *map(int, sys.argv[3:]))
    say("seconds %.6f" % took)


if __name__ == "__main__":
    main()
