"""A real salius-replica process and what can happen to it and its host."""
import os
import shutil
import socket
import urllib.request

from harness.net import inside
from harness.proc import Proc, tail
from harness.run import HarnessError, binary, current, wait_until

PORT = 7400
METRICS_PORT = 9400


class Replica:
    """Replica `index` in its namespace of `net`. Not started by the constructor."""

    def __init__(self, net, index, memory="256MiB", extra=()):
        self.net, self.index, self.memory, self.extra = net, index, memory, list(extra)
        self.ip = net.ip(index)
        self.address = "%s:%d" % (self.ip, PORT)  # by which volumes know it; may be a name's
        self.shm = "/dev/shm/%s-r%d" % (net.prefix, index)
        self._copy = self.shm + "-earlier"
        self.state = os.path.join(current().dir, "%s-r%d.state" % (net.prefix, index))  # its promises; on a disk
        self.log = os.path.join(current().dir, "%s-r%d.log" % (net.prefix, index))
        self.proc = None
        self.listen = None  # where else than at self.ip
        self.env, self.wrapper = None, ()  # of the next start: its environment, and what runs it

    def start(self):
        """Returns when it answers on its control port, seen from the primary."""
        self.launch()
        return self.wait_ready()

    def launch(self):
        """The process; several replicas may start at the same time."""
        os.makedirs(self.shm, exist_ok=True)
        self.proc = Proc([*self.wrapper, binary("salius-replica"), "--listen",
                          "%s:%d" % (self.listen or self.ip, PORT), "--memory",
                          self.memory, "--shm-dir", self.shm, "--state-dir", self.state, "--insecure", "--metrics",
                          "%s:%d" % (self.ip, METRICS_PORT)] + self.extra,
                         self.log, netns=self.net.replica(self.index), env=self.env)

    def wait_ready(self):
        wait_until(self._ready, 20, lambda: "replica %d is not ready; log:\n%s" % (self.index, self.tail()))
        return self

    def _ready(self):
        if not self.proc.alive():
            raise HarnessError("replica %d ended with %s; log:\n%s" % (
                self.index, self.proc.popen.returncode, self.tail()))
        try:
            with inside(self.net.replica(self.index)), socket.create_connection((self.ip, PORT), 0.5):
                return True
        except OSError:
            return False

    def alive(self):
        return self.proc is not None and self.proc.alive()

    def kill(self):
        """SIGKILL of the process only; its memory stays in the shm directory."""
        if self.proc:
            self.proc.kill()

    def terminate(self):
        return self.proc.terminate()

    def restart(self):
        """The process dies and comes back; the memory is still there."""
        self.kill()
        return self.start()

    def lose_memory(self):
        """The host goes down: process and memory are gone. It stays down."""
        self.kill()
        shutil.rmtree(self.shm, ignore_errors=True)

    def keep_memory(self):
        """The process dies; a copy of its memory as it is now is kept, and it comes back."""
        self.kill()
        shutil.rmtree(self._copy, ignore_errors=True)
        shutil.copytree(self.shm, self._copy)
        shutil.rmtree(self._copy + "-state", ignore_errors=True)
        shutil.copytree(self.state, self._copy + "-state")
        return self.start()

    def put_memory_back(self):
        """As a virtual machine that is reverted: the process dies and comes back with the copy that was kept."""
        self.kill()
        shutil.rmtree(self.shm)
        shutil.copytree(self._copy, self.shm)
        shutil.rmtree(self.state)
        shutil.copytree(self._copy + "-state", self.state)
        return self.start()

    def lose_promises(self):
        """The host's disk is gone too, after its memory. It stays down."""
        self.lose_memory()
        shutil.rmtree(self.state, ignore_errors=True)

    def reboot(self, promises=True):
        """The host restarts: a new process with empty memory; and on a new disk without `promises`."""
        if promises:
            self.lose_memory()
        else:
            self.lose_promises()
        return self.start()

    def move(self, ip):
        """The host gets another address; the process that was there is gone, its memory is not."""
        self.kill()
        self.net.readdress(self.index, ip)
        self.ip = ip

    def stop(self):
        self.proc.stop()

    def cont(self):
        self.proc.cont()

    def metrics(self):
        """{name{labels}: value} as Prometheus sees it."""
        with inside(self.net.replica(self.index)):
            text = urllib.request.build_opener(urllib.request.ProxyHandler({})).open(
                "http://%s:%d/metrics" % (self.ip, METRICS_PORT), timeout=5).read().decode()
        values = {}
        for line in text.splitlines():
            if line and not line.startswith("#"):
                name, _, value = line.rpartition(" ")
                values[name] = float(value)
        return values

    def tail(self):
        return tail(self.log)

    def close(self):
        self.lose_promises()
        shutil.rmtree(self._copy, ignore_errors=True)
        shutil.rmtree(self._copy + "-state", ignore_errors=True)
