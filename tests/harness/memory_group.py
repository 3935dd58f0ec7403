"""A control group with a memory limit."""
import errno
import os
import re

from harness.run import HarnessError, current, wait_until


class MemoryGroup:
    """A control group with a memory limit, v1 or v2. HarnessError when this machine has neither."""

    # The folder; the files with its limit, with the memory in use, and with how often the limit was
    # met.
    _KINDS = (("/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "memory.failcnt"),
              ("/sys/fs/cgroup", "memory.max", "memory.current", "memory.events"))
    _serial = 0

    def __init__(self, limit_mb):
        MemoryGroup._serial += 1
        for top, *self._files in self._KINDS:
            self.path = os.path.join(top, "%s-%d" % (current().id, MemoryGroup._serial))
            try:
                os.mkdir(self.path)
                self._limit(limit_mb << 20)
                break
            except OSError:
                if os.path.isdir(self.path):
                    os.rmdir(self.path)
        else:
            raise HarnessError("no memory control group can be made here")
        self.wrapper = ("sh", "-c", 'echo $$ >"$0/cgroup.procs" && exec "$@"', self.path)

    def _limit(self, size):
        # A process that can swap is not limited.
        for name in "memory.swap.max", "memory.swappiness":
            if os.path.exists(os.path.join(self.path, name)):
                self._write(name, 0)
        self._write(self._files[0], size)

    def _write(self, name, value):
        with open(os.path.join(self.path, name), "w") as f:
            f.write(str(value))

    def _read(self, which):
        with open(os.path.join(self.path, self._files[which])) as f:
            return f.read()

    def leave(self, kb):
        """Gives its processes `kb` KiB more than they have now."""
        def limited():
            try:
                self._limit(int(self._read(1)) + (kb << 10))
                return True
            except OSError as error:  # v1 refuses a limit below their use since it was read
                if error.errno != errno.EBUSY:
                    raise
                return False
        wait_until(limited, 10, "no limit can be set where memory is taken all the time")

    def met(self):
        """Returns how often its processes were refused memory, or had to give some back for it."""
        # The file of v1 holds a number, that of v2 "max 3" among others.
        return int(re.search(r"(?:^|max )(\d+)", self._read(2)).group(1))

    def close(self):
        os.rmdir(self.path)
