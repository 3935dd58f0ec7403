"""Recovery in bad conditions: replicas missing, recovery cut off at each step, two primaries."""
import hashlib
import os
import signal

from harness import ops
from harness.case import Case
from harness.rig import PATIENT
from harness.volume import ON_ANOTHER_HOST, RECOVER_NOT_ENOUGH, RECOVERY_STEPS, Mount, MountRefused, Volume


def fingerprint(top, salius=True):
    """Returns {path: mode, owner, size, mtime, digest} of everything below `top`; with or without
    `.salius/`. The lock file is left out: it names its last holder."""
    found = {}
    for folder, dirs, files in os.walk(top):
        dirs.sort()
        if not salius and ".salius" in dirs:
            dirs.remove(".salius")
        for name in sorted(set(dirs + files) - {"lock"}):
            path = os.path.join(folder, name)
            st = os.lstat(path)
            data = b""
            if os.path.isfile(path) and not os.path.islink(path):
                with open(path, "rb") as f:
                    data = f.read()
            found[path] = (st.st_mode, st.st_uid, st.st_gid, st.st_size, st.st_mtime_ns,
                           hashlib.sha256(data).hexdigest())
    return found


class RecoveryCase(Case):

    def loaded(self, m=3, acks=2, operations=120, **kwargs):
        """Returns a mounted, replicated volume and its writer, with every replica a member. Some
        acknowledged operations are not yet on its disk."""
        rig = self.rig(m=m, acks=acks, init_options=PATIENT, **kwargs)
        rig.mount().wait_whole()
        writer = ops.OpWriter(rig.path)
        self.addCleanup(writer.kill)
        writer.more(operations)
        return rig, writer

    def recovered(self, rig, writer, *options):
        done = rig.volume.recover(*options)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        ops.check(rig.backing, writer.ledger)


class OldFiles(RecoveryCase):

    def test_file_with_too_long_a_path_for_its_record(self):
        """The file is older than the volume: the first write to it logs its place, by its handle
        alone."""
        rig = self.rig(m=2, acks=1)
        name, depth = "d" * 250, 20

        def at_the_end(top, work, make=False):
            fd = os.open(top, os.O_PATH)
            for _ in range(depth):
                if make:
                    os.mkdir(name, dir_fd=fd)
                inner = os.open(name, os.O_PATH | os.O_NOFOLLOW, dir_fd=fd)
                os.close(fd)
                fd = inner
            try:
                return work(fd)
            finally:
                os.close(fd)

        def write(data, flags):
            def work(fd):
                file = os.open("f", os.O_WRONLY | os.O_CREAT | flags, dir_fd=fd)
                os.write(file, data)
                os.close(file)
            return work

        def read(fd):
            file = os.open("f", os.O_RDONLY, dir_fd=fd)
            try:
                return os.read(file, 100)
            finally:
                os.close(file)

        at_the_end(rig.backing, write(b"old", 0), make=True)
        rig.sync_disk()
        rig.mount(mode="replicated")
        at_the_end(rig.path, write(b"new data", os.O_SYNC))
        rig.power_cut()
        done = rig.volume.recover()
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertEqual(at_the_end(rig.backing, read), b"new data")


