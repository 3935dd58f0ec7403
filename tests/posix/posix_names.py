"""Names through the mount, beyond pjdfstest."""
import ctypes
import errno
import os
import stat
import struct

from harness import run
from harness.run import sh
from posix_case import (RENAME_EXCHANGE, RENAME_NOREPLACE, RENAME_WHITEOUT, MountCase, linkat_fd, renameat2)

_libc = ctypes.CDLL(None, use_errno=True)


class TmpFile(MountCase):

    def test_o_tmpfile_then_linkat_gives_a_name(self):
        fd = self.open("", os.O_TMPFILE | os.O_RDWR, 0o640)
        os.write(fd, b"nameless")
        self.assertEqual(os.fstat(fd).st_nlink, 0)
        self.assertEqual(os.listdir(self.dir), [])
        linkat_fd(fd, self.path("named"))
        self.assertEqual(os.fstat(fd).st_nlink, 1)
        os.fsync(fd)
        self.settle()
        self.assertEqual(self.read("named"), b"nameless")
        st = os.stat(self.path("named"))
        self.assertEqual((st.st_nlink, stat.S_IMODE(st.st_mode)), (1, 0o640))

    def test_o_tmpfile_that_is_closed_is_gone(self):
        free = os.statvfs(self.dir).f_ffree
        for _ in range(20):
            fd = os.open(self.dir, os.O_TMPFILE | os.O_RDWR, 0o600)
            os.write(fd, b"x" * 5000)
            os.close(fd)
        self.settle()
        self.assertEqual(os.listdir(self.dir), [])
        self.assertGreater(os.statvfs(self.dir).f_ffree, free - 10)

    def test_o_tmpfile_with_o_excl_cannot_be_named(self):
        fd = self.open("", os.O_TMPFILE | os.O_RDWR | os.O_EXCL, 0o600)
        self.assertErrno(errno.ENOENT, linkat_fd, fd, self.path("named"))

    def test_o_tmpfile_obeys_the_umask(self):
        old = os.umask(0o027)
        try:
            fd = self.open("", os.O_TMPFILE | os.O_RDWR, 0o666)
        finally:
            os.umask(old)
        self.assertEqual(stat.S_IMODE(os.fstat(fd).st_mode), 0o640)


class Rename(MountCase):

    def test_exchange_of_files_and_of_a_file_with_a_directory(self):
        self.write("a", b"A")
        self.write("b", b"B")
        renameat2(self.path("a"), self.path("b"), RENAME_EXCHANGE)
        self.assertEqual((self.read("a"), self.read("b")), (b"B", b"A"))
        os.mkdir(self.path("d"))
        self.write("d/inside", b"I")
        renameat2(self.path("a"), self.path("d"), RENAME_EXCHANGE)
        self.assertEqual(self.read("d"), b"B")
        self.assertEqual(self.read("a/inside"), b"I")
        self.settle()
        self.assertEqual(self.read("a/inside"), b"I")

    def test_noreplace_refuses_an_existing_name(self):
        self.write("a", b"A")
        self.write("b", b"B")
        self.assertErrno(errno.EEXIST, renameat2, self.path("a"), self.path("b"), RENAME_NOREPLACE)
        self.assertEqual(self.read("b"), b"B")
        renameat2(self.path("a"), self.path("c"), RENAME_NOREPLACE)
        self.assertEqual(self.read("c"), b"A")

    def test_whiteout_is_left_at_the_old_name(self):
        self.write("a", b"A")
        renameat2(self.path("a"), self.path("b"), RENAME_WHITEOUT)
        with open(self.path("b"), "rb") as f:
            self.assertEqual(f.read(), b"A")
        left = os.lstat(self.path("a"))
        self.assertEqual((left.st_mode, left.st_rdev, left.st_uid), (stat.S_IFCHR, 0, os.getuid()))

    def test_directory_into_itself_is_refused(self):
        os.makedirs(self.path("a/b"))
        self.assertErrno(errno.EINVAL, os.rename, self.path("a"), self.path("a/b/c"))

    def test_hard_link_onto_itself_changes_nothing(self):
        self.write("a", b"A")
        os.link(self.path("a"), self.path("b"))
        os.rename(self.path("a"), self.path("b"))
        self.assertEqual(sorted(os.listdir(self.dir)), ["a", "b"])

    def test_moved_directory_has_its_new_parent(self):
        os.makedirs(self.path("from/d"))
        os.mkdir(self.path("to"))
        before = os.stat(self.path("to")).st_nlink
        os.rename(self.path("from/d"), self.path("to/d"))
        self.assertEqual(os.stat(self.path("to/d/..")).st_ino, os.stat(self.path("to")).st_ino)
        self.assertEqual(os.stat(self.path("to")).st_nlink, before + 1)
        self.assertEqual(os.stat(self.path("from")).st_nlink, 2)


