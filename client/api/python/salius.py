"""Ordering and durability of files on a Salius volume: the ioctls of <salius.h>, without a library.

Each function takes a file, or a descriptor, that is open on the volume. It raises OSError: ENOTTY
for a file elsewhere, ENOTSUP where the volume cannot do it (a direct volume has no osync), EIO when
the volume has failed.

Stores through mmap count from their write-back on: call flush() of the map first.
"""
import fcntl
import struct
from typing import NamedTuple

__all__ = ["Watermarks", "dsync", "notify", "osync", "wait", "watermarks"]

_MARKS = struct.Struct("=4Q")
_NOTIFY = struct.Struct("=iIQ")
_WAIT = struct.Struct("=Qq")


def _code(direction: int, number: int, size: int) -> int:
    """Returns the ioctl's code on the usual architectures (asm-generic/ioctl.h)."""
    return direction << 30 | size << 16 | ord("S") << 8 | number


_WATERMARKS = _code(2, 1, _MARKS.size)
_OSYNC = _code(0, 2, 0)
_DSYNC = _code(0, 3, 0)
_NOTIFY_CODE = _code(3, 4, _NOTIFY.size)
_WAIT_CODE = _code(1, 5, _WAIT.size)


class Watermarks(NamedTuple):
    """Numbers of records: checkpoint <= applied <= durable <= issued."""
    checkpoint: int
    applied: int
    durable: int
    issued: int


def osync(file) -> None:
    """Orders: after a crash no later change is there without all changes of the volume before."""
    fcntl.ioctl(file, _OSYNC)


def dsync(file) -> None:
    """Returns when the file's data, attributes and names are durable, under every contract."""
    fcntl.ioctl(file, _DSYNC)


def notify(file, eventfd: int) -> int:
    """Returns a ticket at once. Adds 1 to the eventfd when dsync() would return, or when the volume
    fails."""
    answer = fcntl.ioctl(file, _NOTIFY_CODE, _NOTIFY.pack(eventfd, 0, 0))
    return _NOTIFY.unpack(answer)[2]


def wait(file, ticket: int, timeout: float | None = None) -> None:
    """Returns when everything up to the ticket is durable. Raises TimeoutError after `timeout`
    seconds; None: no limit."""
    limit = -1 if timeout is None else max(0, round(timeout * 1e9))
    fcntl.ioctl(file, _WAIT_CODE, _WAIT.pack(ticket, limit))


def watermarks(file) -> Watermarks:
    """Returns the marks of the volume's session."""
    return Watermarks(*_MARKS.unpack(fcntl.ioctl(file, _WATERMARKS, bytes(_MARKS.size))))
