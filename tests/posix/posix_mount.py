"""The life of a mount: options, helpers of mount(8) and umount(8), signals, and the state
afterwards."""
import contextlib
import errno
import mmap
import os
import signal
import subprocess

from harness import sbin
from harness.case import Case
from harness.image import mounts
from harness.proc import Proc, attach_strace
from harness.run import binary, current, sh, wait_until
from harness.volume import DaemonMount, MountRefused, in_netns


def salius_mount(rig, options, *flags):
    """Runs salius-mount as a user does: into the background."""
    return sh(*in_netns(rig.net.primary), binary("salius-mount"), rig.backing, rig.path, *flags, "-o", options,
              check=False)


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
        strange = os.path.join(current().dir, "mount point\t\\x")
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
        bind = os.path.join(current().dir, "bind-" + self._testMethodName)
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


class Options(Case):

    def refused(self, rig, options, *words, code=1):
        done = salius_mount(rig, options)
        self.assertEqual(done.returncode, code, done.stderr)
        for word in words:
            self.assertIn(word, done.stderr)
        self.assertNotIn(rig.path, mounts())

    def test_bad_options_are_refused_with_the_reason(self):
        rig = self.rig(m=2, acks=1)
        replicas = ";".join(r.address for r in rig.replicas)
        self.refused(rig, "insecure,frobnicate", "frobnicate", "replicas=", "acks=")
        self.refused(rig, "insecure,frob=1", "frob", "replicas=")
        self.refused(rig, "insecure,acks=0", "acks", "1 to")
        self.refused(rig, "insecure,acks=3", "acks")
        self.refused(rig, "insecure,replicas=%s,acks=3" % replicas, "acks")
        self.refused(rig, "insecure,commit=external", "commit=external", "not in this version")
        self.refused(rig, "insecure,commit=ordered", "not in this version")
        self.refused(rig, "insecure,recover=perhaps", "auto or refuse")
        self.refused(rig, "insecure,delta=soon", "delta")
        self.refused(rig, "insecure,log_max=many", "log_max")
        self.refused(rig, "insecure,replicas=host:with:colons,acks=1", "host:with:colons")
        self.refused(rig, "insecure,replicas=no-such-host.invalid:7400,acks=1", "no-such-host.invalid", code=32)
        self.refused(rig, "replicas=%s,acks=1" % replicas, "insecure")

    def test_standard_options_are_taken_and_kernel_flags_set(self):
        rig = self.rig(m=2, acks=1)
        done = salius_mount(rig, "insecure,log=%s,defaults,_netdev,nofail,x-systemd.automount,noauto,user,"
                                 "nodev,nosuid,noexec,noatime" % rig.volume.log)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.addCleanup(sh, "umount", rig.path)
        options = mounts()[rig.path][2].split(",")
        for flag in ("nodev", "nosuid", "noexec", "noatime", "rw"):
            self.assertIn(flag, options)
        self.assertEqual(mounts()[rig.path][:2], ("fuse.salius", rig.backing))

    def test_read_only_mount_refuses_writes(self):
        rig = self.rig(m=2, acks=1)
        rig.mount("ro")
        with self.assertRaises(OSError) as caught:
            os.mkdir(rig.file("d"))
        self.assertEqual(caught.exception.errno, errno.EROFS)

    def test_mount_inside_its_own_backing_directory_is_refused(self):
        rig = self.rig(m=1, acks=1)
        inside = os.path.join(rig.backing, "inside")
        os.mkdir(inside)
        for place in (inside, rig.backing):
            done = sh(binary("salius-mount"), rig.backing, place, "-o", "insecure", check=False)
            self.assertEqual(done.returncode, 1)
            self.assertIn("backing", done.stderr)

    def test_second_mount_of_a_volume_is_refused_at_once(self):
        rig = self.rig(m=1, acks=1)
        rig.mount()
        other = os.path.join(current().dir, "other")
        os.mkdir(other)
        for stopped in (False, True):
            if stopped:
                rig.mount_.proc.stop()
            done = sh(*in_netns(rig.net.primary), binary("salius-mount"), rig.backing, other, "-o", "insecure",
                      check=False, timeout=30)
            self.assertEqual(done.returncode, 32, done.stderr)
            self.assertIn("in use by process %d" % rig.mount_.proc.pid, done.stderr)
            self.assertNotIn(other, mounts())
        rig.mount_.proc.cont()

    def test_mount_with_unreachable_replicas_starts_local_with_a_notice(self):
        rig = self.rig(m=2, acks=1, start=False)
        done = salius_mount(rig, "insecure,log=" + rig.volume.log)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.addCleanup(sh, "umount", rig.path)
        self.assertIn("mode local", done.stderr)
        self.assertIn(rig.replicas[0].address, done.stderr)

    def test_recover_refuse_names_the_program_to_run(self):
        rig = self.rig(m=2, acks=1)
        rig.mount()
        with open(rig.file("f"), "w") as f:
            f.write("x")
        rig.mount_.kill()
        with self.assertRaises(MountRefused) as refused:
            rig.mount("recover=refuse")
        self.assertEqual(refused.exception.code, 32)
        self.assertIn("salius-recover", refused.exception.log)
        rig.mount("recover=auto")
        self.assertTrue(os.path.exists(rig.file("f")))