class Attributes(MountCase):

    def test_hard_links_share_everything(self):
        self.write("a", b"one")
        os.link(self.path("a"), self.path("b"))
        os.stat(self.path("a")), os.stat(self.path("b"))
        with open(self.path("b"), "ab") as f:
            f.write(b" two")
        os.chmod(self.path("a"), 0o600)
        a, b = os.stat(self.path("a")), os.stat(self.path("b"))
        self.assertEqual((a.st_ino, a.st_nlink, a.st_size, a.st_mode, a.st_mtime_ns, a.st_ctime_ns),
                         (b.st_ino, b.st_nlink, b.st_size, b.st_mode, b.st_mtime_ns, b.st_ctime_ns))
        self.assertEqual((a.st_nlink, a.st_size, stat.S_IMODE(b.st_mode)), (2, 7, 0o600))
        os.unlink(self.path("a"))
        self.assertEqual(os.stat(self.path("b")).st_nlink, 1)

    def test_link_past_the_limit_of_the_backing_file_system_is_emlink(self):
        if not run.current().long_run:
            self.skipTest("65,000 links: with --long")
        self.write("a", b"")
        made = 1
        with self.assertRaises(OSError) as caught:
            while made < 70000:
                os.link(self.path("a"), self.path("l%d" % made))
                made += 1
        self.assertEqual((caught.exception.errno, made), (errno.EMLINK, 65000))
        self.assertEqual(os.stat(self.path("a")).st_nlink, 65000)

    def test_directory_times_change_with_its_names(self):
        os.mkdir(self.path("d"))

        def changed(function):
            before = os.stat(self.path("d")).st_mtime_ns
            function()
            self.assertGreater(os.stat(self.path("d")).st_mtime_ns, before)
        changed(lambda: self.write("d/f", b""))
        changed(lambda: os.mkdir(self.path("d/s")))
        changed(lambda: os.rename(self.path("d/f"), self.path("d/g")))
        changed(lambda: os.unlink(self.path("d/g")))
        changed(lambda: os.rmdir(self.path("d/s")))

    def test_times_do_not_go_back_when_the_inode_is_forgotten(self):
        """The ctime may change once more, to that of the apply."""
        if tuple(map(int, os.uname().release.split(".")[:2])) < (6, 13):
            self.skipTest("before Linux 6.13 a ctime may go back by one step of the kernel's clock")
        names = ["f%d" % i for i in range(300)]
        for i, name in enumerate(names):
            self.write(name, b"data"[:i % 2])
            if i % 3 == 0:
                os.chmod(self.path(name), 0o600)
        before = [os.stat(self.path(name)) for name in names]
        os.sync()
        self.assertEqual([os.stat(self.path(name)).st_ctime_ns for name in names], [st.st_ctime_ns for st in before])
        self.settle()
        after = [os.stat(self.path(name)) for name in names]
        self.assertEqual([st.st_mtime_ns for st in after], [st.st_mtime_ns for st in before])
        back = [(a.st_ctime_ns - b.st_ctime_ns, b.st_ino) for a, b in zip(after, before) if a.st_ctime_ns < b.st_ctime_ns]
        self.assertEqual(back, [])

    def test_times_to_the_nanosecond_and_before_1970(self):
        name = self.write("file", b"")
        for times in ((1, 2), (1234567890123456789, 987654321987654321), (-1_500_000_000, -2)):
            os.utime(name, ns=times)
            self.settle()
            st = os.stat(name)
            self.assertEqual((st.st_atime_ns, st.st_mtime_ns), times)

    def test_xattrs_set_get_list_remove(self):
        name = self.write("file", b"")
        os.setxattr(name, "user.one", b"1")
        os.setxattr(name, "user.two", b"x" * 3000)
        self.assertErrno(errno.EEXIST, os.setxattr, name, "user.one", b"", os.XATTR_CREATE)
        self.assertErrno(errno.ENODATA, os.setxattr, name, "user.none", b"", os.XATTR_REPLACE)
        self.assertEqual(sorted(n for n in os.listxattr(name) if n.startswith("user.")), ["user.one", "user.two"])
        self.settle()
        self.assertEqual(os.getxattr(name, "user.two"), b"x" * 3000)
        os.removexattr(name, "user.one")
        self.assertErrno(errno.ENODATA, os.getxattr, name, "user.one")
        self.assertErrno(errno.ENODATA, os.removexattr, name, "user.one")

    def test_own_xattr_is_hidden_and_cannot_be_touched(self):
        name = self.write("file", b"data")
        self.settle()
        self.assertEqual([n for n in os.listxattr(name) if "salius" in n], [])
        with self.assertRaises(OSError):
            os.getxattr(name, "trusted.salius.id")
        with self.assertRaises(OSError):
            os.setxattr(name, "trusted.salius.id", b"12345678")

    def test_special_files_keep_type_and_numbers(self):
        os.mkfifo(self.path("fifo"), 0o600)
        os.mknod(self.path("null"), 0o600 | stat.S_IFCHR, os.makedev(1, 3))
        self.settle()
        self.assertTrue(stat.S_ISFIFO(os.stat(self.path("fifo")).st_mode))
        self.assertEqual(os.stat(self.path("null")).st_rdev, os.makedev(1, 3))
        with open(self.path("null"), "wb") as f:
            f.write(b"swallowed")

    def test_symlinks_of_any_length(self):
        for length in (1, 100, 4000):
            target = "t" * length
            os.symlink(target, self.path("link%d" % length))
            self.assertEqual(os.readlink(self.path("link%d" % length)), target)
            self.assertEqual(os.lstat(self.path("link%d" % length)).st_size, length)


