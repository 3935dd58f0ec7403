"""Callers hold open more files than the mount has descriptors."""
import errno
import os

from harness.case import Case
from harness.proc import attach_strace
from harness.run import current


class ManyOpenFiles(Case):

    LIMIT = 400  # of the mount's descriptors

    def setUp(self):
        super().setUp()
        self.rig_ = self.rig(m=2, acks=1)
        self.mount = self.rig_.mount(mode="replicated", wrapper=("prlimit", "--nofile=%d:%d" % (self.LIMIT, self.LIMIT)))
        self.held = []
        self.addCleanup(self.release)

    def release(self):
        while self.held:
            os.close(self.held.pop())

    def fill(self, flags, path):
        """Opens path(0), path(1), ... until that is refused."""
        for i in range(self.LIMIT):
            try:
                self.held.append(os.open(path(i), flags, 0o600))
            except OSError as error:
                self.assertEqual(error.errno, errno.ENFILE, error)
                return
        self.fail("%d files are open with %d descriptors" % (len(self.held), self.LIMIT))

    @staticmethod
    def make(paths):
        for path in paths:
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))

    def everything_else_works(self):
        rig = self.rig_
        for i in range(50):
            made, moved = rig.file("made%d" % i), rig.file("moved%d" % i)
            os.mkdir(made)
            os.rename(made, moved)
            os.setxattr(moved, "user.tag", b"x")
            os.stat(moved)
            os.rmdir(moved)
        self.assertEqual(self.mount.mode(), "replicated")
        # A replica that comes back needs new connections.
        rig.replicas[0].kill()
        self.mount.wait_status(lambda s: not s["replicas"][0]["connected"], 30, "the replica is missed")
        rig.replicas[0].start()
        self.mount.wait_status(lambda s: s["replicas"][0]["member"], 30, "the replica is a member again")

    def test_files_that_stay_open_leave_enough_for_everything_else(self):
        self.fill(os.O_RDWR | os.O_CREAT | os.O_SYNC, lambda i: self.rig_.file("f%d" % i))
        self.assertGreater(len(self.held), self.LIMIT // 4)
        refused = self.rig_.file("f%d" % len(self.held))
        self.assertFalse(os.path.exists(refused), "a file was made that could not be opened")
        for i, fd in enumerate(self.held):
            os.pwrite(fd, b"%d" % i, 0)
        self.everything_else_works()
        for i, fd in enumerate(self.held):
            self.assertEqual(os.pread(fd, 100, 0), b"%d" % i)
        self.assertEqual(self.rig_.volume.tail().count("no more files can be opened"), 1)
        self.release()
        with open(refused, "xb") as f:
            f.write(b"now")

    def test_files_without_a_name_that_stay_open_leave_enough_too(self):
        """Such a file needs a second descriptor, because nothing else leads to it."""
        known = [self.rig_.file("known%d" % i) for i in range(self.LIMIT)]
        self.make(known)
        self.fill(os.O_RDWR | os.O_CREAT, lambda i: self.rig_.file("f%d" % i))
        for i in range(len(self.held)):
            os.unlink(self.rig_.file("f%d" % i))
        for path in known:
            os.setxattr(path, "user.tag", b"x")
        self.everything_else_works()
        for i, fd in enumerate(self.held):
            os.pwrite(fd, b"%d" % i, 0)
            os.fsync(fd)
            self.assertEqual(os.pread(fd, 100, 0), b"%d" % i)

    def test_one_file_and_one_directory_opened_many_times(self):
        with open(self.rig_.file("f"), "wb") as f:
            f.write(b"x")
        os.mkdir(self.rig_.file("d"))
        for flags, name in ((os.O_RDONLY, "f"), (os.O_RDONLY | os.O_DIRECTORY, "d")):
            self.fill(flags, lambda i: self.rig_.file(name))
            self.everything_else_works()
            self.release()

    def test_files_that_were_closed_take_nothing_from_others(self):
        """They keep their descriptors until what was written to them is applied; here that takes 20 ms each."""
        files = [self.rig_.file("f%d" % i) for i in range(self.LIMIT // 2)]
        self.make(files)
        slow = attach_strace(self.mount.pid, "pwritev2", os.path.join(current().dir, "slow"), "delay_enter=20000")
        self.addCleanup(slow.kill)
        behind = 0
        for i, path in enumerate(files):
            fd = os.open(path, os.O_WRONLY)
            os.write(fd, b"%d" % i)
            os.close(fd)
            status = self.mount.status() if i == self.LIMIT // 4 else None
            behind = status["issued"] - status["applied"] if status else behind
        self.assertGreater(behind, self.LIMIT // 8, "the files were written no faster than applied")
        slow.kill()
        for i, path in enumerate(files):
            with open(path, "rb") as f:
                self.assertEqual(f.read(), b"%d" % i)
