"""The places of replicas and echo servers. All are on this host's loopback, or each is in a network
namespace of its own behind a veth cable, with the frame size of a real network."""
import socket

from harness.net import Net, inside
from harness.proc import Proc, tail
from harness.relay import Relay
from harness.run import HarnessError, current, sh, wait_until

FIRST_PORT = 7400
GROUP = "239.255.74.1:7401"


class Loopback:
    """Everything in the benchmark's own namespace."""

    name = "loopback"
    primary = None  # namespace of the primary: this one
    _next_port = FIRST_PORT  # several may exist at a time

    def __init__(self, count, mtu=None):
        del mtu
        self.count = count
        self._first_port = Loopback._next_port
        Loopback._next_port += count

    def host(self, _):
        return "127.0.0.1"

    def address(self, i):
        return "127.0.0.1:%d" % (self._first_port + i)

    def namespace(self, _):
        return None

    def close(self):
        pass


class Veth:
    """`count` hosts and the primary on a bridge; `mtu` on every port."""

    def __init__(self, count, mtu):
        self.name = "veth, MTU %d" % mtu
        self.count = count
        self.net = Net(count, joined=True)
        self.primary = self.net.primary
        try:
            self._set_mtu(mtu)
        except BaseException:
            self.close()
            raise

    def _set_mtu(self, mtu):
        ports = [("p", self.primary)] + [("r%d" % i, self.net.replica(i)) for i in range(self.count)]
        for port, namespace in ports:
            sh("ip", "-n", self.net.switch, "link", "set", port, "mtu", str(mtu))
            sh("ip", "-n", namespace, "link", "set", "eth0", "mtu", str(mtu))

    def host(self, i):
        return self.net.ip(i)

    def address(self, i):
        return "%s:%d" % (self.net.ip(i), FIRST_PORT)

    def namespace(self, i):
        return self.net.replica(i)

    def close(self):
        self.net.close()


class Delayed(Veth):
    """`count` hosts and the primary on a bridge; every packet to or from a host is `delay_ms` late,
    gRPC's too."""

    def __init__(self, count, delay_ms):
        self.name = "veth, %g ms away" % delay_ms
        self.count = count
        self.net = Net(count)  # a relay passes packets that fit the cable
        self.primary = self.net.primary
        self._relays = []
        try:
            for i in range(count):
                self._relays.append(Relay(self.net, i, delay_ms, 0, 0, i))
        except BaseException:
            self.close()
            raise

    def close(self):
        for relay in self._relays:
            relay.close()
        super().close()


def answers(network, i):
    """Returns whether the TCP port of host i accepts connections."""
    host, port = network.address(i).rsplit(":", 1)
    try:
        if network.primary is None:
            socket.create_connection((host, int(port)), 0.5).close()
        else:
            with inside(network.primary):
                socket.create_connection((host, int(port)), 0.5).close()
        return True
    except OSError:
        return False


class EchoServers:
    """An echo server on every host of the network; `addresses` are theirs. `words`: put before the
    command; `options`: put after it."""

    _serial = 0

    def __init__(self, network, program, words=(), options=()):
        EchoServers._serial += 1
        self.procs, self.addresses = [], []
        try:
            for i in range(network.count):
                log = "%s/echo-%d-%d.log" % (current().dir, EchoServers._serial, i)
                self.procs.append(Proc([*words, program, *options, network.host(i)], log, netns=network.namespace(i)))
                self.addresses.append(self._address(self.procs[-1], network.host(i), log))
        except BaseException:
            self.close()
            raise

    @staticmethod
    def _address(proc, host, log):
        found = []

        def printed():
            if not proc.alive():
                raise HarnessError("an echo server ended with %s:\n%s" % (proc.popen.returncode, proc.tail()))
            with open(log) as f:
                found.extend(line.strip() for line in f if line.startswith(host + ":"))
            return bool(found)

        wait_until(printed, 20, lambda: "an echo server is not up:\n" + tail(log))
        return found[0]

    def pids(self):
        return [proc.pid for proc in self.procs]

    def close(self):
        for proc in self.procs:
            proc.kill()
