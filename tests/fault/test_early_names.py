"""Names and attributes that return before they are durable (names=async): what a power cut leaves,
and what waits all the same."""
import os
import sys
import threading
import time

from harness import ops
from harness.case import Case
from harness.ledger import Ledger
from harness.net import inside
from harness.proc import Proc
from harness.replica import read_metrics
from harness.rig import PATIENT
from harness.run import current, sh, wait_until
from harness.volume import RECOVER_NOT_ENOUGH

ASYNC = (*PATIENT, "--names", "async")
WAITS = "salius_durable_waits_total"

# Makes directories and sets their modes, and syncs now and then: prints the last number that an
# fsync covered.
MAKER = """
import os, sys
top, number = sys.argv[1], int(sys.argv[2])
folder = os.open(top, os.O_RDONLY)
while True:
    os.mkdir(os.path.join(top, str(number)), 0o700)
    os.chmod(os.path.join(top, str(number)), 0o750)
    if number % 97 == 0:
        os.mkdir(os.path.join(top, str(number + 1)), 0o750)
        os.fsync(folder)
        number += 1
        print(number, flush=True)
    number += 1
"""


class PowerCuts(Case):

    def fate(self, rig):
        """Loses the memory of one replica, restarts its process, or does nothing; returns which."""
        victim, fate = self.rng.choice(rig.replicas), self.rng.choice(("lost", "lost", "restarted", "nothing"))
        if fate == "lost":
            victim.reboot()
        elif fate == "restarted":
            victim.restart()
        return fate

    def recover(self, rig):
        done = rig.volume.recover()
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_acknowledged_names_and_attributes_survive_with_a_members_memory_lost(self):
        rig = self.rig(m=3, acks=2, size_mb=256, init_options=ASYNC)
        ledger, last, fates = Ledger(), 0, []
        for _ in self.rounds("power cuts", self.count(6, 100), lambda: "%d acknowledged" % ledger.total()):
            rig.mount().wait_whole()
            writer = ops.OpWriter(rig.path, ledger, last + 1, "early")
            self.addCleanup(writer.kill)
            writer.more(self.rng.randint(20, 300))
            if self.rng.random() < 0.4:
                rig.disk_ahead(self.rng)
            rig.power_cut(shutdown_first=self.rng.random() < 0.3, also=writer.kill)
            fates.append(self.fate(rig))
            self.recover(rig)
            last = ops.check(rig.backing, ledger, "early")
        self.report("%d operations acknowledged, all there; replicas: %s", ledger.total(), ", ".join(fates))

    def test_names_that_no_fsync_covers_are_lost_from_the_end_only(self):
        rig = self.rig(m=3, acks=2, size_mb=256, init_options=ASYNC)
        lost = []
        for round_ in self.rounds("power cuts", self.count(4, 60), lambda: "no hole"):
            rig.mount().wait_whole()
            top = rig.file("round%d" % round_)
            os.mkdir(top)
            ledger = Ledger()
            maker = Proc([sys.executable, "-c", MAKER, top, "1"], os.path.join(current().dir, "maker.log"),
                         pipe_out=True)
            self.addCleanup(maker.kill)
            reader = threading.Thread(target=lambda: [ledger.ack(int(line)) for line in maker.popen.stdout
                                                      if line.endswith("\n")])
            reader.start()
            ledger.wait_total(self.rng.randint(2, 12), 60, maker.alive)
            time.sleep(self.rng.random() / 20)  # into the names that no fsync covers yet
            rig.power_cut(shutdown_first=self.rng.random() < 0.3, also=maker.kill)
            reader.join(30)
            self.fate(rig)
            self.recover(rig)
            found = sorted(map(int, os.listdir(rig.backing_file("round%d" % round_))))
            self.assertEqual(found, list(range(1, len(found) + 1)), "a hole")
            synced = max(ledger.acked())
            self.assertGreaterEqual(len(found), synced)
            modes = [os.stat(rig.backing_file("round%d/%d" % (round_, n))).st_mode & 0o777 for n in found]
            self.assertEqual(set(modes[:-1]), {0o750})
            self.assertEqual(set(modes[:synced]), {0o750})
            lost.append(len(found) - synced)
        self.report("found beyond the last fsync: %s", lost)

    def test_control_acknowledged_names_are_missing_without_the_replicas_memory(self):
        rig = self.rig(m=2, acks=1, size_mb=256, init_options=ASYNC)
        rig.mount().wait_whole()
        writer = ops.OpWriter(rig.path, style="early")
        self.addCleanup(writer.kill)
        writer.more(100)
        rig.mount_.wait_status(lambda s: s["mode"] == "replicated" and s["stable_log_used_bytes"] == 0 and
                               s["uncheckpointed_bytes"] > 0, 60, "records that only the replicas hold")
        rig.power_cut(also=writer.kill)
        for replica in rig.replicas:
            replica.reboot()
        self.assertEqual(rig.volume.recover("--timeout", "1s").returncode, RECOVER_NOT_ENOUGH)
        self.assertEqual(rig.volume.recover("--timeout", "1s", "--force").returncode, 0)
        with self.assertRaises((ops.Damage, FileNotFoundError)):
            ops.check(rig.backing, writer.ledger, "early")


