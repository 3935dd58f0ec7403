"""A volume through an idmapped mount (mount_setattr(2), Linux 6.12): owners, and privileges that a
mapping must not give away."""
import ctypes
import errno
import os
import struct
import subprocess

from harness.image import mounts
from harness.run import scratch, sh
from posix_case import AT_FDCWD, MountCase, check, linkat_fd

_libc = ctypes.CDLL(None, use_errno=True)
SYS_OPEN_TREE, SYS_MOVE_MOUNT, SYS_MOUNT_SETATTR = 428, 429, 442
OPEN_TREE_CLONE, MOVE_MOUNT_F_EMPTY_PATH, AT_EMPTY_PATH = 1, 4, 0x1000
MOUNT_ATTR_IDMAP = 0x100000
FIRST = 10000  # the mapping shows the file system's id 0 as this one


def idmapped(source, target, first=FIRST, count=50000):
    """Mounts `source` at `target` with ids moved up by `first`."""
    with subprocess.Popen(["unshare", "--user", "sh", "-c", "echo && exec cat"], stdin=subprocess.PIPE,
                          stdout=subprocess.PIPE) as user:
        user.stdout.readline()
        for name in ("uid_map", "gid_map"):
            with open("/proc/%d/%s" % (user.pid, name), "w") as f:
                f.write("0 %d %d" % (first, count))
        namespace = os.open("/proc/%d/ns/user" % user.pid, os.O_RDONLY)
        tree = -1
        try:
            tree = check(_libc.syscall(SYS_OPEN_TREE, AT_FDCWD, os.fsencode(source), OPEN_TREE_CLONE | os.O_CLOEXEC))
            attributes = ctypes.create_string_buffer(struct.pack("<QQQQ", MOUNT_ATTR_IDMAP, 0, 0, namespace), 32)
            check(_libc.syscall(SYS_MOUNT_SETATTR, tree, b"", AT_EMPTY_PATH, attributes, 32))
            check(_libc.syscall(SYS_MOVE_MOUNT, tree, b"", AT_FDCWD, os.fsencode(target), MOVE_MOUNT_F_EMPTY_PATH))
        finally:
            for fd in (tree, namespace):
                if fd >= 0:
                    os.close(fd)
            user.stdin.close()


