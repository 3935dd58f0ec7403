"""Each tool that makes faults must really make them."""
import os
import socket
import subprocess
import time

from campaign import fault_disk, fault_host
from campaign.engine import Campaign
from campaign.schedule import Shape
from campaign.test_controls import power_cut
from harness.case import Case
from harness.clock import Clock
from harness.memory_group import MemoryGroup
from harness.net import Net, inside
from harness.relay import Relay
from harness.run import sh, wait_until


class FaultsAreReal(Case):

    def test_the_clock_is_set_under_a_running_process_and_its_waits_follow(self):
        clock = Clock()

        def now():
            return int(sh("date", "+%s", env=clock.env).stdout)
        self.assertAlmostEqual(now(), time.time(), delta=3)
        clock.set(-3600)
        self.assertAlmostEqual(now(), time.time() - 3600, delta=3)
        clock.set(86400)
        self.assertAlmostEqual(now(), time.time() + 86400, delta=3)

    def test_the_relay_delays_and_duplicates_and_the_cable_is_plain_again(self):
        # From two CPUs datagrams may overtake each other at a place where nothing counts them.
        cpus = os.sched_getaffinity(0)
        self.addCleanup(os.sched_setaffinity, 0, cpus)
        os.sched_setaffinity(0, {min(cpus)})
        net = self.own(Net(1))
        with inside(net.primary):
            sender = self.own(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
        with inside(net.replica(0)):
            receiver = self.own(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
            receiver.bind((net.ip(0), 7777))
            receiver.settimeout(5)

        def send(copies):
            """Returns the milliseconds until the last copy has arrived."""
            began = time.monotonic()
            sender.sendto(b"x" * 1000, (net.ip(0), 7777))
            for _ in range(copies):
                self.assertEqual(receiver.recv(2000), b"x" * 1000)
            return (time.monotonic() - began) * 1e3

        def send_many():
            """Returns the datagrams that arrive of 50 that are numbered."""
            for number in range(50):
                sender.sendto(bytes([number]), (net.ip(0), 7777))
            return [receiver.recv(10)[0] for _ in range(100)]
        relay = Relay(net, 0, delay_ms=40, jitter_ms=1, duplicate=1, seed=1)
        try:
            times, numbers = [send(2) for _ in range(5)], send_many()
        finally:
            relay.close()
        self.assertGreaterEqual(min(times), 40)
        self.assertEqual(sorted(numbers), sorted(2 * list(range(50))))
        late = sum(number < max(numbers[:n], default=0) for n, number in enumerate(numbers))
        self.assertGreater(late, 0)
        self.assertEqual(relay.counts, {"delayed": 55, "duplicated": 55, "reordered": late})
        self.assertLess(min(send(1) for _ in range(5)), 40)
        receiver.settimeout(0.2)
        with self.assertRaises(TimeoutError):
            receiver.recv(2000)

    def test_stopped_programs_pause_and_continue(self):
        campaign = Campaign(Shape(2, 1, "ext4"), ["ops", "wal", "pg"], self.own, self.report, size_mb=1024)
        for work in campaign.works:
            work.progress(10, 60)
        stop = fault_host.StopWriters()
        stop.inject(campaign)

        def acked():
            return [work.acked() for work in campaign.works]

        # Output printed before they stopped is read soon; after that there is none.
        wait_until(lambda: self.stays(acked, 0.2), 30, "acknowledgements still arrive")
        self.assertTrue(self.stays(acked, 0.5))
        stop.heal(campaign)
        for work in campaign.works:
            work.progress(10, 60)
        campaign.finish()

    @staticmethod
    def stays(value, seconds):
        """Returns whether the value is the same after that time."""
        before = value()
        time.sleep(seconds)
        return value() == before

    def test_a_recovery_is_stopped_while_it_has_the_volume_and_ends_well(self):
        shape = Shape(2, 1, "ext4")
        campaign = Campaign(shape, ["ops"], self.own, self.report)
        for after_ms in range(10, 160, 10):  # in the middle of it, however fast this machine is
            campaign.run([power_cut(shape, recovery="stopped", kill_recovery_ms=after_ms, stop_recovery_ms=500)])
            if campaign.counts["recovery stopped"]:
                return
        self.fail("no recovery was stopped in the middle: %s" % campaign.counts)

    def test_a_slow_disk_is_slow_and_fast_again(self):
        why = fault_disk.DiskSlow.missing()
        if why:
            self.skipTest(why)
        rig = self.rig(m=1, acks=1)
        slow = fault_disk.DiskSlow(iops=5)

        def two_syncs():
            began = time.monotonic()
            with open(os.path.join(rig.image.path, "probe"), "wb", buffering=0) as f:
                for _ in range(3):
                    f.write(b"x")
                    os.fsync(f.fileno())
            return time.monotonic() - began
        campaign = type("OnlyRig", (), {"rig": rig, "own": self.own})
        slow.inject(campaign)
        slowly = two_syncs()
        slow.heal(campaign)
        self.assertGreater(slowly, 0.5)
        self.assertTrue(slow.hit())
        self.assertLess(two_syncs(), slowly / 2)
        rig.image.umount()  # no process can write
        unused = fault_disk.DiskSlow(iops=5)
        unused.inject(campaign)
        unused.heal(campaign)
        self.assertFalse(unused.hit())
        rig.image.mount()

    def test_memory_limit_kills_a_larger_process(self):
        group = MemoryGroup(16)
        try:
            done = subprocess.run([*group.wrapper, "/usr/bin/python3", "-c", "len(bytearray(256 << 20))"], check=False,
                                  stderr=subprocess.PIPE)
            self.assertNotEqual(done.returncode, 0)
        finally:
            group.close()
