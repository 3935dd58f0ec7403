"""A relay in a replica's cable that delays, reorders and duplicates everything, gRPC included."""
import json
import os
import sys

from harness import relay_process
from harness.proc import Proc
from harness.run import current, sh


class Relay:
    """A relay in the cable of replica `i`, from the constructor to close(). Times are in
    milliseconds.

    `counts`, after close(): how many datagrams (UDP) it delayed, how many arrived after one that
    was sent later, and how many arrived a second time."""

    def __init__(self, net, i, delay_ms, jitter_ms, duplicate, seed):
        self.switch, self.port = net.prefix + "-sw", "r%d" % i
        self._in, self._out = "x%d" % i, "y%d" % i
        self.proc = None
        self.counts = {"delayed": 0, "reordered": 0, "duplicated": 0}
        # The replica's port leaves the bridge; from now on the relay is the only way between the
        # two.
        self._ip("link", "add", self._in, "type", "veth", "peer", "name", self._out)
        try:
            self._ip("link", "set", self.port, "nomaster")
            self._ip("link", "set", self._in, "master", "br0", "up")
            self._ip("link", "set", self._out, "up")
            self.proc = Proc([sys.executable, relay_process.__file__, self.port, self._out, delay_ms, jitter_ms,
                              duplicate, seed], os.path.join(current().dir, "%s-relay%d.log" % (net.prefix, i)),
                             netns=self.switch, pipe_in=True, pipe_out=True)
            if self.proc.popen.stdout.readline() != "ready\n":
                raise RuntimeError("the relay does not start:\n" + self.proc.tail())
        except BaseException:
            self.close()
            raise

    def _ip(self, *args):
        sh("ip", "-n", self.switch, *args)

    def close(self):
        """Makes the cable plain again."""
        try:
            if self.proc:
                self._end()
        finally:
            self._ip("link", "del", self._in)
            self._ip("link", "set", self.port, "master", "br0")

    def _end(self):
        try:
            self.proc.popen.stdin.close()
            self.proc.wait(30)
            # There is no line if the relay never was ready.
            self.counts.update(json.loads(self.proc.popen.stdout.readline() or "{}"))
        finally:
            self.proc.kill()
            self.proc.popen.stdout.close()
