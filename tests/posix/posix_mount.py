"""The life of a mount: options, signals, and the state afterwards."""
import contextlib
import errno
import mmap
import os
import signal
import subprocess

from harness.case import Case
from harness.image import mounts
from harness.run import binary, scratch, sh
from harness.volume import MountRefused, in_netns


def salius_mount(rig, options, *flags):
    """Runs salius-mount as a user does: into the background."""
    return sh(*in_netns(rig.net.primary), binary("salius-mount"), rig.backing, rig.path, *flags, "-o", options,
              check=False)


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
        self.refused(rig, "insecure,commit=external,names=wait", "names=wait", "contradicts")
        self.refused(rig, "insecure,commit=ordered,fsync=dsync", "fsync=dsync", "commit=ordered")
        self.refused(rig, "insecure,fsync=osync,names=wait", "names=wait", "fsync=osync")
        self.refused(rig, "insecure,osync-exempt=o_sync", "osync-exempt", "fsync=osync")
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
        other = scratch("other")
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
            f.flush()
            os.fsync(f.fileno())
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
        path = scratch("notify")
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