def acl(*entries):
    """Returns a POSIX ACL as its xattr: (tag, permissions, id)."""
    undefined = 0xffffffff
    return struct.pack("<I", 2) + b"".join(
        struct.pack("<HHI", tag, perm, undefined if name is None else name) for tag, perm, name in entries)


USER_OBJ, USER, GROUP_OBJ, MASK, OTHER = 0x01, 0x02, 0x04, 0x10, 0x20


class Permissions(MountCase):

    def test_default_acl_is_inherited_and_replaces_the_umask(self):
        default = acl((USER_OBJ, 7, None), (USER, 6, 65534), (GROUP_OBJ, 5, None), (MASK, 7, None), (OTHER, 0, None))
        os.setxattr(self.dir, "system.posix_acl_default", default)
        old = os.umask(0o077)
        try:
            fd = os.open(self.path("file"), os.O_CREAT | os.O_WRONLY, 0o666)
            os.close(fd)
            os.mkdir(self.path("dir"), 0o777)
        finally:
            os.umask(old)
        os.chmod(os.path.dirname(self.dir), 0o755)
        self.settle()
        self.assertEqual(stat.S_IMODE(os.stat(self.path("file")).st_mode), 0o660)
        self.assertEqual(os.getxattr(self.path("file"), "system.posix_acl_access"),
                         acl((USER_OBJ, 6, None), (USER, 6, 65534), (GROUP_OBJ, 5, None), (MASK, 6, None),
                             (OTHER, 0, None)))
        self.assertEqual(os.getxattr(self.path("dir"), "system.posix_acl_default"), default)

    def test_acl_grants_and_denies(self):
        name = self.write("file", b"secret")
        os.chmod(name, 0o600)
        self.assertEqual(self.as_nobody(lambda: open(name, "rb").close()), errno.EACCES)
        os.setxattr(name, "system.posix_acl_access",
                    acl((USER_OBJ, 6, None), (USER, 4, 65534), (GROUP_OBJ, 0, None), (MASK, 4, None), (OTHER, 0, None)))
        self.assertEqual(self.as_nobody(lambda: open(name, "rb").close()), 0)
        self.assertEqual(self.as_nobody(lambda: open(name, "ab").close()), errno.EACCES)
        os.chmod(name, 0o600)  # the mask
        self.assertEqual(self.as_nobody(lambda: open(name, "rb").close()), errno.EACCES)

    def test_sgid_of_a_new_program_stays_for_a_member_of_the_directorys_group(self):
        for top in (self.dir, os.path.join(self.rig.image.path, "bare")):
            os.makedirs(top, exist_ok=True)
            os.chown(top, 0, 4321)
            os.chmod(top, 0o2777)

            def make(name):
                os.umask(0)
                os.close(os.open(os.path.join(top, name), os.O_CREAT | os.O_WRONLY, 0o2755))
            self.assertEqual(self.as_nobody(lambda: make("member"), groups=[4321]), 0)
            self.assertEqual(self.as_nobody(lambda: make("stranger")), 0)
            modes = [stat.S_IMODE(os.stat(os.path.join(top, name)).st_mode) for name in ("member", "stranger")]
            self.assertEqual(modes, [0o2755, 0o755], top)

    def test_setgid_directory_gives_its_group_and_directories_its_bit(self):
        os.chown(self.dir, 0, 4321)
        os.chmod(self.dir, 0o2777)
        self.write("file", b"")
        os.mkdir(self.path("dir"), 0o755)
        os.symlink("x", self.path("link"))
        for name in ("file", "dir", "link"):
            self.assertEqual(os.lstat(self.path(name)).st_gid, 4321, name)
        self.assertEqual(stat.S_IMODE(os.stat(self.path("dir")).st_mode), 0o2755)

    def test_sticky_directory_protects_names(self):
        os.chmod(self.dir, 0o1777)
        name = self.write("file", b"")
        self.assertIn(self.as_nobody(lambda: os.unlink(name)), (errno.EPERM, errno.EACCES))

    def test_acl_set_by_one_outside_the_group_clears_sgid(self):
        """FUSE_SETXATTR_ACL_KILL_SGID."""
        name = self.write("file", b"")
        os.chown(name, 65534, 4321)
        os.chmod(name, 0o2755)
        os.chmod(self.dir, 0o777)
        value = acl((USER_OBJ, 7, None), (GROUP_OBJ, 5, None), (OTHER, 5, None))
        self.assertEqual(self.as_nobody(lambda: os.setxattr(name, "system.posix_acl_access", value)), 0)
        self.assertEqual(stat.S_IMODE(os.stat(name).st_mode), 0o755)

    def mounted_and_bare(self, name):
        """Makes a directory of that name through the mount, and one beside the volume on the same
        file system."""
        for top in (self.dir, os.path.join(self.rig.image.path, "bare")):
            os.makedirs(top, exist_ok=True)
            os.chmod(top, 0o777)
            path = os.path.join(top, name)
            os.mkdir(path, 0o777)
            yield path

    def test_default_acl_leaves_the_directorys_own_sgid(self):
        value = acl((USER_OBJ, 7, None), (USER, 7, 1234), (GROUP_OBJ, 5, None), (MASK, 7, None), (OTHER, 5, None))
        for path in self.mounted_and_bare("sgid"):
            os.chown(path, 65534, 4321)
            os.chmod(path, 0o2770)
            self.assertEqual(self.as_nobody(lambda path=path: os.setxattr(path, "system.posix_acl_default", value)), 0)
            self.assertEqual(stat.S_IMODE(os.stat(path).st_mode), 0o2770, path)

    def test_missing_acl_can_be_removed(self):
        for path in self.mounted_and_bare("plain"):
            for name in ("system.posix_acl_access", "system.posix_acl_default"):
                os.removexattr(path, name)

    def test_trusted_attributes_are_listed_for_root_only(self):
        for path in self.mounted_and_bare("trusted"):
            for name in ("trusted.x", "user.x"):
                os.setxattr(path, name, b"1")

            def look(path=path):
                if os.listxattr(path) != ["user.x"]:
                    raise OSError(errno.EEXIST, "trusted")
            self.assertEqual(sorted(os.listxattr(path)), ["trusted.x", "user.x"], path)
            self.assertEqual(self.as_nobody(look), 0, path)


