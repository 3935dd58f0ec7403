"""The kernel ends the connection of a mount without an umount. That is a failure and is reported,
and the dead mount stays."""
import contextlib
import errno
import os
import signal
import subprocess

from harness import machine_state
from harness.case import Case
from harness.image import mounts
from harness.run import sh, wait_until

CONNECTIONS = "/sys/fs/fuse/connections"
SYSCTL = "/proc/sys/fs/fuse/max_request_timeout"


class CutOff(Case):

    def mounted(self):
        rig = self.rig(m=2, acks=1)
        return rig, rig.mount(mode="replicated")

    def abort(self, rig):
        """Aborts the connection as an administrator does: `abort` of fusectl."""
        if not os.path.exists(os.path.join(CONNECTIONS, str(os.minor(os.stat(rig.path).st_dev)))):
            sh("mount", "-t", "fusectl", "fusectl", CONNECTIONS)
            self.addCleanup(sh, "umount", CONNECTIONS)
        with open(os.path.join(CONNECTIONS, str(os.minor(os.stat(rig.path).st_dev)), "abort"), "w") as f:
            f.write("1")

    def assertDead(self, rig, mount):
        """Checks the message, exit code 32, and that no program can write below the mount point.
        The next mount removes it."""
        self.assertEqual(mount.proc.wait(60), 32, rig.volume.tail())
        self.assertIn("without an unmount", rig.volume.tail())
        self.assertIn(rig.path, mounts())
        with self.assertRaises(OSError) as dead:
            os.close(os.open(rig.file("below"), os.O_CREAT | os.O_WRONLY))
        self.assertEqual(dead.exception.errno, errno.ENOTCONN)

    def state(self, rig):
        return rig.volume.run("salius", "status", rig.backing, "--json").stdout.replace(" ", "")

    @staticmethod
    @contextlib.contextmanager
    def timeout(text):
        """Sets the kernel's timeout of requests within the block."""
        with open(SYSCTL) as f:
            before = f.read()
        try:
            with open(SYSCTL, "w") as f:
                f.write(text)
            yield
        finally:
            with open(SYSCTL, "w") as f:
                f.write(before)

    def test_abort_is_no_umount(self):
        rig, mount = self.mounted()
        with open(rig.file("file"), "wb") as f:
            f.write(b"data")
            f.flush()
            os.fsync(f.fileno())
        self.abort(rig)
        self.assertDead(rig, mount)
        self.assertIn('"state":"clean"', self.state(rig))  # all received requests were drained
        rig.mount(mode="replicated")
        with open(rig.file("file"), "rb") as f:
            self.assertEqual(f.read(), b"data")
        self.assertNotIn("below", os.listdir(rig.path))

    def test_abort_under_writers_keeps_what_was_acknowledged(self):
        rig, mount = self.mounted()
        writer = subprocess.Popen(["/usr/bin/python3", "-c", """
import os, sys
fd = os.open(sys.argv[1], os.O_CREAT | os.O_WRONLY | os.O_SYNC)
number = 0
try:
    while True:
        os.pwrite(fd, b"%08d" % number, 8 * number)
        number += 1
        if number == 100:
            sys.stderr.write("go\\n")
            sys.stderr.flush()
except OSError:
    print(number)
""", rig.file("file")], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.assertEqual(writer.stderr.readline(), "go\n")
        self.abort(rig)
        acknowledged = int(writer.communicate(timeout=60)[0])
        self.assertGreaterEqual(acknowledged, 100)
        self.assertDead(rig, mount)
        rig.mount()
        with open(rig.file("file"), "rb") as f:
            data = f.read()
        self.assertEqual(data[:8 * acknowledged], b"".join(b"%08d" % n for n in range(acknowledged)))

    def test_forced_umount_is_a_umount(self):
        rig, mount = self.mounted()
        with open(rig.file("file"), "wb") as f:
            f.write(b"data")
        sh("umount", "-i", "-f", rig.path)
        self.assertEqual(mount.proc.wait(60), 0, rig.volume.tail())
        self.assertNotIn(rig.path, mounts())
        self.assertNotIn("without an unmount", rig.volume.tail())

    def test_forced_umount_of_a_busy_mount_leaves_a_dead_one(self):
        rig, mount = self.mounted()
        with open(rig.file("file"), "wb") as f:
            f.write(b"data")
            f.flush()
            self.assertIn("busy", sh("umount", "-i", "-f", rig.path, check=False).stderr)
            self.assertDead(rig, mount)
        with open(rig.backing_file("file"), "rb") as f:
            self.assertEqual(f.read(), b"data")

    def test_request_timeout_is_no_umount(self):
        if not os.path.exists(SYSCTL):
            self.skipTest("this kernel has no %s (Linux 6.14)" % SYSCTL)
        # A connection takes the timeout over when it is made.
        with machine_state.changing(), self.timeout("15"):
            rig, mount = self.mounted()
            doctor = rig.volume.run("salius", "doctor", rig.backing)
        self.assertIn("fs.fuse.max_request_timeout=0", doctor.stdout + doctor.stderr)
        mount.proc.stop()
        asking = subprocess.Popen(["stat", rig.file("nothing")], stderr=subprocess.PIPE, text=True)
        try:
            # The kernel checks every 15 s.
            wait_until(lambda: asking.poll() is not None, 90, "the kernel does not end the connection")
            self.assertIn(os.strerror(errno.ECONNABORTED), asking.stderr.read())
        finally:
            asking.send_signal(signal.SIGKILL)
            asking.wait()
            asking.stderr.close()
        # The daemon names the timeout that it finds when it ends.
        with machine_state.changing(), self.timeout("15"):
            mount.proc.cont()
            self.assertDead(rig, mount)
        self.assertIn("fs.fuse.max_request_timeout = 15 s", rig.volume.tail())
