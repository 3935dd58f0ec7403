"""GlusterFS: one volume `replica 3` with its bricks on tmpfs, and its FUSE mount.

The daemons live in PID and mount namespaces of their own with their state on a tmpfs there. So the
host's GlusterFS, if it has one, is not touched, and one kill ends all of them."""
import os
import xml.etree.ElementTree

from bench.servers import OWN_PIDS, end, free_name, program
from harness.image import mounts
from harness.proc import Proc, tail
from harness.run import HarnessError, sh, wait_until

# A brick's host may not be the loopback's own address.
HOST = "10.78.0.1"
READY_S = 60


class Gluster:
    def __init__(self, bricks, cpu=None):
        """Starts the volume. `bricks`: a new directory on tmpfs for each copy."""
        self.daemon = self.mount = None
        self.path = free_name("gluster")
        os.mkdir(self.path)
        self._socket = free_name("glusterd") + ".sock"
        self._log = free_name("glusterd") + ".log"
        self._pin = [] if cpu is None else ["taskset", "-c", str(cpu)]
        sh("ip", "addr", "replace", HOST + "/32", "dev", "lo")
        try:
            self._start()
            self._make(bricks)
            self._mount(bricks)
        except BaseException:
            self.close()
            raise

    def _start(self):
        volfile = free_name("glusterd") + ".vol"
        with open(volfile, "w") as f:
            f.write("volume management\n    type mgmt/glusterd\n"
                    "    option working-directory /var/lib/glusterd\n"
                    "    option transport-type socket\n"
                    "    option transport.socket.listen-port 24007\n"
                    "    option transport.socket.bind-address %s\n"
                    "    option glusterd-sockfile %s\n"
                    "end-volume\n" % (HOST, self._socket))
        # The places of its state and logs, whatever its options say.
        own = " && ".join("mkdir -p %s && mount -t tmpfs none %s" % (d, d)
                          for d in ("/var/lib/glusterd", "/var/run/gluster", "/var/log/glusterfs"))
        run = " ".join(["exec", *self._pin, program("glusterd"), "-N", "-f", volfile, "-l", self._log,
                        "-p", self._log + ".pid"])
        self.daemon = Proc(OWN_PIDS + ["--mount-proc", "--", "sh", "-c",
                            "%s && mkdir -p /var/log/glusterfs/bricks && %s" % (own, run)], self._log)
        wait_until(lambda: self._gluster("volume", "list", check=False).returncode == 0, READY_S,
                   lambda: "glusterd does not answer:\n" + tail(self._log), 0.1)

    def _gluster(self, *words, check=True):
        if not self.daemon.alive():
            raise HarnessError("glusterd ended with %s:\n%s" % (self.daemon.popen.returncode, tail(self._log)))
        return sh(program("gluster"), "--mode=script", "--log-file=" + free_name("gluster-cli") + ".log",
                  "--glusterd-sock=" + self._socket, *words, check=check)

    def _make(self, bricks):
        self._gluster("volume", "create", "bench", "replica", str(len(bricks)),
                      *["%s:%s/brick" % (HOST, b) for b in bricks], "force")
        self._gluster("volume", "start", "bench")
        wait_until(lambda: self._online() == len(bricks), READY_S,
                   lambda: "%d bricks are online:\n%s" % (self._online(), tail(self._log)), 0.2)

    def _online(self):
        """Returns how many bricks are online."""
        done = self._gluster("volume", "status", "bench", "--xml", check=False)
        if done.returncode != 0:
            return 0
        nodes = xml.etree.ElementTree.fromstring(done.stdout).iter("node")
        return sum(n.findtext("status") == "1" and n.findtext("path", "").startswith("/") for n in nodes)

    def _mount(self, bricks):
        log = free_name("glusterfs") + ".log"
        self.mount = Proc([*OWN_PIDS, "--", *self._pin, program("glusterfs"), "-N", "--volfile-server=" + HOST,
                           "--volfile-id=bench", "--log-file=" + log, self.path], log)

        def ready():
            if not self.mount.alive():
                raise HarnessError("glusterfs ended with %s:\n%s" % (self.mount.popen.returncode, tail(log)))
            return self.path in mounts() and self._replicates(bricks)
        wait_until(ready, READY_S, lambda: "the volume is not mounted, or does not replicate:\n" + tail(log), 0.1)

    def _replicates(self, bricks):
        """Returns whether a file reaches every brick. The client needs a moment to connect to all
        of them."""
        content = b"to every brick"
        try:
            with open(os.path.join(self.path, "ready"), "wb") as f:
                f.write(content)
                f.flush()
                os.fsync(f.fileno())
            copies = [_read(os.path.join(brick, "brick", "ready")) for brick in bricks]
            os.unlink(f.name)
            return copies == [content] * len(bricks)
        except OSError:
            return False

    def close(self):
        if self.path in mounts():
            sh("umount", "-l", self.path, check=False)
        for proc in (self.mount, self.daemon):
            if proc:
                end(proc)
        self.mount = self.daemon = None


def _read(path):
    with open(path, "rb") as f:
        return f.read()
