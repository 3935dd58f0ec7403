"""SQLite, one transaction per row, through real power cuts at random moments. With synchronous=FULL;
its DELETE journal, whose commit is the removal of a file, needs EXTRA where names do not wait.

At each cut the writer runs on the mount. At a random row the primary loses power: SIGKILL of the
daemon and the file system's shutdown, in either order. By chance one more thing happens: a replica
restarts, it loses its memory where f allows that, or the replicas had been cut off before. By
chance the disk was ahead. Then the host starts, and salius-recover or the next mount recovers the
volume. Every row acknowledged since the first cut must be there.
"""
import time

from harness import sqlite
from harness.case import Case
from harness.image import Image
from harness.ledger import Ledger
from harness.rig import PATIENT, SMALL_LOG
from harness.volume import RECOVER_NOT_ENOUGH


class SqliteSurvivesPowerCuts(Case):

    def cuts(self, rig, journal, cuts, lose_one, synchronous="full", options="recover=auto"):
        """Makes `cuts` power cuts, after each of which everything acknowledged must be there.
        `options`: of the mount."""
        ledger = Ledger()
        began, modes = time.monotonic(), {"replicated": 0, "local": 0}
        last = 0
        mount = rig.mount(options, mode="replicated")
        for cut in self.rounds("power cuts", cuts, lambda: "%d rows acknowledged, all there" % ledger.total()):
            writer = sqlite.SqliteWriter(rig.file("db"), journal, ledger, last + 1, synchronous=synchronous)
            self.addCleanup(writer.kill)
            writer.wait(ledger.total() + self.rng.randint(5, 120))
            disk = rig.disk_ahead(self.rng) if self.rng.random() < 0.3 else "nothing"
            cut_off = self.rng.random() < 0.15
            if cut_off:  # no replica answers any more: the cut finds the volume in mode local
                for i in range(rig.m):
                    rig.net.drop(i)
                mount.wait_mode("local")
                writer.wait(ledger.total() + self.rng.randint(1, 30))
            modes[mount.mode()] += 1
            rig.power_cut(shutdown_first=self.rng.random() < 0.3, also=writer.kill)
            if cut_off:
                for i in range(rig.m):
                    rig.net.heal(i)
            fate = self.replica_fate(rig, lose_one)
            if self.rng.random() < 0.5:
                done = rig.volume.recover()
                self.assertEqual(done.returncode, 0, "cut %d (disk ahead: %s, replicas: %s)\n%s%s" % (
                    cut, disk, fate, done.stdout, done.stderr))
            mount = rig.mount(options, mode="replicated")
            last = sqlite.check(rig.file("db"), ledger)
        mount.umount()
        sqlite.check(rig.backing_file("db"), ledger)
        rig.image.check()
        self.report("%d power cuts, %d rows acknowledged, all there; cut in mode %s; %.1f s a cut",
                    rig.image.cuts, ledger.total(), modes, (time.monotonic() - began) / rig.image.cuts)

    def replica_fate(self, rig, lose_one):
        """Restarts or reboots a replica at the same time, or does nothing; returns which."""
        victim = self.rng.choice(rig.replicas)
        fate = self.rng.choice(["nothing", "restart", "lost" if lose_one else "restart"])
        if fate == "restart":
            victim.restart()
        elif fate == "lost":
            victim.reboot()
        return "%s of %d" % (fate, victim.index)

    def test_wal_mode_three_replicas_two_acks_one_may_lose_its_memory(self):
        self.cuts(self.rig(m=3, acks=2), "wal", self.count(20, 60), lose_one=True)

    def test_delete_mode_with_names_that_wait(self):
        rig = self.rig(m=3, acks=2, init_options=(*SMALL_LOG, "--names", "wait"))
        self.cuts(rig, "delete", self.count(8, 60), lose_one=True)

    def test_delete_mode_extra_with_names_that_do_not_wait(self):
        rig = self.rig(m=3, acks=2, init_options=(*SMALL_LOG, "--names", "async"))
        self.cuts(rig, "delete", self.count(8, 60), lose_one=True, synchronous="extra")

    def test_delete_mode_with_dirsync(self):
        rig = self.rig(m=3, acks=2, init_options=(*SMALL_LOG, "--names", "async"))
        self.cuts(rig, "delete", self.count(4, 60), lose_one=True, options="recover=auto,dirsync")

    def test_wal_mode_two_replicas_one_ack(self):
        self.cuts(self.rig(m=2, acks=1), "wal", self.count(4, 20), lose_one=False)

    def test_wal_mode_on_xfs(self):
        self.cuts(self.rig(m=2, acks=2, fs="xfs"), "wal", self.count(3, 20), lose_one=True)


class TheTestWouldSeeALoss(Case):
    """Controls: the same cut without the records must fail, or the test above proves nothing."""

    def test_rows_are_missing_after_forced_recovery_without_replica_memory(self):
        rig = self.rig(m=2, acks=1, init_options=PATIENT)
        rig.mount(mode="replicated")
        ledger = Ledger()
        writer = sqlite.SqliteWriter(rig.file("db"), "wal", ledger, 1)
        self.addCleanup(writer.kill)
        writer.wait(100)
        self.assertEqual(rig.mount_.mode(), "replicated")
        rig.power_cut(also=writer.kill)
        for replica in rig.replicas:
            replica.reboot()
        self.assertEqual(rig.volume.recover().returncode, RECOVER_NOT_ENOUGH)
        self.assertEqual(rig.volume.recover("--force").returncode, 0)
        with self.assertRaises(sqlite.Damage):
            sqlite.check(rig.backing_file("db"), ledger)

    def test_rows_are_missing_when_sqlite_runs_under_eatmydata_on_the_bare_image(self):
        image = self.own(Image("control", "ext4", 256))
        for journal in ("wal", "delete"):
            ledger = Ledger()
            writer = sqlite.SqliteWriter(image.path + "/" + journal, journal, ledger, 1, self.eatmydata())
            self.addCleanup(writer.kill)
            writer.wait(100)
            image.power_cut(writer.kill)
            with self.assertRaises(sqlite.Damage):
                sqlite.check(image.path + "/" + journal, ledger)
