"""Replicas on any address of hosts that have several: they answer from the address that was
asked."""
import re

from harness import ops
from harness.case import Case
from harness.net import Net

SECOND = "10.77.0.110"
SECOND6 = "fd77::110"


class TwoAddresses(Case):

    def mounted_by_second_address(self, second, listen, name):
        rig = self.rig(m=1, acks=1, start=False, names=[name])
        if ":" in second:
            rig.net.add_ipv6()
        rig.net.second_address(0, second)
        rig.replicas[0].listen = listen
        rig.replicas[0].start()
        rig.mount(mode="replicated")
        writer = ops.OpWriter(rig.path)
        self.addCleanup(writer.kill)
        writer.more(50)
        self.assertEqual(rig.mount_.mode(), "replicated")
        doctor = rig.volume.run("salius", "doctor", rig.backing)
        self.assertRegex(doctor.stdout, r"OK +replica %s UDP: answers" % re.escape(rig.replicas[0].address))
        rig.power_cut(also=writer.kill)
        done = rig.volume.recover()
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        ops.check(rig.backing, writer.ledger)

    def test_second_ipv4_address_of_a_replica_on_any(self):
        self.mounted_by_second_address(SECOND, "0.0.0.0", SECOND)

    def test_second_ipv6_address_of_a_replica_on_any(self):
        self.mounted_by_second_address(SECOND6, "[::]", "[%s]" % SECOND6)

    def test_second_ipv4_address_of_a_replica_on_any_of_both_families(self):
        self.mounted_by_second_address(SECOND, "[::]", SECOND)

    def test_second_address_and_a_multicast_group(self):
        """A datagram to the group is answered from the address by which the primary knows the
        replica."""
        rig = self.rig(m=2, acks=2, start=False, names=[SECOND, Net.ip(1)],
                       init_options=("--log-max", "16MiB", "--multicast", "239.255.74.9:7401"))
        rig.net.second_address(0, SECOND)
        rig.replicas[0].listen = "0.0.0.0"
        for replica in rig.replicas:
            replica.start()
        rig.mount(mode="replicated")
        writer = ops.OpWriter(rig.path)
        self.addCleanup(writer.kill)
        writer.more(100)
        self.assertEqual(rig.mount_.mode(), "replicated")
        # A hundred operations: each record would be sent again if its answer came from an unknown
        # address.
        self.assertLess(sum(r["resent"] for r in rig.mount_.status()["replicas"]), 20)
