"""The external ledger: the acknowledgements of the system under test, kept outside the volume."""
import os
import threading
import time

from harness.run import HarnessError, NotInTime


class Ledger:
    """Acknowledged numbers, in memory and, when `path` is given, fsynced to a file on another file
    system. Thread safe. Each stream counts 1, 2, 3, …"""

    def __init__(self, path=None):
        self._changed = threading.Condition()
        self._acked = {}  # stream -> set of numbers
        self._fd = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC, 0o600) if path else -1

    def ack(self, number, stream=0):
        with self._changed:
            if self._fd >= 0:
                os.write(self._fd, b"%d %d\n" % (stream, number))
                os.fdatasync(self._fd)
            self._acked.setdefault(stream, set()).add(number)
            self._changed.notify_all()

    def acked(self, stream=0):
        with self._changed:
            return set(self._acked.get(stream, ()))

    def streams(self):
        with self._changed:
            return sorted(self._acked)

    def total(self):
        with self._changed:
            return sum(map(len, self._acked.values()))

    def wait_total(self, count, timeout_s=60, alive=lambda: True):
        """Waits until `count` acknowledgements have arrived. Raises at the bound, or when `alive`
        turns false."""
        with self._changed:
            end = time.monotonic() + timeout_s
            while True:
                have = sum(map(len, self._acked.values()))
                if have >= count:
                    return
                if not alive():
                    raise HarnessError("the writer ended at %d of %d acknowledgements" % (have, count))
                if time.monotonic() > end:
                    raise NotInTime("only %d of %d acknowledgements in %d s" % (have, count, timeout_s))
                self._changed.wait(0.25)

    def missing(self, found, stream=0):
        """Returns acknowledged numbers that are not in `found`, sorted. Every test expects none."""
        return sorted(self.acked(stream) - set(found))

    def close(self):
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
