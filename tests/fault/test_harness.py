"""The harness itself: a power cut loses unsynced data and nothing else, and the same harness
catches a program that only pretends to sync. Without these tests every other test here proves
nothing."""
import contextlib
import errno
import os
import socket

from harness import op_writer, ops, sbin, sqlite
from harness.case import Case
from harness.image import Image, missing
from harness.ledger import Ledger
from harness.net import PRIMARY_IP, Net, inside
from harness.run import current

SO_RCVBUFFORCE = 33


class PowerCut(Case):

    def one(self, fs):
        image = self.own(Image("cut-" + fs, fs, 512))
        synced, lost = os.path.join(image.path, "synced"), os.path.join(image.path, "lost")
        fd = os.open(synced, os.O_CREAT | os.O_WRONLY, 0o600)
        os.write(fd, b"s" * 5000)
        os.fsync(fd)
        os.close(fd)
        with open(lost, "wb") as f:
            f.write(b"l" * 5000)
        image.power_cut()
        with open(synced, "rb") as f:
            self.assertEqual(f.read(), b"s" * 5000)
        self.assertFalse(os.path.exists(lost), "the cut let unsynced data reach the disk")
        image.check()

    def test_power_cut_keeps_what_was_synced_and_loses_the_rest_on_ext4(self):
        self.one("ext4")

    def test_power_cut_keeps_what_was_synced_and_loses_the_rest_on_xfs(self):
        self.one("xfs")

    def test_power_cut_keeps_what_was_synced_and_loses_the_rest_on_btrfs(self):
        if missing("btrfs"):
            self.skipTest(missing("btrfs"))
        self.one("btrfs")

    def test_sync_after_the_shutdown_fails_and_reaches_nothing(self):
        image = self.own(Image("after", "ext4", 64))
        fd = os.open(os.path.join(image.path, "f"), os.O_CREAT | os.O_WRONLY, 0o600)
        image.shutdown()
        with self.assertRaises(OSError) as caught:
            os.write(fd, b"x")
            os.fsync(fd)
        self.assertEqual(caught.exception.errno, errno.EIO)
        os.close(fd)
        image.umount()
        image.mount()
        self.assertFalse(os.path.exists(os.path.join(image.path, "f")))

    def test_helpers_that_the_machine_has_are_not_found(self):
        for name in sbin.HELPERS:
            self.assertFalse(os.path.lexists("/sbin/" + name), name)
        sbin.put("mount.salius", "/installed")
        sbin.hide_installed()
        self.assertFalse(os.path.lexists("/sbin/mount.salius"))

    def test_copy_of_a_mounted_image_is_a_disk_of_its_own(self):
        image = self.own(Image("origin", "ext4", 64))
        with open(os.path.join(image.path, "a"), "w") as f:
            f.write("first")
            f.flush()
            os.fsync(f.fileno())
        copy = self.own(image.copy("copy"))
        with open(os.path.join(copy.path, "a"), "w") as f:
            f.write("second")
        with open(os.path.join(image.path, "a")) as f:
            self.assertEqual(f.read(), "first")


class Controls(Case):
    """SQLite on the bare image: real syncs lose nothing, and the loss under eatmydata is
    detected."""

    def run_bare(self, journal, wrapper, cuts, fs="ext4"):
        """Returns after how many of the cuts an acknowledged row was missing."""
        image = self.own(Image("bare", fs, 256))
        damaged = 0
        for cut in range(cuts):
            db = os.path.join(image.path, "db%d" % cut)
            ledger = Ledger()
            writer = sqlite.SqliteWriter(db, journal, ledger, 1, wrapper, "extra")
            self.addCleanup(writer.kill)
            writer.wait(self.rng.randint(50, 150))
            # A cut on btrfs copies the disk's bytes: later acknowledgements would be lost with it.
            if fs == "btrfs":
                writer.kill()
            image.power_cut(writer.kill)
            try:
                sqlite.check(db, ledger)
            except sqlite.Damage:
                damaged += 1
        return damaged

    def test_sqlite_with_real_syncs_loses_nothing_on_the_bare_image(self):
        for journal in ("wal", "delete"):
            with self.subTest(journal=journal):
                self.assertEqual(self.run_bare(journal, (), self.count(2, 10)), 0)

    def test_sqlite_under_eatmydata_loses_rows_and_the_check_sees_it(self):
        for journal in ("wal", "delete"):
            with self.subTest(journal=journal):
                cuts = self.count(2, 10)
                self.assertEqual(self.run_bare(journal, self.eatmydata(), cuts), cuts)

    def test_on_btrfs_real_syncs_lose_nothing_and_fake_syncs_are_caught(self):
        if missing("btrfs"):
            self.skipTest(missing("btrfs"))
        cuts = self.count(2, 10)
        self.assertEqual(self.run_bare("wal", (), cuts, "btrfs"), 0)
        self.assertEqual(self.run_bare("wal", self.eatmydata(), cuts, "btrfs"), cuts)