class LargeLog(RecoveryCase):

    RECORDS = 10240  # of 4 KiB; a checkpoint begins at half of the log, which is more
    MEGABITS = 50

    def test_records_are_fetched_from_all_replicas_at_once(self):  # R34
        """Recovery is faster than the cable of any one replica allows."""
        rig = self.rig(m=3, acks=2, memory="192MiB", size_mb=1024, init_options=("--log-max", "128MiB", "--tau", "600s",
                                                                                 "--delta", "2s"))
        rig.mount().wait_whole()
        fd = os.open(rig.file("file"), os.O_RDWR | os.O_CREAT | os.O_SYNC, 0o600)
        for i in range(self.RECORDS):
            os.pwrite(fd, b"%04d" % (i % 10000) * 1024, i * 4096)
        os.close(fd)
        rig.power_cut()
        for i in range(3):
            rig.net.slow(i, self.MEGABITS)
        code, report = rig.volume.recover_json()
        self.assertEqual(code, 0, report)
        fetched = {r["address"]: r["fetched"] for r in report["replicas"]}
        self.assertGreaterEqual(sum(fetched.values()), self.RECORDS, fetched)
        self.assertGreater(min(fetched.values()), self.RECORDS // 12, fetched)
        one_cable_s = report["record_bytes"] * 8 / (self.MEGABITS * 1e6)
        took_s = report["phase_ms"]["collect"] / 1000
        self.report("collected in %.2f s, %s; one cable would take %.2f s at least", took_s, fetched, one_cable_s)
        self.assertLess(took_s, one_cable_s)
        with open(rig.backing_file("file"), "rb") as f:
            for i in range(self.RECORDS):
                self.assertEqual(f.read(4096), b"%04d" % (i % 10000) * 1024, i)


class ReplicasMissing(RecoveryCase):

    def test_all_replicas_gone_is_refused_changes_nothing_and_works_when_they_come_back(self):  # R27
        rig, writer = self.loaded()
        rig.power_cut(also=writer.kill)
        for replica in rig.replicas:
            replica.kill()
        before = fingerprint(rig.backing, salius=False)
        done = rig.volume.recover("--timeout", "1s")
        self.assertEqual(done.returncode, RECOVER_NOT_ENOUGH, done.stdout + done.stderr)
        for replica in rig.replicas:
            self.assertIn(replica.address, done.stdout + done.stderr, "the missing replica is not named")
        self.assertEqual(fingerprint(rig.backing, salius=False), before, "a refused recovery changed the volume")
        for replica in rig.replicas:
            replica.start()
        self.recovered(rig, writer)

    def test_replicas_that_lost_their_memory_do_not_count_as_empty(self):  # R21
        """I5: they answer, and report "unknown". f of them lost is a refusal, never a clean
        volume."""
        rig, writer = self.loaded()
        rig.power_cut(also=writer.kill)
        rig.replicas[0].reboot()
        rig.replicas[1].reboot()
        done = rig.volume.recover("--timeout", "1s")
        self.assertEqual(done.returncode, RECOVER_NOT_ENOUGH, done.stdout + done.stderr)

    def test_one_member_of_three_missing_is_enough_with_two_acks(self):  # R20
        rig, writer = self.loaded()
        rig.power_cut(also=writer.kill)
        rig.replicas[self.rng.randrange(3)].lose_memory()
        self.recovered(rig, writer)

    def test_mount_without_replicas_starts_local_with_a_notice(self):
        rig = self.rig(m=2, acks=2, start=False)
        mount = rig.mount()
        status = mount.wait_mode("local")
        self.assertTrue(status["mode_detail"], status)
        writer = ops.OpWriter(rig.path)
        self.addCleanup(writer.kill)
        writer.more(40)
        self.assertEqual(mount.mode(), "local")
        for replica in rig.replicas:
            replica.start()
        mount.wait_mode("replicated")
        writer.more(40)
        rig.power_cut(also=writer.kill)
        self.recovered(rig, writer)

    def test_clean_volume_without_replicas_starts_local(self):
        rig, writer = self.loaded()
        writer.kill()
        rig.mount_.umount()
        for replica in rig.replicas:
            replica.lose_memory()
        mount = rig.mount()
        self.assertEqual(mount.wait_mode("local")["mode"], "local")
        ops.check(rig.path, writer.ledger)

    def test_mount_with_recover_auto_is_refused_when_the_replicas_it_needs_are_gone(self):
        rig, writer = self.loaded(m=2, acks=1)
        rig.power_cut(also=writer.kill)
        for replica in rig.replicas:
            replica.kill()
        with self.assertRaises(MountRefused):
            rig.mount()
        for replica in rig.replicas:
            replica.start()
        self.recovered(rig, writer)

    def test_dry_run_changes_nothing_and_prints_the_plan(self):
        rig, writer = self.loaded()
        rig.power_cut(also=writer.kill)
        before = fingerprint(rig.backing)
        code, report = rig.volume.recover_json("--dry-run")
        self.assertEqual((code, report["outcome"]), (0, "dry run"), report)
        self.assertGreater(report["records"], 0)
        self.assertEqual(fingerprint(rig.backing), before)
        self.recovered(rig, writer)
        code, report = rig.volume.recover_json()
        self.assertEqual((code, report["outcome"]), (0, "clean"), report)

    def test_recover_refuse_leaves_the_volume_alone(self):
        rig, writer = self.loaded()
        rig.power_cut(also=writer.kill)
        before = fingerprint(rig.backing)
        with self.assertRaises(MountRefused):
            rig.mount("recover=refuse")
        self.assertEqual(fingerprint(rig.backing), before)
        self.recovered(rig, writer)
        rig.mount("recover=refuse")


class RecoveryCutOff(RecoveryCase):

    # In the order of recovery/recovery.h; the steps of "same life" have a test of their own.
    def name_changes(self, rig):
        """Puts names on the disk that the log then changes: a removed one, a file that moves, two
        directories that exchange places, a name taken over by another directory."""
        for name in ("a", "b", "old"):
            os.mkdir(rig.file(name))
            with open(rig.file(name + "/in-" + name), "w"):
                pass
        for name in ("doomed", "left"):
            with open(rig.file(name), "w") as f:
                f.write(name)
        rig.wait_applied()
        rig.sync_disk()
        os.rename(rig.file("left"), rig.file("right"))
        os.unlink(rig.file("doomed"))
        os.rename(rig.file("a"), rig.file("swap"))
        os.rename(rig.file("b"), rig.file("a"))
        os.rename(rig.file("swap"), rig.file("b"))
        os.rename(rig.file("old"), rig.file("moved"))
        os.mkdir(rig.file("old"))
        rig.sync_dir()

    def check_name_changes(self, rig):
        inside = {name: os.listdir(rig.backing_file(name)) for name in ("a", "b", "old", "moved")}
        self.assertEqual(inside, {"a": ["in-b"], "b": ["in-a"], "old": [], "moved": ["in-old"]})
        self.assertFalse(os.path.exists(rig.backing_file("doomed")))
        self.assertFalse(os.path.exists(rig.backing_file("swap")))
        self.assertFalse(os.path.exists(rig.backing_file("left")))
        with open(rig.backing_file("right")) as f:
            self.assertEqual(f.read(), "left")

    def test_killed_at_each_step_and_run_again_with_another_replica_missing(self):
        hits = {}
        steps = list(enumerate(RECOVERY_STEPS))
        for number, step in sorted(self.rng.sample(steps, self.count(6, len(steps)))):
            with self.subTest(step=step):
                hits[step] = self.cut_off_at(step, first_missing=number % 3, then_missing=(number + 1) % 3)
        self.report("cut off at: %s", ", ".join(s for s in hits if hits[s]))
        missed = [s for s in hits if not hits[s]]
        self.assertEqual(missed, [], "steps that no run came to")

    def cut_off_at(self, step, first_missing, then_missing):
        """Returns whether the run really ended at `step`."""
        rig, writer = self.loaded(operations=60, size_mb=256)
        try:
            self.name_changes(rig)
            rig.power_cut(also=writer.kill)
            rig.replicas[first_missing].kill()
            done = rig.volume.recover("--crash-at=" + step)
            hit = done.returncode in (-signal.SIGKILL, 128 + signal.SIGKILL)
            if not hit:
                self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            rig.image.power_cut()  # recovery's own unsynced writes are lost too
            rig.replicas[first_missing].start()
            rig.replicas[then_missing].kill()
            self.recovered(rig, writer)
            self.check_name_changes(rig)
            return hit
        finally:
            writer.kill()
            rig.close()

    def test_killed_at_each_step_of_the_same_life(self):  # R13
        """Only the mount daemon died, so the page cache is intact. Then recovery dies too, alone or
        with the whole machine."""
        for step in ("same-life-synced", "same-life-noted"):
            for power in (False, True):
                with self.subTest(step=step, power_cut=power):
                    rig, writer = self.loaded(m=2, acks=1, size_mb=256)
                    self.name_changes(rig)
                    rig.mount_.kill()
                    writer.kill()
                    done = rig.volume.recover("--crash-at=" + step)
                    self.assertIn(done.returncode, (-signal.SIGKILL, 128 + signal.SIGKILL), done.stdout)
                    if power:
                        rig.image.power_cut()
                    self.recovered(rig, writer)
                    self.check_name_changes(rig)
                    rig.close()

    def test_cut_off_three_times_in_a_row_at_random_steps(self):
        rig, writer = self.loaded()
        rig.power_cut(also=writer.kill)
        for _ in range(3):
            rig.volume.recover("--crash-at=" + self.rng.choice(RECOVERY_STEPS))
            if self.rng.random() < 0.5:
                rig.image.power_cut()
        self.recovered(rig, writer)

    def test_after_the_decision_no_replica_is_needed(self):  # R10, R51
        rig, writer = self.loaded()
        rig.power_cut(also=writer.kill)
        rig.volume.recover("--crash-at=pinned")
        for replica in rig.replicas:
            replica.lose_memory()
        rig.image.power_cut()
        self.recovered(rig, writer)


class TwoPrimaries(RecoveryCase):

    def test_second_mount_of_a_volume_in_use_is_refused(self):  # R3
        rig, writer = self.loaded(m=2, acks=1)
        second = Volume(rig.backing, rig.net.primary)
        with self.assertRaises(MountRefused) as caught:
            self.own(Mount(second))
        self.assertIn(str(rig.mount_.pid), caught.exception.log, "the holder is not named")
        writer.more(20)

    def test_recovery_is_refused_while_a_frozen_primary_holds_the_lock(self):  # R3
        rig, writer = self.loaded(m=2, acks=1)
        rig.mount_.stop()
        done = rig.volume.recover()
        self.assertNotIn(done.returncode, (0, RECOVER_NOT_ENOUGH), done.stdout + done.stderr)
        self.assertIn(str(rig.mount_.pid), done.stdout + done.stderr, "the holder is not named")
        rig.mount_.cont()
        writer.more(20)
        writer.kill()
        rig.mount_.umount()
        ops.check(rig.backing, writer.ledger)

    def test_thawed_primary_is_refused_after_recovery_of_its_copy(self):
        """I4: the standby host recovered from a copy of the disk while the primary was stopped.
        Everything that the old primary acknowledges afterwards must be in the recovered copy; then
        its callers get errors."""
        rig, writer = self.loaded(m=3, acks=2)
        rig.mount_.stop()
        copy = self.own(rig.image.copy("standby"))
        standby = Volume(os.path.join(copy.path, "data"), rig.net.primary)
        done = standby.recover(wrapper=ON_ANOTHER_HOST)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        rig.mount_.cont()
        self.assertIn(writer.wait_failed(60), ("EIO", "ENOTCONN", "EROFS"))
        status = rig.mount_.wait_mode("failed")
        self.assertTrue(status["failure"], status)
        ops.check(standby.backing, writer.ledger)
        with self.assertRaises(OSError):
            fd = os.open(rig.file("slots"), os.O_WRONLY | os.O_SYNC)
            try:
                os.pwrite(fd, b"late", 0)
            finally:
                os.close(fd)

    def frozen_and_recovered_elsewhere(self, promises):
        """Stops the primary and recovers its copy. Then restarts one replica's host after the
        other, on its old disk or on a new one, and continues the primary. Returns rig, writer and
        the standby's volume."""
        rig, writer = self.loaded(m=3, acks=2)
        rig.mount_.stop()
        copy = self.own(rig.image.copy("standby"))
        standby = Volume(os.path.join(copy.path, "data"), rig.net.primary)
        done = standby.recover(wrapper=ON_ANOTHER_HOST)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        for replica in rig.replicas:
            replica.reboot(promises)
        rig.mount_.cont()
        return rig, writer, standby

    def test_fence_outlives_reboots_of_all_replicas(self):
        """I4: the promises are on the replicas' disks."""
        rig, writer, standby = self.frozen_and_recovered_elsewhere(promises=True)
        self.assertIn(writer.wait_failed(60), ("EIO", "ENOTCONN", "EROFS"))
        status = rig.mount_.wait_mode("failed")
        self.assertIn("fenced", status["failure"], status)
        ops.check(standby.backing, writer.ledger)

    def test_replicas_that_lost_their_promises_too_are_no_witnesses(self):
        """I4: no replica is left that knows of the fence. The primary acknowledges only from its
        own disk, and reports why."""
        rig, writer, _ = self.frozen_and_recovered_elsewhere(promises=False)
        rig.mount_.wait_status(
            lambda s: s["mode"] == "local" and "mount again" in s["mode_detail"]
            and all("promises" in r["problem"] for r in s["replicas"]), 60, "the lost promises are not shown")
        writer.more(200)
        status = rig.mount_.status()
        self.assertEqual(status["mode"], "local", status)
        self.assertFalse(any(r["member"] for r in status["replicas"]), status)
        writer.kill()
        rig.mount_.umount()
        rig.mount(mode="replicated")
        ops.check(rig.path, writer.ledger)

    def test_the_standby_mounts_and_the_old_primary_cannot_come_back_with_the_old_disk(self):
        rig, writer = self.loaded(m=3, acks=2)
        rig.power_cut(also=writer.kill)
        copy = self.own(rig.image.copy("standby"))
        standby = Volume(os.path.join(copy.path, "data"), rig.net.primary)
        mount = self.own(Mount(standby))
        mount.wait_mode("replicated")
        ops.check(mount.path, writer.ledger)
        # The old disk, brought back: the replicas know a larger epoch than its state.
        done = rig.volume.recover("--timeout", "1s", wrapper=ON_ANOTHER_HOST)
        self.assertNotEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertEqual(mount.mode(), "replicated")
