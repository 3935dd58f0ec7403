"""Access to a file through the mount: privileges that a write removes, access ACLs, and locks."""
import contextlib
import errno
import fcntl
import os
import signal
import stat

from harness.run import wait_until
from posix_case import FALLOC_KEEP_SIZE, FALLOC_PUNCH_HOLE, MountCase, fallocate, force_stat
from posix_names import GROUP_OBJ, OTHER, USER_OBJ, acl

CREATE = os.O_CREAT | os.O_RDWR


class Privileges(MountCase):

    def test_write_by_another_takes_suid_and_sgid_away(self):
        for flags in (0, os.O_SYNC):
            name = self.write("file%d" % flags, b"x" * 10)
            os.chmod(name, 0o6777)

            def overwrite():
                fd = os.open(name, os.O_WRONLY | flags)
                os.write(fd, b"y")
                os.close(fd)
            self.assertEqual(self.as_nobody(overwrite), 0)
            self.assertEqual(os.stat(name).st_mode & 0o7777, 0o777)
            self.settle()
            self.assertEqual(os.stat(name).st_mode & 0o7777, 0o777)

    def test_write_by_root_takes_the_capability_and_keeps_suid(self):
        name = self.write("file", b"x")
        os.chmod(name, 0o4755)
        os.setxattr(name, "security.capability", bytes.fromhex("0100000200200000000000000000000000000000"))
        with open(name, "ab") as f:
            f.write(b"y")
        self.assertEqual(os.stat(name).st_mode & 0o7777, 0o4755)
        self.assertNotIn("security.capability", os.listxattr(name))

    def test_write_by_root_keeps_suid(self):
        name = self.write("file", b"x")
        os.chmod(name, 0o4755)
        with open(name, "ab") as f:
            f.write(b"y")
        self.assertEqual(os.stat(name).st_mode & 0o7777, 0o4755)

    def test_sgid_without_group_execute_stays(self):
        name = self.write("file", b"x")
        os.chmod(name, 0o2767)

        def overwrite():
            with open(name, "wb") as f:
                f.write(b"y")
        self.assertEqual(self.as_nobody(overwrite), 0)
        bare = os.path.join(self.rig.image.path, "bare-sgid")
        with open(bare, "wb"):
            pass
        os.chmod(bare, 0o2767)

        def overwrite_bare():
            with open(bare, "wb") as f:
                f.write(b"y")
        self.assertEqual(self.as_nobody(overwrite_bare), 0)
        self.assertEqual(os.stat(name).st_mode, os.stat(bare).st_mode)

    def test_sgid_that_root_may_keep_goes_with_a_strangers_write(self):
        """Without group execute it depends on the caller, so a write that leaves it must not be
        remembered."""
        modes = []
        bare = os.path.join(self.rig.image.path, "bare-kept-sgid")
        for name in (self.path("file"), bare):
            def overwrite():
                with open(name, "r+b") as f:
                    f.write(b"y")
            with open(name, "wb") as f:
                f.write(b"x")
            os.chmod(name, 0o2767)
            overwrite()
            modes.append(os.stat(name).st_mode & 0o7777)
            self.assertEqual(self.as_nobody(overwrite), 0)
            modes.append(os.stat(name).st_mode & 0o7777)
        self.assertEqual(modes, [0o2767, 0o767] * 2)

    def test_truncate_and_chown_take_privileges_away(self):
        name = self.write("file", b"x" * 10)
        os.chmod(name, 0o4777)
        self.assertEqual(self.as_nobody(lambda: os.truncate(name, 5)), 0)
        self.assertEqual(os.stat(name).st_mode & 0o7777, 0o777)
        os.chmod(name, 0o6755)
        os.chown(name, 1, 1)
        self.assertEqual(os.stat(name).st_mode & 0o7777, 0o755)

    def test_chown_of_a_special_file_takes_privileges_away_as_of_a_file(self):
        """sgid without group execute goes where the caller is not in the group."""
        for top in (self.dir, os.path.join(self.rig.image.path, "bare-special")):
            os.makedirs(top, exist_ok=True)
            os.chmod(top, 0o755)
            for mode, caller_keeps in ((0o6777, 0o777), (0o6707, 0o707), (0o4755, 0o755)):
                for kind in (stat.S_IFREG, stat.S_IFIFO, stat.S_IFSOCK):
                    name = os.path.join(top, "%o-%o" % (kind, mode))
                    os.mknod(name, kind | 0o600)
                    os.chown(name, 65534, 4321)
                    os.chmod(name, mode)
                    self.assertEqual(self.as_nobody(lambda name=name: os.chown(name, -1, 4322), groups=(4322,)), 0)
                    self.assertEqual(stat.S_IMODE(os.stat(name).st_mode), caller_keeps, name)
                    os.chmod(name, mode)
                    os.chown(name, 65534, 4321)  # by root
                    kept = mode & ~0o4000 & ~(0o2000 if mode & 0o10 else 0)
                    self.assertEqual(stat.S_IMODE(os.stat(name).st_mode), kept, name)

    def test_fallocate_and_copy_file_range_take_privileges_away(self):
        source = self.write("source", b"x" * 8192)
        name = self.write("file", b"y" * 8192)

        def opened(change):
            fd, other = os.open(name, os.O_WRONLY), os.open(source, os.O_RDONLY)
            change(fd, other)
            os.close(fd)
        for change in (lambda fd, other: os.copy_file_range(other, fd, 4096),
                       lambda fd, _: fallocate(fd, FALLOC_PUNCH_HOLE | FALLOC_KEEP_SIZE, 0, 4096),
                       lambda fd, _: fallocate(fd, 0, 0, 16384)):
            os.chmod(name, 0o6777)
            self.assertEqual(self.as_nobody(lambda: opened(change)), 0)
            self.assertEqual(os.stat(name).st_mode & 0o7777, 0o777)
            os.chmod(name, 0o6777)
            opened(change)
            self.assertEqual(os.stat(name).st_mode & 0o7777, 0o6777, "root's own change")

    def test_chmod_after_writes_is_seen_by_the_next_write(self):
        """The mount remembers that a file has no suid; chmod must clear that."""
        name = self.write("file", b"x")
        os.chmod(name, 0o777)

        def overwrite():
            fd = os.open(name, os.O_WRONLY)
            os.write(fd, b"y")
            os.close(fd)
        for _ in range(3):
            os.chmod(name, 0o4777)
            self.assertEqual(self.as_nobody(overwrite), 0)
            self.assertEqual(os.stat(name).st_mode & 0o7777, 0o777)

    def test_write_takes_file_capabilities_away(self):
        name = self.write("file", b"x")
        capability = bytes.fromhex("0100000200200000000000000000000000000000")
        os.setxattr(name, "security.capability", capability)
        with open(name, "ab") as f:
            f.write(b"y")
        self.assertErrno(errno.ENODATA, os.getxattr, name, "security.capability")


