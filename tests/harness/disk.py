"""A guest's disk with a volatile write cache: an NBD server on a Unix socket, one thread.

self.media holds everything that the guest flushed. power_cut() decides by the test's dice about
each write since the last flush: it keeps the write whole, drops it, or tears it at a sector. So
later writes may survive earlier ones, as on a real disk. SIGKILL of QEMU alone would lose less:
QEMU's host keeps the data that reached its page cache.
"""
import os
import socket
import struct
import threading

from harness.run import HarnessError, current, sh

SECTOR = 512
_OPTION_MAGIC = 0x49484156454F5054  # "IHAVEOPT"
_OPTION_REPLY = 0x3E889045565A9
_REQUEST, _REPLY = 0x25609513, 0x67446698
_OPT_EXPORT_NAME, _OPT_ABORT, _OPT_GO = 1, 2, 7
_REP_ACK, _REP_INFO, _REP_UNSUPPORTED = 1, 3, (1 << 31) + 1
_READ, _WRITE, _DISCONNECT, _FLUSH = 0, 1, 2, 3
# HAS_FLAGS, SEND_FLUSH. Without FUA, QEMU asks for a flush instead.
_EXPORT_FLAGS = 1 | 4
_EINVAL = 22


class Disk:
    """A sparse disk of `size_mb` with an ext4 made with `mkfs_options`. Switched off after
    construction."""

    _serial = 0

    def __init__(self, size_mb=256, mkfs_options=()):
        Disk._serial += 1
        base = os.path.join(current().dir, "disk%d" % Disk._serial)
        self.media, self.socket = base + ".media", base + ".sock"
        self._view = base + ".view"
        self._size = size_mb << 20
        with open(self.media, "xb") as f:
            f.truncate(self._size)
        sh("mkfs.ext4", "-q", "-E", "lazy_itable_init=1,lazy_journal_init=1,nodiscard", *mkfs_options, self.media)
        self._thread = None
        self._unflushed = []  # (offset, bytes) in order, since the last flush
        self.flushes = self.dropped = self.torn = 0

    def power_on(self):
        """Starts to serve one connection."""
        sh("cp", "--sparse=always", self.media, self._view)
        self._unflushed = []
        listener = socket.socket(socket.AF_UNIX)
        if os.path.exists(self.socket):
            os.unlink(self.socket)
        listener.bind(self.socket)
        listener.listen(1)
        listener.settimeout(60)
        self._thread = threading.Thread(target=self._serve, args=(listener,), daemon=True)
        self._thread.start()

    def power_cut(self, rng):
        """Applies a power cut; the machine (QEMU) must be dead. On return self.media is the disk's
        content."""
        self._thread.join(90)
        if self._thread.is_alive():
            raise HarnessError("the disk is still in use: its machine must be dead before its power is cut")
        with open(self.media, "r+b") as media:
            for offset, data in self._unflushed:
                fate = rng.random()
                if fate < 0.4:
                    self.dropped += 1
                    continue
                if fate < 0.5 and len(data) > SECTOR:
                    self.torn += 1
                    data = data[:SECTOR * rng.randrange(1, len(data) // SECTOR)]
                media.seek(offset)
                media.write(data)
        self._unflushed = []

    def check(self):
        """Runs fsck, read only, with the journal replayed in a copy."""
        copy = self._view
        sh("cp", "--sparse=always", self.media, copy)
        sh("e2fsck", "-fp", "-E", "journal_only", copy, check=False)
        sh("e2fsck", "-fn", copy)

    # ---- the server; https://github.com/NetworkBlockDevice/nbd/blob/master/doc/proto.md

    def _serve(self, listener):
        with listener:
            connection = listener.accept()[0]
        connection.settimeout(None)
        view = os.open(self._view, os.O_RDWR | os.O_CLOEXEC)
        media = os.open(self.media, os.O_RDWR | os.O_CLOEXEC)
        try:
            with connection, connection.makefile("rb") as requests:
                if self._negotiate(connection, requests):
                    while self._answer(connection, requests, view, media):
                        pass
        except (ConnectionError, EOFError):
            pass  # QEMU died
        finally:
            os.close(view)
            os.close(media)

    def _negotiate(self, connection, requests):
        # Fixed newstyle, no zeroes.
        connection.sendall(struct.pack(">8sQH", b"NBDMAGIC", _OPTION_MAGIC, 3))
        _exactly(requests, 4)
        while True:
            _, option, length = struct.unpack(">QII", _exactly(requests, 16))
            _exactly(requests, length)
            if option == _OPT_EXPORT_NAME:
                connection.sendall(struct.pack(">QH", self._size, _EXPORT_FLAGS))
                return True
            if option == _OPT_GO:
                info = struct.pack(">HQH", 0, self._size, _EXPORT_FLAGS)
                connection.sendall(struct.pack(">QIII", _OPTION_REPLY, option, _REP_INFO, len(info)) + info)
            known = option in (_OPT_GO, _OPT_ABORT)
            connection.sendall(struct.pack(">QIII", _OPTION_REPLY, option, _REP_ACK if known else _REP_UNSUPPORTED, 0))
            if known:
                return option == _OPT_GO

    def _answer(self, connection, requests, view, media):
        """Answers one request; returns False at the end."""
        _, _, kind, handle, offset, length = struct.unpack(">IHHQQI", _exactly(requests, 28))
        error, data = 0, b""
        if kind == _READ:
            data = os.pread(view, length, offset)
        elif kind == _WRITE:
            piece = _exactly(requests, length)
            os.pwrite(view, piece, offset)
            self._unflushed.append((offset, piece))
        elif kind == _FLUSH:
            for at, piece in self._unflushed:
                os.pwrite(media, piece, at)
            self._unflushed = []
            self.flushes += 1
        elif kind == _DISCONNECT:
            return False
        else:
            error = _EINVAL
        connection.sendall(struct.pack(">IIQ", _REPLY, error, handle) + data)
        return True

    def close(self):
        for path in (self.media, self._view, self.socket):
            if os.path.exists(path):
                os.unlink(path)


def _exactly(stream, count):
    data = stream.read(count)
    if len(data) != count:
        raise EOFError
    return data
