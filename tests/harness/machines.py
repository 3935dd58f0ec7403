"""An installation of whole machines: a primary with a disk, and m replicas, as guests."""
import os
import sys
import urllib.request

from harness import guest_check, op_writer, sqlite_writer
from harness.disk import Disk
from harness.guest import Guest
from harness.ledger import Ledger
from harness.net import Net, inside
from harness.run import HarnessError, binary, wait_until

PRIMARY_IP = "10.77.0.100"
PORT, METRICS_PORT = 7400, 9401
DISK, VOLUME = "/run/disk", "/run/volume"
BACKING = DISK + "/data"
# An emulated machine on a busy host answers late: the default of 50 ms would often partition it.
DELTA = "2s"
PYTHON = [sys.executable, "-S"]


class Writer:
    """One kind of workload in the primary: its program, its files, and its acknowledgements over
    all cuts. `where` is its directory or database, below `root`."""

    def __init__(self, kind, port, root=VOLUME):
        self.kind, self.port, self.root = kind, port, root
        self.ledger = Ledger()
        self._reader = None

    def where(self, root):
        return os.path.join(root, self.kind)

    def start(self, primary, wrapper=(), synchronous="full"):
        """Continues after the last acknowledged number; `wrapper`: eatmydata, for the controls."""
        place, first = self.where(self.root), str(self.ledger.total() + 1)
        if self.kind == "ops":
            primary.run("mkdir", "-p", place)
            argv = PYTHON + [op_writer.__file__, place, first]
        else:
            argv = PYTHON + [sqlite_writer.__file__, place, "wal", synchronous, first]
        self._reader = primary.read_ledger(self.port, self.ledger)
        self._pid = primary.start(*wrapper, *argv, log=self._log, ledger=self.port)

    @property
    def _log(self):
        return "/run/writer-%s.log" % self.kind

    def wait(self, primary, more, timeout_s=180):
        """Waits until `more` operations are acknowledged beyond the present ones."""
        try:
            self.ledger.wait_total(self.ledger.total() + more, timeout_s)
        except HarnessError as error:
            raise HarnessError("%s; writer: %s, %s" % (
                error, primary.ended(self._pid), primary.run("tail", "-5", self._log)[1])) from None

    def machine_died(self):
        """Waits for the reader: afterwards the ledger holds every acknowledgement that left the
        machine."""
        if self._reader:
            self._reader.join(30)
            self._reader = None

    def check(self, primary, root, torn=False):
        """Checks every acknowledged operation, as the guest sees it. Returns (True, the last one
        found) or (False, the difference). With `torn` an unacknowledged file write may be torn
        (SQLite repairs its own torn writes)."""
        if self.ledger.total() == 0:
            return True, "nothing was written"
        kind = "torn-ops" if torn and self.kind == "ops" else self.kind
        code, out, errors = primary.run(*PYTHON, guest_check.__file__, kind, self.where(root), self.ledger.total(),
                                        check=False, timeout=300)
        if code not in (0, 1) or (code == 1 and not out):
            raise HarnessError("guest_check: exit %d\n%s%s" % (code, out, errors))
        if code == 0:
            # An operation in progress at the cut that was found done stays done: check it too from
            # now on.
            for number in range(self.ledger.total() + 1, int(out) + 1):
                self.ledger.ack(number)
        return code == 0, (out + errors).strip()


