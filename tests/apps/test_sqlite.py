"""SQLite, one transaction per row, through real power cuts at random moments, on a mount and on a
direct volume. With synchronous=FULL; its DELETE journal, whose commit is the removal of a file,
needs EXTRA where names do not wait.

At each cut the writer runs. At a random row the primary loses power: SIGKILL of the daemon (of the
coordinator, on a direct volume) and the file system's shutdown, in either order, under the
circumstances of cuts.py. Every row acknowledged since the first cut must be there.
"""
import time

from apps.cuts import Cuts, read_all
from harness import sqlite
from harness.case import Case
from harness.image import Image
from harness.ledger import Ledger
from harness.rig import PATIENT, SMALL_LOG
from harness.volume import RECOVER_NOT_ENOUGH


class SqliteCase(Case):

    def writer(self, rig, journal, ledger, first, **kwargs):
        writer = sqlite.SqliteWriter(rig.file("db"), journal, ledger, first, **kwargs)
        self.addCleanup(writer.kill)
        return writer

    def cuts(self, rig, journal, cuts, lose_one, synchronous="full", options="recover=auto"):
        """Makes `cuts` power cuts, after each of which everything acknowledged must be there.
        `options`: of the mount."""
        ledger, power = Ledger(), Cuts(self, rig, lose_one)
        began = time.monotonic()
        last = 0
        mount = rig.mount(options, mode="replicated")
        for _ in self.rounds("power cuts", cuts, lambda: "%d rows acknowledged, all there" % ledger.total()):
            writer = self.writer(rig, journal, ledger, last + 1, synchronous=synchronous, wrapper=rig.wrapper)

            def progress(rows):
                writer.wait(ledger.total() + rows)
            progress(self.rng.randint(5, 120))
            power.cut(progress, writer.kill)
            mount = rig.mount(options, mode="replicated")
            read_all(rig.backing)
            last = sqlite.check(rig.file("db"), ledger, rig.wrapper)
        mount.umount()
        sqlite.check(rig.backing_file("db"), ledger)
        cuts = rig.image.cuts
        rig.image.check()
        self.report("%d power cuts, %d rows acknowledged, all there; %.1f s a cut; %s", cuts, ledger.total(),
                    (time.monotonic() - began) / cuts, power.text())


class SqliteSurvivesPowerCuts(SqliteCase):
    """On a mount."""

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


class SqliteSurvivesPowerCutsOnADirectVolume(SqliteCase):

    def direct(self, journal, synchronous, fs):
        self.cuts(self.rig(m=3, acks=2, fs=fs, direct=True), journal, self.count(10, 30), lose_one=True,
                  synchronous=synchronous)

    def test_wal_mode_on_ext4(self):
        self.direct("wal", "full", "ext4")

    def test_wal_mode_on_xfs(self):
        self.direct("wal", "full", "xfs")

    def test_delete_mode_extra_on_ext4(self):
        self.direct("delete", "extra", "ext4")

    def test_delete_mode_extra_on_xfs(self):
        self.direct("delete", "extra", "xfs")


class TheTestWouldSeeALoss(SqliteCase):
    """Controls: the same cut without the records must fail, or the tests above prove nothing."""

    def test_rows_are_missing_after_forced_recovery_without_replica_memory(self):
        for direct in (False, True):
            rig = self.rig(m=2, acks=1, init_options=PATIENT, direct=direct)
            rig.mount(mode="replicated")
            ledger = Ledger()
            writer = self.writer(rig, "wal", ledger, 1, wrapper=rig.wrapper)
            writer.wait(100)
            self.assertEqual(rig.mount_.mode(), "replicated")
            rig.power_cut(also=writer.kill)
            for replica in rig.replicas:
                replica.reboot()
            self.assertEqual(rig.volume.recover().returncode, RECOVER_NOT_ENOUGH)
            self.assertEqual(rig.volume.recover("--force").returncode, 0)
            with self.assertRaises(sqlite.Damage) as caught:
                sqlite.check(rig.backing_file("db"), ledger)
            self.report("%s: %s", "direct" if direct else "mount", caught.exception)

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

    def test_rows_are_missing_when_sqlite_runs_under_eatmydata_beside_a_direct_volume(self):
        for journal, fs in (("wal", "ext4"), ("delete", "xfs")):
            rig = self.rig(m=3, acks=2, fs=fs, direct=True)
            ledger, last = Ledger(), 0
            for synced in (True, False):
                rig.mount(mode="replicated")
                writer = self.writer(rig, journal, ledger, last + 1,
                                     wrapper=rig.wrapper if synced else self.eatmydata())
                writer.wait(ledger.total() + 50)
                if synced:
                    writer.kill()
                    rig.mount_.umount()
                    last = sqlite.check(rig.backing_file("db"), ledger)
            rig.power_cut(also=writer.kill)
            done = rig.volume.recover()
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            with self.assertRaises(sqlite.Damage) as caught:
                sqlite.check(rig.backing_file("db"), ledger)
            self.report("%s on %s: %s", journal, fs, caught.exception)
