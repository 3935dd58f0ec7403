"""Network namespaces: one for the primary, one for each replica, one with the bridge between them.

Nothing is added to the host's own namespace, so that addresses never collide. Names begin with the
run's id. Packets are dropped by iptables inside a replica's namespace (netem is not everywhere).
"""
import contextlib
import ctypes
import os
import re
import socket

from harness.run import HarnessError, current, sh, wait_until

_libc = ctypes.CDLL(None, use_errno=True)
_CLONE_NEWNET = 0x40000000
PRIMARY_IP = "10.77.0.1"


class Net:
    """Namespaces of `count` replicas with addresses ip(i), all up and reachable after construction.

    `joined`: a message that a program sends travels as one packet, as with a card that splits it.
    Otherwise every datagram travels alone, so that each can be lost, late or duplicated."""

    _serial = 0

    def __init__(self, count, joined=False):
        Net._serial += 1
        self.prefix = "%s-%d" % (current().id, Net._serial)
        self.count = count
        self._joined = joined
        self._made = []
        self._pulled = set()  # replicas whose cables are out
        try:
            self._build()
        except BaseException:
            self.close()
            raise

    def _build(self):
        self.switch = switch = self._add("sw")
        sh("ip", "-n", switch, "link", "add", "br0", "type", "bridge")
        sh("ip", "-n", switch, "link", "set", "br0", "up")
        self.primary = self._add("p")
        self._cable(self.primary, PRIMARY_IP, "p")
        for i in range(self.count):
            self._cable(self._add("r%d" % i), self.ip(i), "r%d" % i)
        # A port detects its cable a moment after the cable is up.
        wait_until(self._forwards, 20, lambda: "ports do not forward:\n" + self._ports())

    def _ports(self):
        return sh("bridge", "-n", self.switch, "link", "show").stdout

    def _forwards(self):
        return self._ports().count("state forwarding") == 1 + self.count

    def _add(self, name):
        full = "%s-%s" % (self.prefix, name)
        sh("ip", "netns", "add", full)
        self._made.append(full)
        sh("ip", "-n", full, "link", "set", "lo", "up")
        return full

    def _cable(self, namespace, ip, port):
        switch = self.prefix + "-sw"
        sh("ip", "-n", switch, "link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", namespace)
        sh("ip", "-n", switch, "link", "set", port, "master", "br0", "up")
        if not self._joined:
            for where, device in ((namespace, "eth0"), (switch, port)):
                sh("nsenter", "--net=/run/netns/" + where, "ethtool", "-K", device, "tx-udp-segmentation", "off")
        sh("ip", "-n", namespace, "addr", "add", ip + "/24", "dev", "eth0")
        sh("ip", "-n", namespace, "link", "set", "eth0", "up")

    def readdress(self, i, ip):
        """Gives replica i's host another address and makes the primary's host forget the old one
        (as the ARP of a new address does)."""
        namespace = self.replica(i)
        sh("ip", "-n", namespace, "addr", "flush", "dev", "eth0")
        sh("ip", "-n", namespace, "addr", "add", ip + "/24", "dev", "eth0")
        sh("ip", "-n", self.primary, "neigh", "flush", "all")

    def second_address(self, i, ip):
        """Adds a second address to replica i's host, which still prefers its own."""
        self._address(self.replica(i), ip)

    @staticmethod
    def _address(namespace, ip):
        size, options = (64, ["nodad"]) if ":" in ip else (24, [])
        sh("ip", "-n", namespace, "addr", "add", "%s/%d" % (ip, size), "dev", "eth0", *options)

    def tap(self, port):
        """Adds a port of the switch for a machine (QEMU in the namespace self.switch); returns its
        name there."""
        sh("ip", "-n", self.switch, "tuntap", "add", "dev", port, "mode", "tap")
        sh("ip", "-n", self.switch, "link", "set", port, "master", "br0", "up")
        return port

    def replica(self, i):
        return "%s-r%d" % (self.prefix, i)

    @staticmethod
    def ip(i):
        return "10.77.0.%d" % (10 + i)

    def _iptables(self, i, *rule):
        self._rule(self.replica(i), *rule)

    @staticmethod
    def _rule(namespace, *rule):
        return sh("nsenter", "--net=/run/netns/" + namespace, "iptables", "-w", *rule).stdout

    def _packets(self, namespace, of=""):
        """Returns how many packets the rules there have matched; with `of`, only the rules that
        contain it."""
        rules = self._rule(namespace, "-v", "-S")
        counts = re.findall(r"^-A (.*) -c (\d+) \d+", rules, re.MULTILINE)
        return sum(int(count) for rule, count in counts if of in rule)

    # Local traffic of a host is neither dropped nor counted, so that a test can ask a host that is
    # cut off.
    _CABLE = {"INPUT": ("-i", "eth0"), "OUTPUT": ("-o", "eth0")}

    def drop(self, i, udp_only=False, incoming=True, outgoing=True):
        """Drops packets to and from replica i from now on; `udp_only` leaves the gRPC control
        alone."""
        match = ["-p", "udp"] if udp_only else []
        for chain, wanted in (("INPUT", incoming), ("OUTPUT", outgoing)):
            if wanted:
                self._iptables(i, "-A", chain, *self._CABLE[chain], *match, "-j", "DROP")

    def drop_control(self, i):
        """Drops incoming TCP traffic of replica i: its control port. Its own look-ups
        are still answered."""
        self._iptables(i, "-A", "INPUT", "-i", "eth0", "-p", "tcp", "-j", "DROP")

    def lose(self, i, probability):
        """Drops that share of the datagrams, in both directions."""
        for chain in ("INPUT", "OUTPUT"):
            self._iptables(i, "-A", chain, *self._CABLE[chain], "-p", "udp", "-m", "statistic", "--mode", "random",
                           "--probability", str(probability), "-j", "DROP")

    def slow(self, i, megabits):
        """Limits replica i's sending rate to `megabits` Mbit/s from now on."""
        sh("ip", "netns", "exec", self.replica(i), "tc", "qdisc", "add", "dev", "eth0", "root", "tbf", "rate",
           "%dmbit" % megabits, "burst", "64kb", "latency", "50ms")

    def dropped(self, i):
        """Returns how many packets were dropped at replica i since it was last healed."""
        return self._packets(self.replica(i))

    def heal(self, i):
        """Stops all dropping. Returns how many packets were dropped."""
        dropped = self.dropped(i)
        self._iptables(i, "-F")
        return dropped

    def primary_mtu(self, size):
        """Sets the MTU of the primary's cable, at both ends. Frames that are larger than the
        replicas' (1500) vanish silently at the switch."""
        sh("ip", "-n", self.primary, "link", "set", "eth0", "mtu", size)
        sh("ip", "-n", self.switch, "link", "set", "p", "mtu", size)

    def narrow(self, i, size):
        """Makes larger packets to replica i vanish on the way, while no cable at either end shows
        it."""
        self._iptables(i, "-A", "INPUT", "-m", "length", "--length", "%d:" % (size + 1), "-j", "DROP")

    def add_ipv6(self):
        """Gives every host an IPv6 address too: ipv6(i), and the primary's."""
        for namespace, ip in [(self.primary, "fd77::1")] + [(self.replica(i), self.ipv6(i)) for i in range(self.count)]:
            self._address(namespace, ip)

    @staticmethod
    def ipv6(i):
        return "fd77::%x" % (16 + i)

    def jumbo(self, size):
        """Makes every cable carry frames of that size from now on."""
        self.primary_mtu(size)
        for i in range(self.count):
            sh("ip", "-n", self.replica(i), "link", "set", "eth0", "mtu", size)
            sh("ip", "-n", self.switch, "link", "set", "r%d" % i, "mtu", size)

    def deafen(self, i, group):
        """Drops multicast to the group at replica i from now on."""
        self._iptables(i, "-A", "INPUT", "-d", group + "/32", "-j", "DROP")

    def link(self, i, up):
        """Plugs or pulls the replica's cable, at the switch. Returns how many packets the primary
        sent while it was out."""
        sent, lost = ("OUTPUT", "-d", self.ip(i) + "/32"), 0
        if up and i in self._pulled:
            lost = self._packets(self.primary, " ".join(sent))
            self._rule(self.primary, "-D", *sent)
            self._pulled.remove(i)
        sh("ip", "-n", self.prefix + "-sw", "link", "set", "r%d" % i, "up" if up else "down")
        if not up and i not in self._pulled:
            self._rule(self.primary, "-A", *sent)  # no target: it only counts
            self._pulled.add(i)
        return lost

    def close(self):
        for name in reversed(self._made):
            sh("ip", "netns", "del", name, check=False)
        self._made = []