class AccessAcls(MountCase):
    """An access ACL changes the mode. The kernel learns the new mode by a later request only, and
    checks permissions itself."""

    ROUNDS = 1500

    @staticmethod
    def grant(name, others):
        """Gives all but the owner these rights, by an ACL that says no more than a mode."""
        os.setxattr(name, "system.posix_acl_access",
                    acl((USER_OBJ, 6, None), (GROUP_OBJ, others, None), (OTHER, others, None)))

    @staticmethod
    def stranger_may_open(name):
        os.seteuid(65534)
        try:
            os.close(os.open(name, os.O_RDWR))
            return True
        except PermissionError:
            return False
        finally:
            os.seteuid(0)

    @contextlib.contextmanager
    def others(self, *functions):
        """Processes that call one of these functions again and again."""
        pids = []
        try:
            for function in functions:
                pid = os.fork()
                if pid == 0:
                    try:
                        while True:
                            function()
                    finally:
                        os._exit(1)
                pids.append(pid)
            yield
        finally:
            for pid in pids:
                os.kill(pid, signal.SIGKILL)
                self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), -signal.SIGKILL)

    def test_acl_of_an_open_file_without_blocks_counts(self):
        for size in (0, 10_000):
            name = self.path("file%d" % size)
            fd = self.open(name, CREATE)
            os.ftruncate(fd, size)
            for others in (0, 6, 0, 6):
                self.grant(name, others)
                self.assertEqual(self.stranger_may_open(name), others == 6, size)

    def test_acl_counts_while_others_look_at_the_file(self):
        """An answer to one of the others, made before the change, must not give the kernel the mode
        before it. The kernel itself may use that mode for the nanoseconds in which it takes over
        another answer, so the second of two attempts counts."""
        name = self.write("file", b"x")
        os.chmod(name, 0o600)

        def listing():
            with os.scandir(self.dir) as entries:
                for entry in entries:
                    entry.stat()
        for functions in [listing], [lambda: force_stat(name)], [listing, lambda: force_stat(name)]:
            with self.others(*functions):
                for number in range(self.ROUNDS):
                    right = number % 2 == 1
                    self.grant(name, 6 if right else 0)
                    self.assertIn(right, [self.stranger_may_open(name), self.stranger_may_open(name)], "round %d" % number)


