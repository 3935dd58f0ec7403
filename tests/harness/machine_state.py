"""State of the whole machine (sysctl), which suites that run at the same time share.

A test that changes such a state holds changing() meanwhile. Code that depends on it holds using().
One thread of a process at a time.
"""
import contextlib
import fcntl
import os

LOCK = "/var/tmp/salius-tests.lock"

_changes = False  # this process holds the lock for a change


@contextlib.contextmanager
def changing():
    """Keeps every using() of other processes out of the block."""
    global _changes
    with _locked(fcntl.LOCK_EX):
        _changes = True
        try:
            yield
        finally:
            _changes = False


@contextlib.contextmanager
def using():
    """Keeps every changing() of other processes out of the block."""
    if _changes:
        yield
        return
    with _locked(fcntl.LOCK_SH):
        yield


@contextlib.contextmanager
def _locked(how):
    fd = os.open(LOCK, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, how)
        yield
    finally:
        os.close(fd)