class Signals(Case):

    def test_sigterm_with_open_files_and_a_dirty_map_ends_in_order_and_loses_nothing(self):
        rig = self.rig(m=2, acks=1)
        mount = rig.mount(mode="replicated")
        fd = os.open(rig.file("open"), os.O_CREAT | os.O_RDWR)
        os.write(fd, b"x" * 8192)
        view = mmap.mmap(fd, 8192)
        view[4096:4100] = b"dirt"
        self.assertEqual(mount.proc.terminate(60), 0, rig.volume.tail())
        self.assertNotIn(rig.path, mounts())
        with self.assertRaises(OSError) as caught:
            os.write(fd, b"more")
        view.close()
        with contextlib.suppress(OSError):
            os.close(fd)
        self.assertIn(caught.exception.errno, (errno.ENOTCONN, errno.ECONNABORTED, errno.EIO))
        with open(rig.backing_file("open"), "rb") as f:
            self.assertEqual(f.read(), b"x" * 4096 + b"dirt" + b"x" * 4092)
        code, report = rig.volume.recover_json()
        self.assertEqual((code, report["outcome"]), (0, "clean"), report)

    def test_sigint_ends_it_too_and_sighup_does_not(self):
        rig = self.rig(m=2, acks=1)
        mount = rig.mount(mode="replicated")
        mount.proc.signal(signal.SIGHUP)
        with open(rig.file("f"), "w") as f:
            f.write("lives")
        mount.proc.signal(signal.SIGINT)
        self.assertEqual(mount.proc.wait(60), 0)

    def test_sigterm_with_a_caller_inside_fsync_ends(self):
        rig = self.rig(m=2, acks=1)
        mount = rig.mount(mode="replicated")
        child = subprocess.Popen(["/usr/bin/python3", "-c", """
import os, sys
fd = os.open(sys.argv[1], os.O_CREAT | os.O_RDWR | os.O_SYNC)
print("go", flush=True)
try:
    while True:
        os.write(fd, b"x" * 4096)
except OSError:
    pass
""", rig.file("busy")], stdout=subprocess.PIPE, text=True)
        self.assertEqual(child.stdout.readline(), "go\n")
        self.assertEqual(mount.proc.terminate(60), 0, rig.volume.tail())
        child.wait(30)
        child.stdout.close()

    def test_killed_daemon_frees_mount_point_lock_and_socket(self):
        rig = self.rig(m=2, acks=1)
        mount = rig.mount(mode="replicated")
        mount.proc.kill()
        with self.assertRaises(OSError) as caught:
            os.listdir(rig.path)
        self.assertEqual(caught.exception.errno, errno.ENOTCONN)
        mount._detach()
        rig.mount("recover=auto")  # the socket of the dead one is replaced


class Service(Case):

    def test_service_manager_is_notified_once_the_mount_answers(self):
        import socket
        rig = self.rig(m=1, acks=1)
        path = os.path.join(current().dir, "notify")
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
            listener.bind(path)
            listener.settimeout(30)
            mount = rig.mount(env=dict(os.environ, NOTIFY_SOCKET=path))
            self.assertIn(b"READY=1", listener.recv(4096))
            mount.umount()
            self.assertIn(b"STOPPING=1", listener.recv(4096))
        rig.mount_ = None

    def test_directory_on_fuse_is_no_backing_directory(self):
        rig = self.rig(m=1, acks=1)
        rig.mount()
        inner = rig.file("inner")
        os.mkdir(inner)
        done = rig.volume.run("salius", "init", inner, "--replicas", rig.replicas[0].address, "--acks", "1")
        self.assertNotEqual(done.returncode, 0, done.stdout)
        self.assertIn("fuse", (done.stdout + done.stderr).lower())
