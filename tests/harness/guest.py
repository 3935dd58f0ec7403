"""A whole machine: a QEMU process (TCG: no hardware virtualisation is needed) that the harness can
kill.

Its root is the host's, read only, through virtiofs. It has a network card on the bridge of a Net, a
virtio-serial port for commands (guest_agent.py), ports for ledgers, and optionally a Disk.
"""
import json
import os
import random
import socket
import threading
import time

from harness.kernel import kernel
from harness.proc import Proc, tail
from harness.run import HarnessError, current, wait_until

VIRTIOFSD = "/usr/lib/qemu/virtiofsd"
TESTS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
CONTROL = "control"
LEDGERS = ("ledger0", "ledger1")
BOOT_TIMEOUT_S = 180
# Only the CPU features that the programs use: emulation of AVX makes everything slower by a third.
CPU = "qemu64,+ssse3,+sse4.1,+sse4.2,+popcnt,+pclmulqdq,+aes"


class GuestDown(HarnessError):
    """The machine ended while the harness waited for it."""


class Guest:
    """A guest, switched off after construction. `ip` is its address on `net`'s bridge."""

    _serial = 0

    def __init__(self, net, ip, disk=None, memory_mb=192, cpus=1):
        Guest._serial += 1
        self.number = Guest._serial
        self.net, self.ip, self.disk, self.memory_mb, self.cpus = net, ip, disk, memory_mb, cpus
        self.name = "guest%d" % self.number
        self._base = os.path.join(current().dir, self.name)
        # The only one of its logs that a failed test shows.
        self.console = self._base + "-console.log"
        self.tap = net.tap("t%d" % self.number)
        self.qemu = self._virtiofsd = None
        self.boot_id = None
        self.boots = 0

    # ---- power

    def power_on(self):
        """Starts the machine; wait_booted() must follow. Two calls, so that several can boot at
        once."""
        if self.disk:
            self.disk.power_on()
        path = self._base + "-fs.sock"
        if os.path.exists(path):
            os.unlink(path)
        self._virtiofsd = Proc([VIRTIOFSD, "--socket-path=" + path, "-o", "source=/", "-o", "cache=always",
                                "-o", "sandbox=chroot", "-f"], self._base + "-virtiofsd.out")
        wait_until(lambda: os.path.exists(path), 20, lambda: "virtiofsd: " + self._virtiofsd.tail())
        listeners = {name: self._listen(name) for name in (CONTROL,) + LEDGERS}
        try:
            self.qemu = Proc(self._command_line(path), self._base + "-qemu.out", netns=self.net.switch)
            self._ports = {name: self._accept(listener) for name, listener in listeners.items()}
        finally:
            for listener in listeners.values():
                listener.close()
        self._lines = self._ports[CONTROL].makefile("r")
        self._ports[CONTROL].settimeout(BOOT_TIMEOUT_S)

    def wait_booted(self, attempts=3):
        """Waits until its agent answers and its network is up. Boots it again when its clock is
        wrong: the kernel compares two emulated clocks at boot, and on a busy host it may find that
        seconds are 40 ms long."""
        hello = self._receive()
        if not self._clock_is_right():
            if attempts == 1:
                raise HarnessError("%s has a clock that runs much too fast" % self.name)
            print("%s boots again: its clock runs much too fast" % self.name, flush=True)
            self.power_cut(random.Random(0))  # nothing has been written to its disk
            self.power_on()
            return self.wait_booted(attempts - 1)
        if hello["boot_id"] == self.boot_id:
            raise HarnessError("%s did not really reboot" % self.name)
        self.boot_id = hello["boot_id"]
        self.boots += 1
        self.run("sh", "-c", "ip link set lo up; ip addr add %s/24 dev eth0; ip link set eth0 up" % self.ip)
        return self

    def _clock_is_right(self):
        began = time.monotonic()
        self.run("sleep", "1")
        return time.monotonic() - began > 0.8

    def boot(self):
        self.power_on()
        return self.wait_booted()

    def kill(self):
        """Pulls the plug: SIGKILL of QEMU. Memory is lost; the disk waits for its power_cut()."""
        if self.qemu:
            self.qemu.kill()
        if self._virtiofsd:
            self._virtiofsd.kill()

    def power_cut(self, rng):
        """Kills the machine; the disk then loses a part of its cache, chosen by the dice."""
        self.kill()
        if self.disk:
            self.disk.power_cut(rng)

    def freeze(self):
        """Stops the whole machine; it answers no request."""
        self.qemu.stop()

    def thaw(self):
        self.qemu.cont()

    def close(self):
        self.kill()

    def _command_line(self, virtiofs_socket):
        append = ("console=ttyS0 quiet tsc=reliable no_timer_check mitigations=off nokaslr random.trust_cpu=on "
                  "cryptomgr.notests panic=-1 net.ifnames=0")
        line = ["qemu-system-x86_64", "-M", "q35", "-accel", "tcg,thread=multi", "-cpu", CPU,
                "-smp", self.cpus, "-m", self.memory_mb, "-nodefaults", "-no-user-config", "-display", "none",
                "-no-reboot", "-serial", "file:" + self.console,
                "-object", "memory-backend-memfd,id=mem,size=%dM,share=on" % self.memory_mb,
                "-numa", "node,memdev=mem",
                "-kernel", kernel().image, "-initrd", kernel().initramfs, "-append", append,
                "-chardev", "socket,id=fs,path=" + virtiofs_socket,
                "-device", "vhost-user-fs-pci,chardev=fs,tag=root",
                "-netdev", "tap,id=net,ifname=%s,script=no,downscript=no" % self.tap,
                "-device", "virtio-net-pci,netdev=net,romfile=,mac=52:54:00:77:00:%02x" % (self.number % 256),
                "-device", "virtio-rng-pci", "-device", "virtio-serial-pci"]
        for name in (CONTROL,) + LEDGERS:
            line += ["-chardev", "socket,id=%s,path=%s" % (name, self._port_path(name)),
                     "-device", "virtserialport,chardev=%s,name=%s" % (name, name)]
        if self.disk:
            line += ["-blockdev", "driver=nbd,node-name=disk,server.type=unix,server.path=" + self.disk.socket,
                     "-device", "virtio-blk-pci,drive=disk,discard=off,write-zeroes=off"]
        return line

    def _port_path(self, name):
        return "%s-%s.sock" % (self._base, name)

    def _listen(self, name):
        path = self._port_path(name)
        if os.path.exists(path):
            os.unlink(path)
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(path)
        listener.listen(1)
        listener.settimeout(0.25)
        return listener

    def _accept(self, listener):
        def attempt():
            if not self.qemu.alive():
                raise GuestDown("QEMU ended: " + self.qemu.tail())
            try:
                return listener.accept()[0]
            except TimeoutError:
                return None
        connection = wait_until(attempt, 30, lambda: "QEMU does not open its ports: " + self.qemu.tail())
        connection.settimeout(None)
        return connection

    def console_tail(self, lines=25):
        return tail(self.console, lines)

    # ---- commands

    def _receive(self):
        try:
            line = self._lines.readline()
        except TimeoutError:
            line = None
        if not line:
            raise GuestDown("%s %s; console:\n%s" % (
                self.name, "does not answer" if line is None else "is down", self.console_tail()))
        return json.loads(line)

    def _ask(self, timeout_s, **command):
        self._ports[CONTROL].settimeout(timeout_s)
        self._ports[CONTROL].sendall(json.dumps(command).encode() + b"\n")
        return self._receive()

    def run(self, *argv, check=True, timeout=60, env=None):
        """Runs a command in the guest to its end; returns (exit code, output, errors)."""
        answer = self._ask(timeout + 30, run=[str(a) for a in argv], timeout=timeout, env=env)
        if check and answer["code"] != 0:
            raise HarnessError("%s: %s: exit %d\n%s%s" % (
                self.name, " ".join(map(str, argv)), answer["code"], answer["out"], answer["err"]))
        return answer["code"], answer["out"], answer["err"]

    def start(self, *argv, log, ledger=None, env=None):
        """Starts a command and returns its pid in the guest. `ledger`: the port that is its
        standard output."""
        return self._ask(60, start=[str(a) for a in argv], log=log, ledger=ledger, env=env)["pid"]

    def ended(self, pid):
        """Returns the exit code of a started command, or None while it runs."""
        return self._ask(60, poll=pid)["code"]

    def signal(self, pid, number):
        self._ask(60, signal=pid, number=number)

    def load(self, *modules):
        for path in kernel().with_dependencies(modules):
            name = os.path.basename(path)[:-3].replace("-", "_")
            if self.run("test", "-d", "/sys/module/" + name, check=False)[0] != 0:
                self.run("/bin/busybox", "insmod", path)

    def read_ledger(self, port, ledger):
        """Passes the guest's output at `port` to `ledger` until the machine dies. Returns the
        thread that does."""
        connection = self._ports[port]

        def forward():
            for line in connection.makefile("r"):
                if line.endswith("\n"):
                    ledger.ack(int(line.split()[0]))
        thread = threading.Thread(target=forward, daemon=True)
        thread.start()
        return thread