class Locks(MountCase):

    def in_child(self, function):
        read_end, write_end = os.pipe()
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                os.close(read_end)
                function(lambda word: os.write(write_end, word))
                code = 0
            finally:
                os._exit(code)
        os.close(write_end)
        return pid, read_end

    @staticmethod
    def waiting_for_locks():
        """Returns the processes that wait for a lock, from proc_locks(5)."""
        with open("/proc/locks") as f:
            return {int(words[5]) for words in map(str.split, f) if words[1] == "->"}

    def blocking(self, lock, unlock):
        fd = self.open("file", CREATE)
        lock(fd)

        def child(tell):
            mine = os.open(self.path("file"), os.O_RDWR)
            tell(b"w")
            lock(mine)
            tell(b"l")
        pids = [self.in_child(child) for _ in range(12)]  # more than there are workers
        for _, pipe in pids:
            self.assertEqual(os.read(pipe, 1), b"w")
        wait_until(lambda: {pid for pid, _ in pids} <= self.waiting_for_locks(), 30, "they do not wait for the lock")
        # Blocked locks hold no worker: the mount answers.
        for i in range(20):
            self.write("other%d" % i, b"x" * 10000)
        self.assertEqual(self.read("other19"), b"x" * 10000)
        unlock(fd)
        for pid, pipe in pids:
            self.assertEqual(os.read(pipe, 1), b"l")
            self.assertEqual(os.waitpid(pid, 0)[1], 0)
            os.close(pipe)

    def test_blocking_flock_between_processes(self):
        self.blocking(lambda fd: fcntl.flock(fd, fcntl.LOCK_EX), lambda fd: fcntl.flock(fd, fcntl.LOCK_UN))

    def test_blocking_fcntl_lock_between_processes(self):
        self.blocking(lambda fd: fcntl.lockf(fd, fcntl.LOCK_EX), lambda fd: fcntl.lockf(fd, fcntl.LOCK_UN))

    def test_lock_that_would_block_is_refused(self):
        fd = self.open("file", CREATE)
        fcntl.lockf(fd, fcntl.LOCK_EX, 10, 0)

        def child(tell):
            mine = os.open(self.path("file"), os.O_RDWR)
            fcntl.lockf(mine, fcntl.LOCK_EX | fcntl.LOCK_NB, 10, 100)
            try:
                fcntl.lockf(mine, fcntl.LOCK_EX | fcntl.LOCK_NB, 10, 5)
                tell(b"locked")
            except OSError as error:
                tell(errno.errorcode[error.errno].encode())
        pid, pipe = self.in_child(child)
        self.assertEqual(os.read(pipe, 10), b"EAGAIN")
        self.assertEqual(os.waitpid(pid, 0)[1], 0)
        os.close(pipe)
