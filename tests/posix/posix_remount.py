"""mount -o remount, the type that /proc/mounts shows, and the daemon's name in ps(1)."""
import errno
import os

from harness import sbin
from harness.case import Case
from harness.image import mounts
from harness.run import binary, current, scratch, sh, wait_until
from harness.volume import DaemonMount

MOUNT_USAGE, MOUNT_FAILED = 1, 32


class Remount(Case):

    def setUp(self):
        super().setUp()
        for helper in sbin.HELPERS:
            sbin.put(helper, binary("salius-mount"))
            self.addCleanup(sbin.remove, helper)
        self.rig_ = self.rig(m=2, acks=1)

    def mounted(self, options="", kind="salius"):
        words = "insecure,log=%s%s" % (self.rig_.volume.log, options)
        mount = self.own(DaemonMount(self.rig_.volume, ["mount", "-t", kind, self.rig_.backing, self.rig_.path, "-o", words]))
        mount.wait_mode("replicated")
        return mount

    def remount(self, options, code=0):
        done = sh("mount", "-o", "remount," + options, self.rig_.path, check=False)
        self.assertEqual(done.returncode, code, done.stderr)
        return done.stderr

    def flags(self):
        return mounts()[self.rig_.path][2].split(",")

    def make(self, name):
        with open(self.rig_.file(name), "wb", buffering=0) as f:
            f.write(b"data")
            os.fsync(f.fileno())

    def read_changes_atime(self, name, fd=None):
        """Returns whether a read of the file, perhaps through an open descriptor, changes its
        access time on the disk."""
        path = self.rig_.backing_file(name)
        os.utime(path, (1, 1))  # older than its change, so that relatime follows each read
        with open(self.rig_.file(name), "rb") if fd is None else os.fdopen(os.dup(fd), "rb") as f:
            os.posix_fadvise(f.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            f.seek(0)
            self.assertEqual(f.read(), b"data")
        return os.stat(path).st_atime_ns != 10**9

    def test_ro_and_rw_and_umount_drains_as_before(self):
        mount = self.mounted()
        self.make("before")
        self.remount("ro")
        self.assertIn("ro", self.flags())
        with self.assertRaises(OSError) as caught:
            self.make("meanwhile")
        self.assertEqual(caught.exception.errno, errno.EROFS)
        self.remount("rw")
        self.make("after")
        self.assertEqual(mount.mode(), "replicated")
        mount.umount()
        self.assertIn('"state":"clean"', self.rig_.volume.run("salius", "status", self.rig_.backing, "--json").stdout)

    def test_ro_while_a_file_is_open_for_writing_is_refused_with_the_reason(self):
        self.mounted()
        with open(self.rig_.file("busy"), "wb", buffering=0) as f:
            self.assertIn("open for writing", self.remount("ro", MOUNT_FAILED))
            f.write(b"still")
        self.remount("ro")

    def test_noatime_is_followed_by_open_files_and_directories_too(self):
        self.mounted()
        self.make("f")
        sh("mount", "-o", "remount,strictatime", self.rig_.image.path)
        fd = os.open(self.rig_.file("f"), os.O_RDONLY | os.O_DIRECT)
        self.addCleanup(os.close, fd)
        self.assertTrue(self.read_changes_atime("f"))
        for option, follows in (("noatime", False), ("strictatime", True), ("ro", False), ("rw", True)):
            self.remount(option)
            self.assertEqual(self.read_changes_atime("f"), follows, option)
            self.assertEqual(self.reads_directly(fd), follows, option)

    def reads_directly(self, fd):
        path = self.rig_.backing_file("f")
        os.utime(path, (1, 1))
        import mmap
        with mmap.mmap(-1, 4096) as room:
            self.assertEqual(os.preadv(fd, [room], 0), 4)
        return os.stat(path).st_atime_ns != 10**9

    def test_remount_refuses_changed_fixed_options_and_accepts_unchanged_ones(self):
        self.mounted(",acks=1,threads=3,log_max=16M")
        for option in ("acks=2", "threads=4", "log_max=8M", "replicas=127.0.0.1:1", "metrics=127.0.0.1:9", "dirsync"):
            text = self.remount(option, MOUNT_USAGE)
            self.assertIn("option %s cannot change while the volume is mounted" % option.partition("=")[0], text)
        self.assertIn("unknown option", self.remount("frobnicate", MOUNT_USAGE))
        self.remount("noexec,acks=1,threads=3,log_max=16MiB,insecure,defaults")
        self.assertIn("noexec", self.flags())

    def test_remount_by_an_fstab_line(self):
        fstab = os.path.join(current().dir, "fstab")
        with open(fstab, "w") as f:
            f.write("%s %s salius insecure,log=%s,acks=1,x-systemd.automount 0 0\n" % (
                self.rig_.backing, self.rig_.path, self.rig_.volume.log))
        mount = self.own(DaemonMount(self.rig_.volume, ["mount", "-T", fstab, self.rig_.path]))
        mount.wait_mode("replicated")
        sh("mount", "-T", fstab, "-o", "remount,ro", self.rig_.path)
        self.assertIn("ro", self.flags())
        sh("mount", "-T", fstab, "-o", "remount", self.rig_.path)
        self.assertIn("rw", self.flags())
        mount.umount()

    def test_remount_of_one_bind_mount(self):
        self.mounted()
        os.mkdir(self.rig_.file("d"))
        bind = scratch("bind")
        os.mkdir(bind)
        sh("mount", "--bind", self.rig_.file("d"), bind)
        self.addCleanup(sh, "umount", bind)
        sh("mount", "-o", "remount,bind,ro", bind)
        with self.assertRaises(OSError):
            os.mkdir(os.path.join(bind, "x"))
        self.make("d/still")

    def test_a_failed_volume_stays_read_only(self):
        mount = self.mounted()
        self.rig_.image.shutdown()
        with self.assertRaises(OSError):
            for _ in range(1000):
                self.make("f")
                os.sync()
        mount.wait_mode("failed")
        self.assertIn("has failed", self.remount("rw", MOUNT_FAILED))

    def test_remount_by_type_and_kernel_options(self):
        mount = self.mounted()
        self.make("f")
        with open("/proc/mounts") as f:
            line = next(line for line in f if line.split()[1] == self.rig_.path)
        self.assertIn(" fuse.salius ", line)
        mount.umount()
        fstab = os.path.join(current().dir, "fstab")
        with open(fstab, "w") as f:
            f.write(line.replace("rw,", "rw,insecure,log=%s," % self.rig_.volume.log))
        again = self.own(DaemonMount(self.rig_.volume, ["mount", "-T", fstab, self.rig_.path]))
        again.wait_mode("replicated")
        self.assertTrue(os.path.exists(self.rig_.file("f")))
        again.umount()
        self.mounted(kind="fuse.salius").umount()

    def test_ps_shows_salius_mount_with_both_directories(self):
        mount = self.mounted()
        self.assertEqual(sh("ps", "-o", "comm=", "-p", mount.pid).stdout.strip(), "salius-mount")
        self.assertTrue(sh("ps", "-ww", "-o", "args=", "-p", mount.pid).stdout.startswith(
            "salius-mount %s %s " % (self.rig_.backing, self.rig_.path)))
