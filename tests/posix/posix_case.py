"""The base of the POSIX tests: one mounted volume with two replicas for all tests of a class, and a
directory for each test. Also the system calls that Python does not provide."""
import ctypes
import errno
import os
import sys
import unittest
import urllib.request

from harness import run as harness_run
from harness.net import inside
from harness.rig import Rig

_libc = ctypes.CDLL(None, use_errno=True)

RENAME_NOREPLACE, RENAME_EXCHANGE, RENAME_WHITEOUT = 1, 2, 4
FALLOC_KEEP_SIZE, FALLOC_PUNCH_HOLE, FALLOC_COLLAPSE, FALLOC_ZERO_RANGE, FALLOC_INSERT = 1, 2, 8, 16, 32
RWF_NOAPPEND = 0x20
METRICS = "127.0.0.1:9401"
AT_FDCWD = -100
AT_SYMLINK_FOLLOW = 0x400


def check(result):
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result


def renameat2(old, new, flags):
    check(_libc.renameat2(AT_FDCWD, os.fsencode(old), AT_FDCWD, os.fsencode(new), flags))


def fallocate(fd, mode, offset, length):
    check(_libc.fallocate(fd, mode, ctypes.c_int64(offset), ctypes.c_int64(length)))


def linkat_fd(fd, path):
    """Names an O_TMPFILE file, in the way that open(2) shows."""
    check(_libc.linkat(AT_FDCWD, b"/proc/self/fd/%d" % fd, AT_FDCWD, os.fsencode(path), AT_SYMLINK_FOLLOW))


def force_stat(path):
    """Asks the file system for a file's attributes, not the kernel's cache."""
    at_statx_force_sync, statx_basic_stats = 0x2000, 0x7ff
    check(_libc.statx(AT_FDCWD, os.fsencode(path), at_statx_force_sync, statx_basic_stats,
                      ctypes.create_string_buffer(256)))


def syncfs(fd):
    check(_libc.syncfs(fd))


def drop_caches():
    with open("/proc/sys/vm/drop_caches", "w") as f:
        f.write("3")


class MountCase(unittest.TestCase):
    """A test with a fresh directory self.dir in the mount; self.rig, self.mount as in the
    harness."""

    rig_options = dict(m=2, acks=1, size_mb=1024)
    mount_options = "metrics=" + METRICS

    @classmethod
    def setUpClass(cls):
        cls.rig = Rig(**cls.rig_options)
        cls.addClassCleanup(cls.rig.close)
        cls.mount = cls.rig.mount(cls.mount_options, mode="replicated")

    def setUp(self):
        self.dir = self.rig.file(self._testMethodName)
        os.mkdir(self.dir)
        self.addCleanup(self._show_log)

    def _show_log(self):
        if any(error for _, error in getattr(self._outcome, "errors", ()) if error) or not self._outcome.success:
            print("---- %s failed; mount log:\n%s" % (self.id(), self.rig.volume.tail()), file=sys.stderr)

    def path(self, name):
        return os.path.join(self.dir, name)

    def write(self, name, data):
        with open(self.path(name), "wb") as f:
            f.write(data)
        return self.path(name)

    def read(self, name):
        with open(self.path(name), "rb") as f:
            return f.read()

    def open(self, name, flags=os.O_RDWR, mode=0o644):
        fd = os.open(self.path(name), flags, mode)
        self.addCleanup(self._close, fd)
        return fd

    @staticmethod
    def _close(fd):
        try:
            os.close(fd)
        except OSError as error:
            if error.errno != errno.EBADF:
                raise

    def metric(self, name):
        with inside(self.rig.net.primary):
            text = urllib.request.build_opener(urllib.request.ProxyHandler({})).open(
                "http://%s/metrics" % METRICS, timeout=5).read().decode()
        for line in text.splitlines():
            if line.startswith(name + " "):
                return float(line.rpartition(" ")[2])
        return 0.0

    def assertErrno(self, number, call, *args, **kwargs):
        with self.assertRaises(OSError) as caught:
            call(*args, **kwargs)
        self.assertEqual(errno.errorcode.get(caught.exception.errno), errno.errorcode[number])

    def settle(self):
        """Puts everything into the backing files and empties the kernel's cache: later reads come
        from disk."""
        os.sync()
        fd = os.open(self.dir, os.O_RDONLY)
        os.fsync(fd)
        os.close(fd)
        drop_caches()

    def as_nobody(self, function, groups=()):
        """Runs `function` in a child as user 65534, also in `groups`. Returns its exception's
        errno, or 0."""
        pid = os.fork()
        if pid == 0:
            code = 255
            try:
                os.setgroups(list(groups))
                os.setresgid(65534, 65534, 65534)
                os.setresuid(65534, 65534, 65534)
                function()
                code = 0
            except OSError as error:
                code = error.errno
            finally:
                os._exit(code)
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def current_dir():
    return harness_run.current().dir