class Waits(Case):
    """The replicas are cut off. The link delay bound (delta) is so long that until they are healed
    nothing becomes durable: neither the stable log nor mode local steps in."""

    OPTIONS = ("--log-max", "16MiB", "--delta", "60s", "--tau", "600s", "--names", "async")
    METRICS = "127.0.0.1:9998"

    def setUp(self):
        super().setUp()
        self.rig_ = self.rig(m=2, acks=1, size_mb=256, init_options=self.OPTIONS)

    def cut_off(self, *options):
        """Returns a mounted volume with two directories, whose replicas do not answer any more."""
        rig = self.rig_
        rig.mount(",".join(("recover=auto", "metrics=" + self.METRICS, *options))).wait_whole()
        for name in ("plain", "marked"):
            os.mkdir(rig.file(name))
        rig.sync_dir()
        rig.wait_applied()
        self.drop()
        return rig

    def drop(self):
        for i in range(self.rig_.m):
            self.rig_.net.drop(i)

    def metrics(self):
        with inside(self.rig_.net.primary):
            return read_metrics("http://%s/metrics" % self.METRICS)

    def assertDurable(self, durable):
        status = self.rig_.mount_.status()
        self.assertEqual(status["durable"] >= status["issued"], durable, status)

    def assertWaits(self, call):
        """Asserts that the call waits as long as the replicas are cut off, and returns with
        everything durable when they are healed."""
        before = self.metrics()[WAITS]
        thread = threading.Thread(target=call, daemon=True)
        thread.start()
        wait_until(lambda: self.metrics()[WAITS] > before or not thread.is_alive(), 30, "the call neither waits nor ends")
        self.assertTrue(thread.is_alive(), "the call did not wait")
        self.assertDurable(False)
        for i in range(self.rig_.m):
            self.rig_.net.heal(i)
        thread.join(60)
        self.assertFalse(thread.is_alive(), "the call does not end")
        self.assertDurable(True)

    def test_names_return_at_once_and_fsync_of_the_directory_waits(self):
        rig = self.cut_off()
        self.assertEqual(rig.mount_.status()["names"], "async")
        before = self.metrics()[WAITS]
        os.mkdir(rig.file("plain/new"))
        self.assertEqual(self.metrics()[WAITS], before)
        self.assertDurable(False)
        self.assertWaits(lambda: rig.sync_dir("plain"))

    def test_marked_directory_waits_and_others_do_not(self):
        rig = self.cut_off()
        sh("chattr", "+D", rig.backing_file("marked"))
        os.mkdir(rig.file("plain/new"))
        self.assertDurable(False)
        self.assertWaits(lambda: os.mkdir(rig.file("marked/new")))

    def test_metrics_show_pending_names_and_count_waits(self):
        rig = self.cut_off()
        before = self.metrics()
        self.assertEqual((before["salius_volume_pending_names"], before["salius_volume_pending_names_bytes"]), (0, 0))
        os.mkdir(rig.file("plain/new"))
        pending = self.metrics()
        self.assertEqual(pending["salius_volume_pending_names"], 1)
        self.assertGreater(pending["salius_volume_pending_names_bytes"], 0)
        sh("chattr", "+D", rig.backing_file("marked"))
        self.assertWaits(lambda: os.mkdir(rig.file("marked/new")))
        after, waits = self.metrics(), 'salius_volume_name_waits_total{reason="dirsync"}'
        self.assertEqual(after["salius_volume_pending_names"], 0)
        self.assertEqual(after[waits], before[waits] + 1)

    def test_dirsync_of_the_mount_waits_everywhere(self):
        rig = self.cut_off("dirsync")
        self.assertWaits(lambda: os.mkdir(rig.file("plain/new")))

    def test_sync_of_the_mount_covers_names_and_data(self):
        rig = self.cut_off("sync")
        self.assertWaits(lambda: os.mkdir(rig.file("plain/new")))
        with open(rig.file("plain/file"), "wb", buffering=0) as f:
            self.drop()
            self.assertWaits(lambda: f.write(b"data"))