class Machines:
    """A primary and m replicas, all booted after construction. The volume is made (f = acks) and
    not mounted. `disk_modules` are loaded before the primary's disk is mounted with
    `mount_options`."""

    def __init__(self, m, acks, disk=None, disk_modules=(), mount_options=""):
        self.net, self.disk, self.replicas = None, None, []
        self.guests = []
        self._disk_modules, self._mount_options = disk_modules, mount_options
        try:
            self.net = Net(0)
            self.disk = disk or Disk()
            self.primary = self._guest(PRIMARY_IP, self.disk, 256)
            self.replicas = [self._guest(Net.ip(i), None, 192) for i in range(m)]
            self.boot(replicas=range(m))
            self.primary.run("mkdir", BACKING)
            self.primary.run(binary("salius"), "init", BACKING, "--replicas",
                             ",".join("%s:%d" % (r.ip, PORT) for r in self.replicas), "--acks", acks,
                             "--log-max", "8MiB", "--ballast", "8MiB", "--delta", DELTA)
        except BaseException:
            self.close()
            raise

    def _guest(self, ip, disk, memory_mb):
        guest = Guest(self.net, ip, disk, memory_mb)
        self.guests.append(guest)
        return guest

    @staticmethod
    def _start_replica(guest):
        # It has no disk: its promises are lost with its memory, and it reports so.
        guest.start(binary("salius-replica"), "--listen", "%s:%d" % (guest.ip, PORT), "--memory", "32MiB",
                    "--state-dir", "/dev/shm/state", "--insecure", log="/dev/ttyS0")

    def boot(self, primary=True, replicas=()):
        """Boots the machines that are off, at the same time: the primary with its disk mounted,
        replicas with empty memory."""
        guests = [self.replicas[i] for i in replicas]
        for guest in guests + ([self.primary] if primary else []):
            guest.power_on()
        for guest in guests:
            self._start_replica(guest.wait_booted())
        if primary:
            self._mount_disk(self.primary.wait_booted())

    def bad_link(self, i):
        """Delays replica i's datagrams by up to 10 ms, out of order, and loses some, until it
        reboots."""
        self.replicas[i].load("sch_netem")
        self.replicas[i].run("tc", "qdisc", "replace", "dev", "eth0", "root", "netem", "delay", "5ms", "5ms", "loss",
                             "3%")

    # ---- the primary

    def _mount_disk(self, guest):
        guest.load(*self._disk_modules)
        mount_disk(guest, self._mount_options)

    def recover(self, *options):
        """Runs salius-recover to its end; returns (exit code, output)."""
        code, out, errors = self.primary.run(binary("salius-recover"), *options, BACKING, check=False, timeout=180)
        return code, out + errors

    def start_recovery(self, flushes):
        """Starts salius-recover and waits until it has flushed the disk `flushes` times, or has
        ended."""
        before = self.disk.flushes
        pid = self.primary.start(binary("salius-recover"), BACKING, log="/dev/ttyS0")
        wait_until(lambda: self.disk.flushes - before >= flushes or self.primary.ended(pid) is not None, 180,
                   lambda: "salius-recover: %d flushes\n%s" % (self.disk.flushes - before,
                                                             self.primary.console_tail()), 0.001)

    def mount(self, options=(), mode=None):
        self.primary.run("mkdir", "-p", VOLUME)
        options = ("insecure", "recover=auto", "metrics=%s:%d" % (PRIMARY_IP, METRICS_PORT)) + tuple(options)
        self.daemon = self.primary.start(binary("salius-mount"), BACKING, VOLUME, "-f", "-o", ",".join(options),
                                         log="/dev/ttyS0")
        wait_until(self._mounted, 120, lambda: "no mount; console:\n" + self.primary.console_tail(), 0.3)
        if mode:
            self.wait_mode(mode)

    def wait_mode(self, mode):
        wait_until(lambda: self.mode() == mode, 120, lambda: "mode is %s; console:\n%s" % (
            self.mode(), self.primary.console_tail()), 0.1)

    def _mounted(self):
        code = self.primary.ended(self.daemon)
        if code is not None:
            raise HarnessError("salius-mount ended with %d; console:\n%s" % (code, self.primary.console_tail()))
        return self.primary.run("grep", "-q", "%s fuse" % VOLUME, "/proc/mounts", check=False)[0] == 0

    def mode(self):
        """Returns the mode in the mount's metrics (refreshed every second), read from outside the
        machine."""
        try:
            with inside(self.net.primary):
                text = urllib.request.build_opener(urllib.request.ProxyHandler({})).open(
                    "http://%s:%d/metrics" % (PRIMARY_IP, METRICS_PORT), timeout=5).read().decode()
        except OSError as error:
            return "unknown (%s)" % error
        for line in text.splitlines():
            if line.startswith("salius_volume_mode{") and line.endswith(" 1"):
                return line.split('"')[1]
        return "unknown"

    def close(self):
        for guest in self.guests:
            guest.close()
        if self.disk:
            self.disk.close()
        if self.net:
            self.net.close()


def mount_disk(guest, options=""):
    guest.run("mkdir", "-p", DISK)
    guest.run("mount", *(["-o", options] if options else []), "/dev/vda", DISK)