class Hosts:
    """Names of hosts: an /etc/hosts that only this run sees."""

    def __init__(self, addresses):
        self._file = os.path.join(current().dir, "hosts")
        with open(self._file, "wb"):
            pass
        self.set(addresses)
        sh("mount", "--bind", self._file, "/etc/hosts")

    def set(self, addresses):
        """Sets {name: address, or a list of them}: all names except localhost. A concurrent look-up
        sees the old names or the new ones."""
        text = "127.0.0.1 localhost\n" + "".join(
            "%s %s\n" % (ip, name) for name, ips in addresses.items() for ip in ([ips] if isinstance(ips, str) else ips))
        with open(self._file, "rb+", buffering=0) as f:
            f.write(text.encode().ljust(4096, b"\n"))

    def close(self):
        sh("umount", "/etc/hosts")


class DeadNameServer:
    """A name server in the primary's namespace of `net`. It receives queries and never answers: a
    query waits for PATIENCE_S."""

    PATIENCE_S = 30  # the longest time that the C library waits

    def __init__(self, net):
        self._file = os.path.join(current().dir, "resolv.conf")
        with open(self._file, "w") as f:
            f.write("nameserver 127.0.0.1\noptions timeout:%d attempts:1\n" % self.PATIENCE_S)
        with inside(net.primary):
            self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind(("127.0.0.1", 53))
        self._socket.settimeout(30)
        sh("mount", "--bind", self._file, "/etc/resolv.conf")

    def wait_asked(self, *names):
        """Waits until each of `names` was queried, in any order."""
        missing = {name.encode() for name in names}
        while missing:
            asked = self._socket.recv(512)
            missing = {name for name in missing if name not in asked}

    def close(self):
        sh("umount", "/etc/resolv.conf")
        self._socket.close()


@contextlib.contextmanager
def inside(namespace):
    """Puts the calling thread's new sockets into `namespace` within the block."""
    home = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    there = os.open("/run/netns/" + namespace, os.O_RDONLY | os.O_CLOEXEC)
    try:
        _setns(there)
        try:
            yield
        finally:
            _setns(home)
    finally:
        os.close(there)
        os.close(home)


def _setns(fd):
    if _libc.setns(fd, _CLONE_NEWNET) != 0:
        raise HarnessError("setns: " + os.strerror(ctypes.get_errno()))
