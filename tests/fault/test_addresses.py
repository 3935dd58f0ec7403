"""Replicas known by names whose addresses change while the volume is mounted, or are not yet
known."""
import os
import time

from fault.test_replicas import report_of
from harness import ops
from harness.case import Case
from harness.net import DeadNameServer, Hosts, Net
from harness.proc import Proc
from harness.run import binary, sh, wait_until
from harness.volume import Mount

NAMES = ["salius-one", "salius-two", "salius-three"]
ELSEWHERE = "10.77.0.99"


class Addresses(Case):

    def named(self, m, acks):
        """Returns a rig whose replicas have names; self.hosts then holds their addresses, which a
        test may change."""
        self.hosts = dict(zip(NAMES[:m], map(Net.ip, range(m))))
        self.files = self.own(Hosts(self.hosts))
        return self.rig(m=m, acks=acks, names=NAMES[:m])

    def set_addresses(self, **changes):
        """Changes the names' addresses from now on; None removes a name."""
        for name, address in changes.items():
            self.hosts["salius-" + name] = address
        self.files.set({name: address for name, address in self.hosts.items() if address})

    def writing(self):
        """Returns a mounted rig of two replicas, both needed, and a writer on it."""
        rig = self.named(2, 2)
        rig.mount(mode="replicated")
        writer = ops.OpWriter(rig.path)
        self.addCleanup(writer.kill)
        writer.more(30)
        return rig, writer

    def check_after_a_cut(self, rig, writer):
        writer.more(30)
        rig.power_cut(also=writer.kill)
        done = rig.volume.recover()
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        ops.check(rig.backing, writer.ledger)

    def moved(self, loses_memory):
        rig, writer = self.writing()
        mount, victim = rig.mount_, rig.replicas[1]
        before = report_of(mount.status(), victim)["incarnation"]
        victim.move(ELSEWHERE)
        if loses_memory:
            victim.lose_memory()
        mount.wait_mode("local")
        writer.more(10)
        self.set_addresses(two=ELSEWHERE)
        victim.start()
        status = mount.wait_mode("replicated")
        self.assertEqual(report_of(status, victim)["incarnation"] == before, not loses_memory)
        self.check_after_a_cut(rig, writer)

    def test_new_replica_at_another_address_is_found_without_a_remount(self):
        self.moved(loses_memory=True)

    def test_replica_that_comes_back_with_its_memory_at_another_address_is_found_without_a_remount(self):
        self.moved(loses_memory=False)

    def exchanged(self, names_change_before_start):
        """Exchanges the addresses of two hosts; nothing acknowledged before or after may be
        missing."""
        rig, writer = self.writing()
        mount, (first, second) = rig.mount_, rig.replicas
        before = [report_of(mount.status(), r)["incarnation"] for r in rig.replicas]
        ips = first.ip, second.ip
        first.move(ELSEWHERE)
        second.move(ips[0])
        first.move(ips[1])
        mount.wait_mode("local")
        names = {"one": ips[1], "two": ips[0]}
        if names_change_before_start:
            self.set_addresses(**names)
            wait_until(lambda: "replica salius-one:7400 is at %s:7400 now" % ips[1] in rig.volume.tail(), 30,
                       "the first is not followed")
        for replica in rig.replicas:
            replica.start()
        status = mount.wait_mode("replicated")
        if names_change_before_start:
            self.assertEqual([report_of(status, r)["incarnation"] for r in rig.replicas], before)
        self.set_addresses(**names)
        self.check_after_a_cut(rig, writer)

    def test_two_hosts_that_have_exchanged_their_addresses_are_found(self):
        self.exchanged(names_change_before_start=True)

    def test_two_hosts_that_answer_at_each_others_addresses_keep_what_they_hold(self):
        """The names lead to the new addresses only after the volume has written to the hosts.
        Recovery identifies the hosts by their memory."""
        self.exchanged(names_change_before_start=False)

    def test_name_without_an_address_keeps_no_volume_from_its_host(self):
        rig = self.named(3, 2)
        third = rig.replicas[2]
        third.lose_memory()
        self.set_addresses(three=None)
        mount = rig.mount(mode="replicated")
        mount.wait_status(lambda s: "salius-three" in report_of(s, third)["problem"], 30, "the problem is not shown")
        rig.volume.wait_log("salius-three:7400 has no address yet")
        third.start()
        self.set_addresses(three=third.ip)
        mount.wait_status(lambda s: report_of(s, third)["member"], 30, "the third replica is not found")

    def test_silent_name_server_delays_neither_a_returning_replica_nor_the_unmount(self):
        rig = self.named(2, 2)
        server = self.own(DeadNameServer(rig.net))
        mount = rig.mount(mode="replicated")
        self.set_addresses(one=None, two=None)
        second = rig.replicas[1]
        second.lose_memory()
        mount.wait_mode("local")
        server.wait_asked("salius-two")
        second.start()
        mount.wait_mode("replicated", 15)
        second.lose_memory()
        mount.wait_mode("local")
        began = time.monotonic()
        mount.umount()
        self.assertLess(time.monotonic() - began, 15, "the resolver was waited for")
        self.assertIn("closed cleanly", rig.volume.tail())

    def test_a_mount_asks_for_all_names_at_once(self):
        """An unanswered look-up takes its full time-out. The mounting unit has no time for several
        in a row."""
        rig = self.named(3, 2)
        server = self.own(DeadNameServer(rig.net))
        self.set_addresses(two=None, three=None)
        mounting = Proc([binary("salius-mount"), rig.backing, rig.path, "-f", "-o", "insecure"], rig.volume.log, netns=rig.net.primary)
        self.addCleanup(mounting.kill)
        began = time.monotonic()
        server.wait_asked("salius-two", "salius-three")
        self.assertLess(time.monotonic() - began, DeadNameServer.PATIENCE_S)

    def test_names_new_host_needs_a_trusted_network(self):
        rig = self.named(1, 1)
        replica = rig.replicas[0]
        self.set_addresses(one="127.0.0.1")  # no host is there
        mount = self.own(Mount(rig.volume, insecure=False))
        mount.wait_status(lambda s: "No such file" in report_of(s, replica)["problem"], 30, "a host answers at the address")
        self.set_addresses(one=replica.ip)
        mount.wait_status(lambda s: "insecure" in report_of(s, replica)["problem"], 30,
                          "the status does not say why the replica is not used")
        self.assertEqual(mount.mode(), "local")
        self.assertEqual(replica.metrics()["salius_replica_volumes"], 0, "the replica was called")

    def test_datagrams_fit_the_path_to_a_names_new_host(self):
        rig = self.named(1, 1)
        self.set_addresses(one="127.0.0.1")  # no host is there, and datagrams may be large
        mount = rig.mount()
        mount.wait_status(lambda s: "refused" in report_of(s, rig.replicas[0])["problem"], 30, "a host answers at the address")
        self.set_addresses(one=rig.replicas[0].ip)
        mount.wait_mode("replicated")
        before = self.fragments(rig)
        fd = os.open(rig.file("f"), os.O_WRONLY | os.O_CREAT | os.O_SYNC)
        os.write(fd, bytes(100000))
        os.close(fd)
        wait_until(lambda: rig.replicas[0].metrics()["salius_replica_record_bytes_total"] >= 100000, 20,
                   "the record has not come to the replica")
        self.assertEqual(self.fragments(rig), before, "the network had to cut datagrams")

    @staticmethod
    def fragments(rig):
        """Returns the number of fragments that the primary's host made of large packets."""
        lines = sh("nsenter", "--net=/run/netns/" + rig.net.primary, "cat", "/proc/thread-self/net/snmp").stdout
        names, values = [line.split() for line in lines.splitlines() if line.startswith("Ip:")]
        return int(values[names.index("FragCreates")])

    def test_two_names_of_one_host_count_once(self):
        rig = self.named(2, 2)
        mount = rig.mount(mode="replicated")
        rig.replicas[1].lose_memory()
        self.set_addresses(two=rig.replicas[0].ip)
        mount.wait_status(lambda s: "salius-one" in report_of(s, rig.replicas[1])["problem"], 30,
                          "the status does not say that the two are one host")
        self.assertEqual(mount.mode(), "local")
        rig.replicas[1].start()
        self.set_addresses(two=rig.replicas[1].ip)
        mount.wait_mode("replicated")

    def test_each_address_of_a_name_is_tried(self):
        """No host answers at the address that the resolver puts first, the one closer to the
        primary's."""
        rig = self.named(2, 2)
        self.set_addresses(one=["10.77.0.2", rig.replicas[0].ip], two=["10.77.0.3", rig.replicas[1].ip])
        self.check_all_addresses(rig)

    def test_name_with_addresses_of_both_families_is_found_at_the_one_where_it_listens(self):
        rig = self.named(2, 2)
        rig.net.add_ipv6()
        self.set_addresses(one=[rig.net.ipv6(0), rig.replicas[0].ip], two=[rig.net.ipv6(1), rig.replicas[1].ip])
        self.check_all_addresses(rig)

    def test_name_with_datagrams_over_one_family_only(self):
        """Its control port answers at both addresses (TCP); its datagrams to the first are
        dropped."""
        rig = self.named(1, 1)
        rig.net.add_ipv6()
        replica = rig.replicas[0]
        replica.kill()
        replica.listen = "[::]"
        replica.start()
        sh("nsenter", "--net=/run/netns/" + rig.net.replica(0), "ip6tables", "-w", "-A", "INPUT", "-p", "udp", "-j", "DROP")
        self.set_addresses(one=[rig.net.ipv6(0), replica.ip])
        self.check_all_addresses(rig)

    def check_all_addresses(self, rig):
        """Checks that the volume reaches mode replicated, and that the doctor and a recovery find
        its replicas."""
        rig.mount().wait_status(
            lambda s: "does not answer at" in rig.volume.tail() and s["mode"] == "replicated" and
            all(r["member"] and r["connected"] for r in s["replicas"]), 60, "the second address is not tried")
        writer = ops.OpWriter(rig.path)
        self.addCleanup(writer.kill)
        self.check_after_a_cut(rig, writer)
