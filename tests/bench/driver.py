"""The program tests/bench/driver/main.cc: one subject of measurement, a process that runs rounds on
demand."""
import json
import os
import select
import time

from bench.setup import pinned
from bench.tools import tool
from harness.proc import Proc
from harness.run import HarnessError, current

READY_S = 120      # filling files on a slow disk takes long
ROUND_SLACK_S = 60  # beyond a round's length: an operation that hangs is an error, not a long wait


class Driver:
    """Runs `driver ARGS`; it is ready for its first round after construction. `cpu`: it runs on
    that one. `netns`: it runs in that network namespace. `wrapper`: words before the command."""

    _serial = 0

    def __init__(self, args, cpu=None, netns=None, wrapper=()):
        Driver._serial += 1
        log = os.path.join(current().dir, "driver%d.log" % Driver._serial)
        self._pending = b""
        self.proc = Proc(pinned(cpu) + list(wrapper) + [tool("driver/driver")] + list(args), log, netns=netns,
                         pipe_in=True, pipe_out=True)
        try:
            line = self._line(READY_S)
            if line != "ready":
                raise HarnessError("the driver says %r instead of ready" % line)
        except BaseException:
            self.close()
            raise

    @property
    def pid(self):
        return self.proc.pid

    def round(self, seconds):
        """Runs one round of that length; returns its figures (operations, ops_per_second, p50_us,
        p99_us, p999_us, max_us)."""
        try:
            self.proc.popen.stdin.write("%s\n" % seconds)
            self.proc.popen.stdin.flush()
        except BrokenPipeError:
            raise self._ended() from None
        return json.loads(self._line(seconds + ROUND_SLACK_S))

    def _line(self, timeout_s):
        """Returns the next line of its output."""
        fd = self.proc.popen.stdout.fileno()
        output = select.poll()  # select(2) knows no descriptor above 1023
        output.register(fd, select.POLLIN)
        end = time.monotonic() + timeout_s
        while b"\n" not in self._pending:
            if not output.poll(max(0.0, end - time.monotonic()) * 1000):
                raise HarnessError("%s: nothing within %.0f s" % (" ".join(self.proc.argv), timeout_s))
            read = os.read(fd, 65536)
            if not read:
                raise self._ended()
            self._pending += read
        line, self._pending = self._pending.split(b"\n", 1)
        return line.decode()

    def _ended(self):
        code = self.proc.wait(30)
        return HarnessError("the driver ended with %d:\n%s" % (code, self.proc.tail()))

    def kill(self):
        """Kills it and the program that a wrapper has started; it leaves its files."""
        self.proc.kill_group()
        self.close()

    def close(self):
        """Ends its input, so that it removes its files and ends; kills it if it does not."""
        try:
            self.proc.popen.stdin.close()
        except BrokenPipeError:
            pass  # it has ended already
        try:
            self.proc.wait(30)
        except HarnessError:
            self.proc.kill()
        self.proc.popen.stdout.close()