class TornOperations(Case):

    def damage(self, slot_of_9, torn):
        """Returns the check's text about 8 acknowledged overwrites with `slot_of_9` in the next
        one's slot; "" if it accepts them."""
        root = os.path.join(current().dir, "torn")
        for folder in ("new", "kept"):
            os.makedirs(os.path.join(root, folder), exist_ok=True)
        with open(os.path.join(root, "slots"), "wb") as f:
            f.write(bytes(op_writer.SLOT) + b"".join(op_writer.body(n) for n in range(1, 9)) + slot_of_9)
        ledger = Ledger()
        for number in range(1, 9):
            ledger.ack(number)
        try:
            ops.check(root, ledger, "slots", torn)
            return ""
        except ops.Damage as damage:
            return str(damage)

    def test_only_the_operation_in_progress_may_be_torn_where_allowed(self):
        whole = op_writer.body(9)
        half = whole[:1024] + bytes(3072)
        self.assertEqual([self.damage(s, False) for s in (b"", whole)], ["", ""])
        self.assertIn("slot 9", self.damage(half, False))
        self.assertEqual(self.damage(half, True), "")
        self.assertIn("slot 9", self.damage(whole[:1024] + op_writer.body(8)[:3072], True))
        self.assertIn("slot 10", self.damage(whole + half, True))


class Network(Case):

    def setUp(self):
        super().setUp()
        self.net = self.own(Net(1))
        self.primary = self.bound(self.net.primary, PRIMARY_IP)
        self.replica = self.bound(self.net.replica(0), self.net.ip(0))

    def bound(self, namespace, ip):
        with inside(namespace):
            end = self.own(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
        end.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 16 << 20)
        end.bind((ip, 0))
        end.settimeout(0.5)
        return end

    def arrived(self, count, sender, receiver):
        """Sends `count` datagrams and returns how many arrived. The sender gets an error for
        datagrams dropped at its own end."""
        for _ in range(count):
            with contextlib.suppress(PermissionError):
                sender.sendto(b"x", receiver.getsockname())
        for came in range(count):
            try:
                receiver.recv(10)
            except TimeoutError:
                return came
        return count

    def ways(self):
        """Returns how many of one datagram there and one back arrive."""
        return self.arrived(1, self.primary, self.replica), self.arrived(1, self.replica, self.primary)

    def test_dropped_packets_do_not_arrive_and_healing_brings_them_back(self):
        self.assertEqual(self.ways(), (1, 1))
        self.net.drop(0)
        self.assertEqual(self.ways(), (0, 0))
        self.assertEqual(self.net.heal(0), 2)
        self.assertEqual(self.ways(), (1, 1))
        self.net.link(0, up=False)
        self.assertEqual(self.ways()[0], 0)
        self.assertEqual(self.net.link(0, up=True), 1)

    def test_packets_that_are_dropped_one_way_go_the_other(self):
        self.net.drop(0, incoming=False)
        self.assertEqual(self.ways(), (1, 0))
        self.assertEqual(self.net.heal(0), 1)
        self.net.drop(0, outgoing=False)
        self.assertEqual(self.ways(), (0, 1))
        self.assertEqual(self.net.heal(0), 1)
        self.assertEqual(self.ways(), (1, 1))

    def test_tcp_passes_where_only_datagrams_are_dropped(self):
        with inside(self.net.replica(0)):
            listener = self.own(socket.create_server((self.net.ip(0), 0)))
        with inside(self.net.primary):
            client = self.own(socket.socket(socket.AF_INET, socket.SOCK_STREAM))
        self.net.drop(0, udp_only=True)
        client.settimeout(10)
        client.connect(listener.getsockname())
        self.assertEqual(self.ways(), (0, 0))
        self.assertEqual(self.net.heal(0), 2)

    def test_a_share_of_the_datagrams_is_lost_each_way(self):
        """About 1,000 p of 1,000 datagrams are lost, within six standard deviations: more is not
        chance."""
        for share in (0.1, 0.2):
            self.net.lose(0, share)
            lost = [1000 - self.arrived(1000, *pair)
                    for pair in ((self.primary, self.replica), (self.replica, self.primary))]
            self.assertEqual(self.net.heal(0), sum(lost))
            for number in lost:
                self.assertAlmostEqual(number, 1000 * share, delta=6 * (1000 * share * (1 - share)) ** 0.5)
            self.report("%d and %d of 1000 lost, %d %% asked for", *lost, 100 * share)
            self.assertEqual(self.ways(), (1, 1))
