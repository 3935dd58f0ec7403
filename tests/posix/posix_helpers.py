"""mount(8) and umount(8) with the helpers that deploy/install.sh installs."""
import contextlib
import errno
import os
import signal

from harness import sbin
from harness.case import Case
from harness.image import mounts
from harness.proc import Proc, attach_strace
from harness.run import binary, current, scratch, sh, wait_until
from harness.volume import DaemonMount, in_netns


class Helpers(Case):
    """mount(8) and umount(8) with the helpers that deploy/install.sh installs."""

    def setUp(self):
        super().setUp()
        for helper in sbin.HELPERS:
            sbin.put(helper, binary("salius-mount"))
            self.addCleanup(sbin.remove, helper)

    def mounted(self, rig, *flags):
        options = "insecure,log=" + rig.volume.log
        return self.own(DaemonMount(rig.volume, ["mount", "-t", "salius", *flags, rig.backing, rig.path, "-o",
                                                 options]))

    def test_umount_returns_after_the_drain_and_the_daemons_end(self):
        rig = self.rig(m=2, acks=1)
        for _ in range(self.count(3, 10)):
            mount = self.mounted(rig)
            mount.wait_mode("replicated")
            with open(rig.file("file"), "wb") as f:
                f.write(os.urandom(3 << 20))
            os.mkdir(rig.file("d"))
            os.rmdir(rig.file("d"))
            sh("umount", rig.path)
            self.assertTrue(mount.gone())
            state = rig.volume.run("salius", "status", rig.backing, "--json").stdout
            self.assertIn('"state":"clean"', state.replace(" ", ""))

    def test_umount_of_a_busy_mount_fails_and_leaves_it_alone(self):
        rig = self.rig(m=2, acks=1)
        mount = self.mounted(rig)
        with open(rig.file("busy"), "w") as f:
            done = sh("umount", rig.path, check=False)
            self.assertNotEqual(done.returncode, 0)
            self.assertIn("busy", done.stderr)
            f.write("still works")
        with open(rig.file("busy")) as f:
            self.assertEqual(f.read(), "still works")
        self.assertFalse(mount.gone())
        sh("umount", rig.path)

    def test_lazy_umount_returns_and_the_daemon_drains_after_the_last_close(self):
        rig = self.rig(m=2, acks=1)
        mount = self.mounted(rig)
        with open(rig.file("busy"), "w") as f:
            sh("umount", "-l", rig.path)
            self.assertNotIn(rig.path, mounts())
            f.write("written after the umount")
            f.flush()
            os.fsync(f.fileno())
        wait_until(mount.gone, 60, "the daemon does not end")
        with open(rig.backing_file("busy")) as f:
            self.assertEqual(f.read(), "written after the umount")

    def test_forced_umount_ends_the_daemon_in_order(self):
        rig = self.rig(m=2, acks=1)
        mount = self.mounted(rig)
        with open(rig.file("file"), "wb") as f:
            f.write(b"data")
        sh("umount", "-f", rig.path)
        self.assertTrue(mount.gone())
        with open(rig.backing_file("file"), "rb") as f:
            self.assertEqual(f.read(), b"data")

    def test_fusermount_u_drains_too_and_the_next_mount_waits_for_it(self):
        rig = self.rig(m=2, acks=1)
        mount = self.mounted(rig)
        with open(rig.file("file"), "wb") as f:
            f.write(os.urandom(5 << 20))
        sh("fusermount3", "-u", rig.path)
        again = self.mounted(rig)  # no error, whether the first has ended or not
        wait_until(mount.gone, 60, "the first daemon does not end")
        sh("umount", rig.path)
        self.assertTrue(again.gone())

    def test_mount_after_a_forced_umount_of_a_busy_mount_waits_for_its_drain(self):
        """The mount is dead, and stays in the mount table."""
        rig = self.rig(m=2, acks=1)
        mount = self.mounted(rig)
        mount.wait_mode("replicated")
        busy = os.open(rig.file("busy"), os.O_CREAT | os.O_WRONLY)
        os.write(busy, b"data")
        os.fsync(busy)
        # A slow disk.
        strace = attach_strace(mount.pid, "syncfs,fsync,fdatasync", os.path.join(current().dir, "slow"),
                               inject="delay_enter=3s")
        try:
            self.assertIn("busy", sh("umount", "-f", rig.path, check=False).stderr)
            self.assertIn(rig.path, mounts())
            self.assertFalse(mount.gone())
            done = sh(*in_netns(rig.net.primary), "mount", "-t", "salius", rig.backing, rig.path, "-o",
                      "insecure,log=" + rig.volume.log, check=False)
        finally:
            strace.kill()
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("waiting: ", done.stderr)
        self.assertTrue(mount.gone())
        with contextlib.suppress(OSError):
            os.close(busy)
        with open(rig.file("busy"), "rb") as f:
            self.assertEqual(f.read(), b"data")
        sh("umount", rig.path)

    def test_umount_after_a_disk_failure_reports_an_undrained_volume(self):
        rig = self.rig(m=2, acks=1)
        mount = self.mounted(rig)
        mount.wait_mode("replicated")
        with open(rig.file("file"), "wb") as f:
            f.write(b"data")
            f.flush()
            os.fsync(f.fileno())  # durable in the replicas
        rig.image.shutdown()
        done = sh("umount", rig.path, check=False)
        self.assertEqual(done.returncode, 32, done.stderr)
        self.assertNotIn(rig.path, mounts())
        wait_until(mount.gone, 80, "the daemon does not end")
        rig.image.umount()
        rig.image.mount()
        self.mounted(rig)  # recovers
        with open(rig.file("file"), "rb") as f:
            self.assertEqual(f.read(), b"data")
        sh("umount", rig.path)

    def test_sources_and_mount_points_with_blanks_are_noted_and_drained(self):
        rig = self.rig(m=1, acks=1)
        strange = scratch("mount point\t\\x")
        os.mkdir(strange)
        sh(*in_netns(rig.net.primary), "mount", "-t", "salius", rig.backing, strange, "-o", "insecure,log=" +
           rig.volume.log)
        sh("umount", strange)
        self.assertIn('"state":"clean"', rig.volume.run("salius", "status", rig.backing, "--json").stdout)

    def test_fake_mount_checks_the_options_and_mounts_nothing(self):
        rig = self.rig(m=1, acks=1)
        # mount -f alone does not call the helper; a program that knows the helper does.
        done = sh("/sbin/mount.salius", rig.backing, rig.path, "-f", "-n", "-v", "-o", "insecure,rw", check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertNotIn(rig.path, mounts())
        done = sh("/sbin/mount.salius", rig.backing, rig.path, "-f", "-o", "nonsense", check=False)
        self.assertEqual(done.returncode, 1)
        self.assertIn("nonsense", done.stderr)

    def test_verbose_and_sloppy_flags_are_taken(self):
        rig = self.rig(m=1, acks=1)
        self.mounted(rig, "-n", "-v", "-s")
        sh("umount", rig.path)

    def test_mount_over_a_dead_mount_clears_it_away(self):
        rig = self.rig(m=2, acks=1)
        mount = self.mounted(rig)
        with open(rig.file("file"), "wb") as f:
            f.write(b"data")
            f.flush()
            os.fsync(f.fileno())
        os.kill(mount.pid, signal.SIGKILL)
        wait_until(mount.gone, 30, "the daemon does not die")
        self.mounted(rig)
        with open(rig.file("file"), "rb") as f:
            self.assertEqual(f.read(), b"data")
        sh("umount", rig.path)


    def test_a_dead_mount_stays_until_the_next_one_succeeds(self):
        """The dead mount keeps programs from writing below it."""
        rig = self.rig(m=2, acks=1)
        mount = self.mounted(rig)
        with open(rig.file("file"), "wb") as f:
            f.write(b"data")
        os.kill(mount.pid, signal.SIGKILL)
        wait_until(mount.gone, 30, "the daemon does not die")
        done = sh("mount", "-t", "salius", rig.backing, rig.path, "-o", "insecure,recover=refuse,log=" + rig.volume.log,
                  check=False)
        self.assertEqual(done.returncode, 32, done.stderr)
        self.assertIn(rig.path, mounts())
        with self.assertRaises(OSError) as dead:
            os.statvfs(rig.path)
        self.assertEqual(dead.exception.errno, errno.ENOTCONN)
        self.mounted(rig)
        sh("umount", rig.path)

    def bound(self, rig):
        """Makes a bind mount of a directory of the volume."""
        os.mkdir(rig.file("sub"))
        bind = scratch("bind")
        os.mkdir(bind)
        sh("mount", "--bind", rig.file("sub"), bind)
        self.addCleanup(lambda: bind in mounts() and sh("umount", "-l", bind))
        return bind

    def test_sigterm_unmounts_bind_mounts_and_drains(self):
        rig = self.rig(m=2, acks=1)
        mount = self.mounted(rig)
        bind = self.bound(rig)
        with open(os.path.join(bind, "file"), "wb") as f:
            f.write(b"data")
        os.kill(mount.pid, signal.SIGTERM)
        wait_until(mount.gone, 30, "the daemon does not end")
        self.assertNotIn(rig.path, mounts())
        self.assertNotIn(bind, mounts())
        self.assertIn('"state":"clean"', rig.volume.run("salius", "status", rig.backing, "--json").stdout)
        with open(rig.backing_file("sub/file"), "rb") as f:
            self.assertEqual(f.read(), b"data")

    def test_foreign_mount_over_a_bind_mount_stays(self):
        rig = self.rig(m=2, acks=1)
        mount = self.mounted(rig)
        bind = self.bound(rig)
        sh("mount", "-t", "tmpfs", "others", bind)
        self.addCleanup(lambda: sh("umount", "-l", bind))
        with open(os.path.join(bind, "theirs"), "wb") as f:
            f.write(b"data")
        os.kill(mount.pid, signal.SIGTERM)
        wait_until(mount.gone, 30, "the daemon does not end")
        self.assertTrue(os.path.exists(os.path.join(bind, "theirs")))
        self.assertIn('"state":"clean"', rig.volume.run("salius", "status", rig.backing, "--json").stdout)

    def test_umount_beside_a_bind_mount_names_the_remaining_mount(self):
        rig = self.rig(m=2, acks=1)
        mount = self.mounted(rig)
        bind = self.bound(rig)
        sh("umount", bind)
        self.assertFalse(mount.gone())
        sh("mount", "--bind", rig.file("sub"), bind)
        done = sh("umount", rig.path, check=False)
        self.assertEqual(done.returncode, 32, done.stderr)
        self.assertIn(bind, done.stderr)
        with open(os.path.join(bind, "file"), "wb") as f:
            f.write(b"still there")
        sh("umount", bind)
        wait_until(mount.gone, 30, "the daemon does not end")
        self.assertIn('"state":"clean"', rig.volume.run("salius", "status", rig.backing, "--json").stdout)

    def umount_in_another_namespace(self, rig, *flags):
        return sh("unshare", "--mount", "--propagation", "private", "umount", *flags, rig.path, check=False)

    def drained_by_umount(self, rig, mount):
        """Unmounts with a slow disk, so that an umount that does not wait is detected."""
        with open(rig.file("more"), "wb") as f:
            f.write(b"data")
        strace = attach_strace(mount.pid, "syncfs,fsync,fdatasync", os.path.join(current().dir, "slow"),
                               inject="delay_enter=2s")
        self.addCleanup(strace.kill)
        sh("umount", rig.path)
        self.assertTrue(mount.gone())
        self.assertIn('"state":"clean"', rig.volume.run("salius", "status", rig.backing, "--json").stdout)

    def noted(self, rig):
        with open("/run/mount/utab") as f:
            return "TARGET=%s " % rig.path in f.read()

    def test_umount_in_another_namespace_leaves_the_note_for_ours(self):
        """Both namespaces share /run/mount."""
        rig = self.rig(m=2, acks=1)
        mount = self.mounted(rig)
        mount.wait_mode("replicated")
        done = self.umount_in_another_namespace(rig)
        self.assertEqual(done.returncode, 32, done.stderr)
        self.assertIn("another mount namespace", done.stderr)
        self.assertTrue(self.noted(rig))
        self.drained_by_umount(rig, mount)
        self.assertFalse(self.noted(rig))

    def test_note_that_is_taken_away_is_put_back(self):
        rig = self.rig(m=2, acks=1)
        mount = self.mounted(rig)
        mount.wait_mode("replicated")
        for flags in (("-i",), ("-i", "-l")):  # umount(8) itself, without our helper
            self.assertEqual(self.umount_in_another_namespace(rig, *flags).returncode, 0)
            wait_until(lambda: self.noted(rig), 30, "the note stays away")
        os.unlink("/run/mount/utab")
        wait_until(lambda: os.path.exists("/run/mount/utab") and self.noted(rig), 30, "the note stays away")
        self.drained_by_umount(rig, mount)
        self.assertFalse(self.noted(rig))

    def test_last_umount_in_another_namespace_drains(self):
        """umount here reports that the volume is still mounted there; the one there waits for the
        drain."""
        rig = self.rig(m=2, acks=1)
        mount = self.mounted(rig)
        mount.wait_mode("replicated")
        other = Proc(["unshare", "--mount", "--propagation", "private", "sh", "-c", 'echo && read go && umount "$0"; echo $?',
                      rig.path], os.path.join(current().dir, "other.log"), pipe_in=True, pipe_out=True)
        self.addCleanup(other.kill)
        other.popen.stdout.readline()
        self.assertEqual(sh("umount", rig.path, check=False).returncode, 32)
        wait_until(lambda: self.noted(rig), 30, "the note stays away")
        strace = attach_strace(mount.pid, "syncfs,fsync,fdatasync", os.path.join(current().dir, "slow2"),
                               inject="delay_enter=2s")
        self.addCleanup(strace.kill)
        other.popen.stdin.write("\n")
        other.popen.stdin.close()
        self.assertEqual(other.popen.stdout.readline(), "0\n", other.tail())
        self.assertTrue(mount.gone())

    def test_umount_beside_a_mount_in_another_namespace_prints_a_notice(self):
        rig = self.rig(m=2, acks=1)
        mount = self.mounted(rig)
        with open(rig.file("file"), "wb") as f:
            f.write(b"data")
        other = Proc(["unshare", "--mount", "--propagation", "private", "sh", "-c", "echo && exec sleep infinity"],
                     os.path.join(current().dir, "unshare.log"), pipe_out=True)
        try:
            other.popen.stdout.readline()
            done = sh("umount", rig.path, check=False)
            self.assertEqual(done.returncode, 32, done.stderr)
            self.assertIn("another mount namespace", done.stderr)
            self.assertNotIn(rig.path, mounts())
            self.assertFalse(mount.gone())
        finally:
            other.kill()
        wait_until(mount.gone, 30, "the daemon does not end")
        self.assertIn('"state":"clean"', rig.volume.run("salius", "status", rig.backing, "--json").stdout)
