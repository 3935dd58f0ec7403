"""A real salius-replica process, and the events that can befall it and its host."""
import os
import shutil
import socket
import urllib.request

from harness.net import inside
from harness.proc import Proc, tail
from harness.run import HarnessError, binary, current, wait_until

PORT = 7400
METRICS_PORT = 9400


def read_metrics(url):
    """Returns {name{labels}: value} as Prometheus sees it."""
    text = urllib.request.build_opener(urllib.request.ProxyHandler({})).open(url, timeout=5).read().decode()
    values = {}
    for line in text.splitlines():
        if line and not line.startswith("#"):
            name, _, value = line.rpartition(" ")
            values[name] = float(value)
    return values


class Replica:
    """Replica `index` in its namespace of `net`. The constructor does not start it. `keys`: its
    file of `salius keys`; None: it has none."""

    def __init__(self, net, index, memory="256MiB", extra=(), keys=None):
        self.net, self.index, self.memory, self.extra = net, index, memory, list(extra)
        self.ip = net.ip(index)
        self.address = "%s:%d" % (self.ip, PORT)  # the address that volumes use; may be a name's
        self.shm = "/dev/shm/%s-r%d" % (net.prefix, index)
        self._copy = self.shm + "-earlier"
        # The replica's promises, on a disk.
        self.state = os.path.join(current().dir, "%s-r%d.state" % (net.prefix, index))
        self.log = os.path.join(current().dir, "%s-r%d.log" % (net.prefix, index))
        self.proc = None
        self.keys = keys
        self.listen = None  # another address to listen at than self.ip
        # For the next start: its environment, and a program that runs it.
        self.env, self.wrapper = None, ()

    def start(self):
        """Starts the process; returns when its control port answers the primary's host."""
        self.launch()
        return self.wait_ready()

    def launch(self):
        """Starts the process and does not wait, so that several replicas can start at the same
        time."""
        os.makedirs(self.shm, exist_ok=True)
        self.proc = Proc([*self.wrapper, binary("salius-replica"), "--listen",
                          "%s:%d" % (self.listen or self.ip, PORT), "--memory",
                          self.memory, "--shm-dir", self.shm, "--state-dir", self.state, "--insecure", "--metrics",
                          "%s:%d" % (self.ip, METRICS_PORT)] + ["--keys", self.keys] * bool(self.keys) + self.extra,
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
        """Kills the process only; its memory stays in the shm directory."""
        if self.proc:
            self.proc.kill()

    def terminate(self):
        return self.proc.terminate()

    def restart(self):
        """Kills the process and starts it again; the memory is still there."""
        self.kill()
        return self.start()

    def lose_memory(self):
        """Takes the host down: process and memory are lost. It stays down."""
        self.kill()
        shutil.rmtree(self.shm, ignore_errors=True)

    def keep_memory(self):
        """Kills the process, keeps a copy of its memory at that moment, and starts it again."""
        self.kill()
        shutil.rmtree(self._copy, ignore_errors=True)
        shutil.copytree(self.shm, self._copy)
        shutil.rmtree(self._copy + "-state", ignore_errors=True)
        shutil.copytree(self.state, self._copy + "-state")
        return self.start()

    def put_memory_back(self):
        """Kills the process and starts it with the copy that was kept, as when a virtual machine is
        reverted."""
        self.kill()
        shutil.rmtree(self.shm)
        shutil.copytree(self._copy, self.shm)
        shutil.rmtree(self.state)
        shutil.copytree(self._copy + "-state", self.state)
        return self.start()

    def lose_promises(self):
        """Takes the host down and loses its disk after its memory. It stays down."""
        self.lose_memory()
        shutil.rmtree(self.state, ignore_errors=True)

    def reboot(self, promises=True):
        """Restarts the host: a new process with empty memory, and without `promises` on a new
        disk."""
        if promises:
            self.lose_memory()
        else:
            self.lose_promises()
        return self.start()

    def move(self, ip):
        """Gives the host another address; the process that was there ends, its memory stays."""
        self.kill()
        self.net.readdress(self.index, ip)
        self.ip = ip

    def stop(self):
        self.proc.stop()

    def cont(self):
        self.proc.cont()

    def metrics(self):
        """Returns {name{labels}: value} as Prometheus sees it."""
        with inside(self.net.replica(self.index)):
            return read_metrics("http://%s:%d/metrics" % (self.ip, METRICS_PORT))

    def tail(self):
        return tail(self.log)

    def close(self):
        self.lose_promises()
        shutil.rmtree(self._copy, ignore_errors=True)
        shutil.rmtree(self._copy + "-state", ignore_errors=True)
