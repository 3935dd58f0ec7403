"""Records by UDP multicast: one datagram for all replicas, acks and re-sends by unicast."""
from harness import ops
from harness.case import Case
from harness.rig import PATIENT
from harness.run import sh

GROUP = "239.77.0.1"
# An address of the primary that is on none of its cables, of a network without a replica.
ADDRESS_ON_LO = "10.99.0.1"


class Multicast(Case):

    def test_records_reach_every_replica_through_the_group_alone(self):
        # No namespace has a route to the group: it leaves, and is joined, by the interface between
        # primary and replicas.
        self.check_group(self.make())

    def test_a_primary_whose_address_is_on_the_loopback_interface(self):
        # Its address does not determine the interface to the replicas; the route to the group does.
        rig = self.make()
        sh("ip", "-n", rig.net.primary, "addr", "add", ADDRESS_ON_LO + "/32", "dev", "lo")
        for i in range(3):
            sh("ip", "-n", rig.net.primary, "route", "add", rig.net.ip(i) + "/32", "dev", "eth0", "src", ADDRESS_ON_LO)
            sh("ip", "-n", rig.net.replica(i), "route", "add", ADDRESS_ON_LO + "/32", "dev", "eth0")
        for namespace in [rig.net.primary] + [rig.net.replica(i) for i in range(3)]:
            sh("ip", "-n", namespace, "route", "add", GROUP + "/32", "dev", "eth0")
        self.check_group(rig)

    def make(self):
        return self.rig(m=3, acks=3, init_options=PATIENT + ("--multicast", GROUP + ":7401"))

    def check_group(self, rig):
        """Drops unicast datagrams to replicas (sessions are TCP): acknowledged records came by the
        group."""
        mount = rig.mount(mode="replicated")
        writer = ops.OpWriter(rig.path)
        self.addCleanup(writer.kill)
        writer.more(20)
        for i in range(3):
            rig.net._iptables(i, "-A", "INPUT", "-p", "udp", "-d", rig.net.ip(i), "-j", "DROP")
        writer.more(100)
        self.assertEqual(mount.mode(), "replicated", mount.status())
        for i in range(3):
            rig.net.heal(i)
        writer.more(20)
        rig.power_cut(also=writer.kill)
        for replica in rig.replicas[:2]:
            replica.lose_memory()  # f - 1 = 2: one replica holds everything
        done = rig.volume.recover()
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        ops.check(rig.backing, writer.ledger)