class SaliusDir(MountCase):

    def test_salius_own_directory_does_not_exist_for_callers(self):
        hidden = os.path.join(self.rig.path, ".salius")
        self.assertFalse(os.path.lexists(hidden))
        self.assertNotIn(".salius", os.listdir(self.rig.path))
        self.assertErrno(errno.ENOENT, os.open, hidden + "/state", os.O_RDONLY)
        for call in (lambda: os.mkdir(hidden), lambda: os.symlink("x", hidden), lambda: os.rename(self.dir, hidden),
                     lambda: os.open(hidden, os.O_CREAT | os.O_WRONLY)):
            with self.assertRaises(OSError) as caught:
                call()
            self.assertIn(caught.exception.errno, (errno.EPERM, errno.EACCES))

    def test_reserved_name_is_free_below_the_root(self):
        os.mkdir(self.path(".salius"))
        self.assertEqual(os.listdir(self.dir), [".salius"])


class BirthTimes(MountCase):

    def birth(self, path):
        """Returns the seconds of birth by statx(2), through stat(1)."""
        return int(sh("stat", "-c", "%W", path).stdout)

    def test_birth_time_is_that_of_the_backing_file(self):
        path = self.write("file", b"data")
        os.utime(path, (1, 1))
        born = self.birth(path)
        self.assertGreater(born, 10**9)
        self.settle()
        inside = self.rig.backing_file(os.path.relpath(path, self.rig.path))
        self.assertEqual(self.birth(inside), born)
        self.assertEqual(self.birth(path), born)
        os.rename(path, self.path("renamed"))
        self.assertEqual(self.birth(self.path("renamed")), born)

    def test_attributes_with_a_birth_time_are_the_same_as_without(self):
        path = self.write("file", b"x" * 5000)
        os.chmod(path, 0o640)
        os.utime(path, ns=(10**18 + 5, 10**18 + 7))
        format_ = "%s %b %a %h %u %g %i %X %Y %.9X %.9Y %t %T"
        for made in (path, self.dir):
            with_birth = sh("stat", "-c", format_ + " %W", made).stdout.split()[:-1]
            st = os.stat(made)
            self.assertEqual(with_birth[:7], [str(st.st_size), str(st.st_blocks), "%o" % (st.st_mode & 0o7777),
                                              str(st.st_nlink), str(st.st_uid), str(st.st_gid), str(st.st_ino)])
            self.assertEqual(with_birth[10], "%d.%09d" % divmod(st.st_mtime_ns, 10**9))
