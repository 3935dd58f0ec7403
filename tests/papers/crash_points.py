"""The state of two programs after a crash: an editor's text and a SQLite database, each in a new or an old
version, or in none that ever was (Optimistic Crash Consistency, table 3).

On bare ext4 the writes to the disk are recorded, and a disk is made of all writes up to the last flush
before the crash point and any subset of the later ones. Without flushes it is any subset of the writes
that the last FLUSHES_BACK flushes would have ordered. On Salius the power is cut for real, with the
network gone for a random time before; recovery asks the replicas.
"""
import collections
import contextlib
import os
import sqlite3
import struct
import subprocess
import sys
import time

from bench.report import markdown
from crash.block_log import BlockLog, Player
from crash.site import Site, small_image
from harness.run import HarnessError, wait_until
from papers.grounds import PATIENT, PROGRAMS
from papers.programs import ROWS, TEXT_BYTES, rows_at

FLUSHES_BACK = 4
NEW, OLD, INCONSISTENT = "new", "old", "inconsistent"
SALIUS, BARE, UNFLUSHED = "Salius, commit=ordered", "bare ext4", "bare ext4, no flush"
NETWORK_GONE_S = 0.02  # at most


class Program:
    """A program that works in `directory` without end. acked: the versions that it has called
    finished."""

    def __init__(self, kind, directory):
        self.popen = subprocess.Popen([sys.executable, PROGRAMS, kind, directory], stdout=subprocess.PIPE,
                                      stderr=subprocess.DEVNULL)
        self.acked = 0

    def next(self):
        """Waits until one more version is finished."""
        line = self.popen.stdout.readline()
        if not line:
            raise HarnessError("the program ended with %s" % self.popen.wait())
        self.acked = int(line)

    def kill(self):
        """Ends it, and reads what it still said."""
        self.popen.kill()
        for line in self.popen.stdout.read().splitlines():
            if line.strip().isdigit():
                self.acked = int(line)
        self.popen.wait()


def text_version(directory):
    """Returns the version of the whole text; None when it is none."""
    try:
        with open(os.path.join(directory, "text"), "rb") as f:
            data = f.read()
    except OSError:
        return None
    if len(data) != TEXT_BYTES or len(set(struct.unpack("<%dQ" % (TEXT_BYTES // 8), data))) != 1:
        return None
    return struct.unpack_from("<Q", data)[0]


def database_version(directory):
    """Returns the version of the database, which SQLite first recovers; None when it is damaged."""
    try:
        with contextlib.closing(sqlite3.connect(os.path.join(directory, "db"))) as database:
            if database.execute("PRAGMA integrity_check").fetchall() != [("ok",)]:
                return None
            version, = database.execute("SELECT v FROM version").fetchone()
            rows = [database.execute("SELECT COUNT(*) FROM %s" % table).fetchone()[0] for table in ("one", "other")]
    except (sqlite3.Error, TypeError):
        return None
    return version if rows == [ROWS - rows_at(version), rows_at(version)] else None


KINDS = {"saves": ("an editor", text_version), "moves": ("SQLite", database_version)}


def outcome(version, acked):
    if version is None:
        return INCONSISTENT
    return NEW if version >= acked else OLD


class BareRun:
    """A recording of a program on bare ext4, and the disks that a crash can leave."""

    def __init__(self, kind, versions):
        self._kind = kind
        with contextlib.ExitStack() as stack:
            image = small_image("bare")
            stack.callback(image.close)
            log = BlockLog(image)
            stack.callback(log.close)
            directory = os.path.join(image.path, "data")
            os.mkdir(directory)
            program = Program(kind, directory)
            stack.callback(program.kill)
            self._acked_at = []  # position in the log at which version 1, 2, … was finished, at the latest
            for _ in range(versions):
                program.next()
                self._acked_at.append(log.position())
            program.kill()
            self._player = Player(log.base, log.requests())

    def crash(self, rng, copy, flushes):
        """Makes the disk of one crash, and returns what the program finds on it."""
        player = self._player
        point = rng.randint(self._acked_at[0], self._acked_at[-1])
        acked = sum(at <= point for at in self._acked_at)
        first = player.last_flush(point)
        if not flushes:
            for _ in range(rng.randint(1, FLUSHES_BACK)):
                first = player.last_flush(first - 1) if first else 0
        pieces = player.pieces(first, point)
        share = rng.choice((0.2, 0.5, 0.8))
        copy.umount()
        player.disk(first, [piece for piece in pieces if rng.random() < share]).write(copy.file)
        try:
            copy.mount()
        except HarnessError:
            return INCONSISTENT  # not even ext4 finds its way
        return outcome(KINDS[self._kind][1](os.path.join(copy.path, "data")), acked)


def on_bare(kind, rng, points, versions, flushes):
    counts = collections.Counter()
    run = BareRun(kind, versions)
    with contextlib.closing(small_image("copy")) as copy:
        for _ in range(points):
            counts[run.crash(rng, copy, flushes)] += 1
    return counts


def on_salius(kind, rng, points):
    """Cuts the power of a volume with commit=ordered `points` times."""
    counts = collections.Counter()
    for _ in range(points):
        with contextlib.closing(Site(more=PATIENT)) as rig:
            rig.mount("recover=auto,commit=ordered", mode="replicated")
            program = Program(kind, rig.path)
            try:
                for _ in range(rng.randint(1, 20)):
                    program.next()
                for i in range(rig.m):
                    rig.net.drop(i)
                end = time.monotonic() + rng.random() * NETWORK_GONE_S
                wait_until(lambda end=end: time.monotonic() >= end, 1, "the time of the cut", 0.001)
            finally:
                rig.power_cut(also=program.kill)
            for i in range(rig.m):
                rig.net.heal(i)
            done = rig.volume.recover()
            if done.returncode != 0:
                raise HarnessError("salius-recover: exit %d\n%s%s" % (done.returncode, done.stdout, done.stderr))
            counts[outcome(KINDS[kind][1](rig.backing), program.acked)] += 1
    return counts


def table(rng, points, versions):
    """Returns (lines of Markdown, whether everything is as it must be)."""
    rows = [("", "ground", "crash points", INCONSISTENT, OLD, NEW)]
    good = True
    for kind, (name, _) in KINDS.items():
        for ground, counts in ((UNFLUSHED, on_bare(kind, rng, points, versions, False)),
                               (BARE, on_bare(kind, rng, points, versions, True)),
                               (SALIUS, on_salius(kind, rng, points))):
            rows.append((name, ground, str(points), *(str(counts[what]) for what in (INCONSISTENT, OLD, NEW))))
            if ground != UNFLUSHED:
                good = good and counts[INCONSISTENT] == 0
            if ground == BARE:
                good = good and counts[OLD] == 0
    return markdown(rows), good
