"""Callers hold more files open than the mount has descriptors."""
import collections
import errno
import itertools
import os
import sys

from harness.case import Case
from harness.proc import Proc, attach_strace
from harness.rig import LESS_PATIENT
from harness.run import current, wait_until


class ManyOpenFiles(Case):

    LIMIT = 400  # of the mount's descriptors

    def setUp(self):
        super().setUp()
        # Checkpoints follow soon.
        self.rig_ = self.rig(m=2, acks=1, init_options=(*LESS_PATIENT, "--tau", "4s"))
        self.mount = self.rig_.mount(mode="replicated", wrapper=self.limited())
        self.held = []
        self.addCleanup(self.release)

    def limited(self):
        """Returns words before the mount's command, which also keep it from raising its limit."""
        return ["prlimit", "--nofile=%d:%d" % (self.LIMIT, self.LIMIT), "setpriv", "--bounding-set=-sys_resource"]

    def release(self):
        while self.held:
            os.close(self.held.pop())

    def fill(self, flags, path):
        """Opens path(0), path(1), ... until an open is refused."""
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
            # Never opened: the answer to close(2) does not wait for the mount.
            os.mknod(path, 0o600)

    def everything_else_works(self):
        rig = self.rig_
        for i in range(50):
            made, moved = rig.file("made%d" % i), rig.file("moved%d" % i)
            os.mkdir(made)
            os.rename(made, moved)
            os.setxattr(moved, "user.tag", b"x")
            os.stat(moved)
            os.rmdir(moved)
        self.mount.wait_mode("replicated")
        # A replica that comes back needs new connections.
        rig.replicas[0].kill()
        self.mount.wait_status(lambda s: not s["replicas"][0]["connected"], 30, "the replica is missed")
        rig.replicas[0].start()
        self.mount.wait_status(lambda s: s["replicas"][0]["member"], 30, "the replica is a member again")

    def freeing_thread(self):
        """Returns the id of the thread that closes most removed files."""
        log = os.path.join(current().dir, "closes")
        tracer = attach_strace(self.mount.pid, "close", log)
        try:
            paths = [self.rig_.file("probe%d" % i) for i in range(20)]
            self.make(paths)
            for path in paths:
                os.unlink(path)

            def closes():
                with open(log) as f:
                    return [line.split()[0] for line in f if "/probe" in line and "(deleted)" in line]
            wait_until(lambda: len(closes()) >= len(paths), 30, lambda: "removed files stay open")
            return int(collections.Counter(closes()).most_common(1)[0][0])
        finally:
            tracer.kill()

    def test_files_that_stay_open_leave_enough_for_everything_else(self):
        self.fill(os.O_RDWR | os.O_CREAT | os.O_SYNC, lambda i: self.rig_.file("f%d" % i))
        self.assertGreater(len(self.held), self.LIMIT // 4)
        name = "f%d" % len(self.held)
        self.assertFalse(os.path.exists(self.rig_.backing_file(name)), "a file was made that could not be opened")
        for i, fd in enumerate(self.held):
            os.pwrite(fd, b"%d" % i, 0)
        self.everything_else_works()
        for i, fd in enumerate(self.held):
            self.assertEqual(os.pread(fd, 100, 0), b"%d" % i)
        self.rig_.volume.wait_log("no more files can be opened")
        self.assertEqual(self.rig_.volume.tail().count("no more files can be opened"), 1)
        self.release()
        with open(self.rig_.file(name), "xb") as f:
            f.write(b"now")

    def test_files_without_a_name_that_stay_open_leave_enough_too(self):
        """Such a file needs a second descriptor, because no name leads to it."""
        self.drawn(0, 2, "many open files")
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

    def test_nameless_file_is_usable_through_a_held_descriptor(self):
        """The kernel knows the file and the directory by descriptors of which the mount never hears
        (O_PATH)."""
        for make, remove in ((os.mkdir, os.rmdir), (os.mknod, os.unlink)):
            path = self.rig_.file("gone")
            make(path, 0o700)
            self.held.append(os.open(path, os.O_PATH))
            remove(path)
        for fd in self.held:
            self.make([self.rig_.file("f%d-%d" % (fd, i)) for i in range(2 * self.LIMIT)])
        for fd in self.held:
            os.chmod("/proc/self/fd/%d" % fd, 0o750)
            self.assertEqual(os.fstat(fd).st_mode & 0o777, 0o750)

    def test_refused_create_leaves_nothing_under_load(self):
        """Each has found room before it makes its file, in a directory of its own: in one directory
        the kernel makes one at a time."""
        code = """
import os, sys
held = []
print("ready", flush=True)
sys.stdin.readline()
try:
    for i in range(%d):
        held.append(os.open("%%s/%%d" %% (sys.argv[1], i), os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
except OSError as error:
    print(i, error.errno, flush=True)
sys.stdin.read()
""" % self.LIMIT
        directories = [self.rig_.file("d%d" % n) for n in range(8)]
        for directory in directories:
            os.mkdir(directory)
        makers = [Proc([sys.executable, "-c", code, directory], self.rig_.volume.log, pipe_in=True, pipe_out=True)
                  for directory in directories]
        for maker in makers:
            self.addCleanup(maker.kill)
        for maker in makers:
            self.assertEqual(maker.popen.stdout.readline(), "ready\n")
        for maker in makers:
            maker.popen.stdin.write("go\n")
        for n, maker in enumerate(makers):
            made, refusal = maker.popen.stdout.readline().split()
            self.assertEqual(int(refusal), errno.ENFILE)
            # Listed below the mount: through it the kernel may still remember that there was no
            # such name.
            self.assertEqual(len(os.listdir(self.rig_.backing_file("d%d" % n))), int(made))

    def test_one_user_leaves_descriptors_to_others(self):
        code = """
import errno, os, sys
held = []
try:
    for i in range(%d):
        held.append(os.open("%%s%%d" %% (sys.argv[1], i), os.O_RDWR))
    print(len(held), 0, flush=True)
except OSError as error:
    print(len(held), error.errno, flush=True)
sys.stdin.read()
""" % self.LIMIT
        files = [self.rig_.file("f%d" % i) for i in range(self.LIMIT)]
        self.make(files)
        for path in files:
            os.chmod(path, 0o666)
        opened = {}
        for user in (1000, 1001):
            program = Proc(["setpriv", "--reuid", user, "--regid", user, "--clear-groups", sys.executable, "-c", code,
                            self.rig_.file("f")], self.rig_.volume.log, pipe_in=True, pipe_out=True)
            self.addCleanup(program.kill)
            opened[user], refusal = map(int, program.popen.stdout.readline().split())
            self.assertEqual(refusal, errno.ENFILE)
        self.report("opened: %s", opened)
        self.assertGreater(opened[1001], 10)
        self.rig_.volume.wait_log("user 1000 can open no more files")
        self.assertEqual(self.rig_.volume.tail().count("user 1000 can open no more files"), 1)
        for path in files[-10:]:
            self.held.append(os.open(path, os.O_RDONLY))  # root has no share
        self.everything_else_works()

    def test_files_that_have_another_name_left_need_no_descriptor(self):
        self.drawn(1, 2, "many open files")
        files = [self.rig_.file("f%d" % i) for i in range(2 * self.LIMIT)]
        self.make(files)
        for path in files:
            os.link(path, path + "-other")
            os.unlink(path)
        for path in files:
            os.setxattr(path + "-other", "user.tag", b"x")
        self.everything_else_works()

    def test_file_that_never_had_a_name_goes_although_its_descriptor_is_closed(self):
        """It is removed when a checkpoint covers it, long after its last close; meanwhile many
        others were used."""
        self.drawn(1, 2, "many open files")
        fd = os.open(self.rig_.path, os.O_TMPFILE | os.O_WRONLY, 0o600)
        kept = self.rig_.backing_file(".salius/open")
        # It stays as long as the file is open. After the close any checkpoint may take it.
        wait_until(lambda: len(os.listdir(kept)) == 1, 30, lambda: "no hidden link:\n" + self.rig_.volume.tail())
        os.close(fd)
        numbers = itertools.count()

        def gone():
            self.make([self.rig_.file("f%d" % next(numbers)) for _ in range(self.LIMIT)])
            return not os.listdir(kept)
        wait_until(gone, 60, lambda: "it stays:\n" + self.rig_.volume.tail(), 0.5)
        self.everything_else_works()

    def test_one_file_and_one_directory_opened_many_times(self):
        self.drawn(0, 2, "many open files")
        self.make([self.rig_.file("f")])
        os.mkdir(self.rig_.file("d"))
        for flags, name in ((os.O_RDONLY, "f"), (os.O_RDONLY | os.O_DIRECTORY, "d")):
            self.fill(flags, lambda i: self.rig_.file(name))
            self.everything_else_works()
            self.release()

    def test_files_that_were_closed_take_nothing_from_others(self):
        """Here the disk needs 3 s for the written data of each."""
        files = [self.rig_.file("f%d" % i) for i in range(self.LIMIT)]
        self.make(files)
        slow = attach_strace(self.mount.pid, "pwritev2", os.path.join(current().dir, "slow"), "delay_enter=3000000")
        self.addCleanup(slow.kill)
        for i, path in enumerate(files):
            fd = os.open(path, os.O_WRONLY)
            os.write(fd, b"%d" % i)
            os.close(fd)
        status = self.mount.status()
        self.assertGreater(status["issued"] - status["applied"], self.LIMIT // 2,
                           "the files were written no faster than applied")
        slow.kill()
        for i, path in enumerate(files):
            with open(path, "rb") as f:
                self.assertEqual(f.read(), b"%d" % i)

    def test_files_are_removed_faster_than_their_blocks_are_freed(self):
        """A removed file holds a descriptor until the file system has freed it. Here the thread that
        does so needs 50 ms for each."""
        slow = attach_strace(self.mount.pid, "close", os.path.join(current().dir, "slow"), "delay_enter=50000",
                             thread=self.freeing_thread())
        self.addCleanup(slow.kill)
        files = [self.rig_.file("r%d" % i) for i in range(self.LIMIT)]
        self.make(files)
        for path in files:
            os.unlink(path)
        self.assertEqual(os.listdir(self.rig_.path), [])
        slow.kill()
        self.everything_else_works()