class Idmapped(MountCase):
    """A test in which self.mapped shows self.dir through the mapping."""

    def setUp(self):
        super().setUp()
        os.chmod(self.dir, 0o777)
        self.mapped = scratch("mapped")
        os.mkdir(self.mapped)
        try:
            idmapped(self.dir, self.mapped)
        except OSError as error:
            if error.errno != errno.EINVAL or [int(n) for n in os.uname().release.split(".")[:2]] >= [6, 12]:
                raise
            self.skipTest("before Linux 6.12 the kernel maps no ids of a FUSE file system")
        self.addCleanup(lambda: self.mapped in mounts() and sh("umount", "-l", self.mapped))

    def as_user(self, function, uid=FIRST + 5, gid=FIRST + 6, groups=()):
        """Runs the function in a child; returns its errno, or 0."""
        pid = os.fork()
        if pid == 0:
            code = 255
            try:
                os.umask(0o022)
                os.setgroups(list(groups))
                os.setresgid(gid, gid, gid)
                os.setresuid(uid, uid, uid)
                function()
                code = 0
            except OSError as error:
                code = error.errno
            finally:
                os._exit(code)
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

    def there(self, name):
        return os.path.join(self.mapped, name)

    def make(self, name, mode=0o644, gid=FIRST + 6, groups=()):
        def create():
            fd = os.open(self.there(name), os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600)
            os.fchmod(fd, mode)
            os.write(fd, b"data")
            os.close(fd)
        self.assertEqual(self.as_user(create, gid=gid, groups=groups), 0)

    def assertOwner(self, name, uid, gid):
        inside, outside = os.lstat(self.path(name)), os.lstat(self.there(name))
        self.assertEqual((inside.st_uid, inside.st_gid), (uid, gid))
        self.assertEqual((outside.st_uid, outside.st_gid), (FIRST + uid, FIRST + gid))

    def test_objects_get_the_mapped_owner(self):
        self.make("file")

        def others():
            os.mkdir(self.there("dir"))
            os.symlink("file", self.there("link"))
            os.mkfifo(self.there("fifo"))
            fd = os.open(self.mapped, os.O_TMPFILE | os.O_RDWR, 0o600)
            linkat_fd(fd, self.there("tmp"))
        self.assertEqual(self.as_user(others), 0)
        for name in ("file", "dir", "link", "fifo", "tmp"):
            self.assertOwner(name, 5, 6)
        self.settle()
        self.assertEqual(os.stat(self.rig.backing_file(os.path.relpath(self.path("file"), self.rig.path))).st_uid, 5)

    def test_unmapped_user_creates_nothing(self):
        self.assertEqual(self.as_user(lambda: os.mkdir(self.there("dir")), uid=5), errno.EOVERFLOW)
        self.assertFalse(os.path.exists(self.path("dir")))

    def test_chown_goes_through_the_mapping(self):
        self.make("file")
        os.chown(self.there("file"), FIRST + 7, FIRST + 8)
        self.assertOwner("file", 7, 8)
        with self.assertRaises(OSError):
            os.chown(self.there("file"), 7, -1)
        self.assertOwner("file", 7, 8)
        # The owner by the mapping may give it to a group of its own, and to no other.
        self.assertEqual(self.as_user(lambda: os.chown(self.there("file"), -1, FIRST + 9), uid=FIRST + 7,
                                      groups=[FIRST + 9]), 0)
        self.assertOwner("file", 7, 9)
        self.assertEqual(self.as_user(lambda: os.chown(self.there("file"), -1, FIRST + 30), uid=FIRST + 7), errno.EPERM)

    def test_permissions_are_those_of_the_mapped_owner(self):
        self.make("file", 0o600)
        self.assertEqual(self.as_user(lambda: os.close(os.open(self.there("file"), os.O_RDWR))), 0)
        for uid in (5, FIRST, FIRST + 4):
            self.assertEqual(self.as_user(lambda: os.close(os.open(self.there("file"), os.O_RDONLY)), uid=uid, gid=77),
                             errno.EACCES)
        self.assertEqual(self.as_user(lambda: os.close(os.open(self.path("file"), os.O_RDONLY)), uid=5, gid=77), 0)

    def test_acls_name_mapped_users(self):
        self.make("file", 0o600)
        sh("setfacl", "-m", "u:%d:rw" % (FIRST + 20), self.there("file"))
        self.assertIn("user:20:rw-", sh("getfacl", "-n", "-p", self.path("file")).stdout)
        self.assertIn("user:%d:rw-" % (FIRST + 20), sh("getfacl", "-n", "-p", self.there("file")).stdout)
        self.assertEqual(self.as_user(lambda: os.close(os.open(self.there("file"), os.O_RDWR)), uid=FIRST + 20, gid=77), 0)
        self.assertEqual(self.as_user(lambda: os.close(os.open(self.there("file"), os.O_RDWR)), uid=20, gid=77),
                         errno.EACCES)

    def test_setgid_directory_hands_its_group_on_and_members_keep_sgid(self):
        os.mkdir(self.path("shared"))
        os.chown(self.path("shared"), 0, 40)
        os.chmod(self.path("shared"), 0o2777)

        def create(name):
            os.umask(0)
            os.close(os.open(self.there("shared/" + name), os.O_CREAT | os.O_RDWR, 0o2775))
        self.assertEqual(self.as_user(lambda: create("member"), groups=[FIRST + 40]), 0)
        self.assertEqual(self.as_user(lambda: create("stranger"), groups=[40]), 0)
        self.assertEqual(os.stat(self.path("shared/member")).st_mode & 0o7777, 0o2775)
        self.assertEqual(os.stat(self.path("shared/stranger")).st_mode & 0o7777, 0o775)
        for name in ("member", "stranger"):
            self.assertOwner("shared/" + name, 5, 40)

    def test_write_by_another_takes_suid_away(self):
        for how in (lambda fd: os.write(fd, b"x"), lambda fd: os.ftruncate(fd, 1),
                    lambda fd: os.posix_fallocate(fd, 0, 100)):
            self.make("file", 0o6777)

            def change():
                fd = os.open(self.there("file"), os.O_RDWR)
                how(fd)
                os.close(fd)
            self.assertEqual(self.as_user(change, uid=FIRST + 9, gid=77), 0)
            self.assertEqual(os.stat(self.path("file")).st_mode & 0o7777, 0o777)
            os.unlink(self.path("file"))

    def test_root_alone_sees_trusted_attributes(self):
        self.make("file")
        os.setxattr(self.path("file"), "trusted.name", b"value")
        os.setxattr(self.path("file"), "user.name", b"value")
        self.assertIn("trusted.name", os.listxattr(self.path("file")))

        def look():
            if os.listxattr(self.there("file")) != ["user.name"]:
                raise OSError(errno.EBADMSG, "")
        self.assertEqual(self.as_user(look), 0)
