"""Direct volumes: wrong directories, wrong commands, and programs that take away what the library
needs. Each is refused with what to do, or works."""
import os
import re
import subprocess
import sys

from harness.direct import DirectCase, read_stats
from harness.image import Image
from harness.run import HarnessError, binary, program_for_users, scratch, sh
from harness.volume import in_netns

NOBODY = ("setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups")


class Refused(DirectCase):
    """salius-run and salius init say what to do where no run is possible."""

    def setUp(self):
        super().setUp()
        self.base = self.rig_.image.path

    def call(self, *words):
        return subprocess.run([*in_netns(self.rig_.net.primary), *words], capture_output=True, text=True, timeout=60)

    def folder(self, name, owner=0, mode=0o700):
        path = os.path.join(self.base, name)
        os.mkdir(path, mode)
        os.chown(path, owner, owner)
        return path

    def refuses(self, done, code, *texts):
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        for text in texts:
            self.assertIn(text, done.stderr)

    def run_refuses(self, directory, *texts, wrapper=()):
        self.refuses(self.call(*wrapper, program_for_users("salius-run"), "--insecure", "--direct", directory, "--", "true"), 125,
                     *texts)

    def init(self, directory, wrapper=(), kind=("--direct",)):
        return self.call(*wrapper, program_for_users("salius"), "init", *kind, "--log-max", "16MiB", "--replicas",
                         ",".join(replica.address for replica in self.rig_.replicas), "--acks", "2", directory)

    def test_directory_missing_or_without_a_volume(self):
        missing = os.path.join(self.base, "missing")
        self.run_refuses(missing, missing, "mkdir -p", "salius init --direct")
        self.run_refuses(self.folder("empty"), "is not a volume", "salius init --direct")
        file = os.path.join(self.base, "file")
        open(file, "w").close()
        self.run_refuses(file, "Not a directory")

    def test_directory_of_another_user_or_not_writable(self):
        theirs = self.folder("theirs", 65534, 0o500)
        self.refuses(self.init(theirs), 5, "belongs to user 65534", "chown 0 ")
        self.refuses(self.init(theirs, NOBODY), 5, "chmod u+wx " + theirs)
        os.chmod(theirs, 0o700)
        self.assertEqual(self.init(theirs, NOBODY).returncode, 0)
        self.run_refuses(theirs, "a direct volume of user 65534", "sudo -u '#65534'")
        self.run_refuses(self.rig_.backing, "belongs to another user: run this as its owner", wrapper=NOBODY)
        sh("mount", "-o", "remount,ro", self.base)
        self.run_refuses(self.rig_.backing, "mounted read-only")
        sh("mount", "-o", "remount,rw", self.base)

    def test_network_file_systems(self):
        # No NFS or CIFS server runs here: strace changes the answer of the kernel.
        for kind, magic in (("NFS", "6969000000000000"), ("CIFS", "424d53ff00000000")):
            as_kind = ("strace", "-f", "-o", "/dev/null", "-e", "trace=statfs,fstatfs", "-e",
                       "inject=statfs,fstatfs:poke_exit=@arg2=" + magic)
            text = "is on %s, which cannot keep Salius's guarantees: the backing directory must be on a local" % kind
            self.refuses(self.init(self.folder(kind), as_kind), 5, text)
            self.run_refuses(self.rig_.backing, text, wrapper=as_kind)

    def test_tmpfs_and_a_volume_that_was_copied_there(self):
        memory = scratch("memory")
        os.mkdir(memory)
        sh("mount", "-t", "tmpfs", "memory", memory)
        self.addCleanup(sh, "umount", memory)
        os.mkdir(os.path.join(memory, "new"))
        self.refuses(self.init(os.path.join(memory, "new")), 5, "is on tmpfs", "on a disk")
        sh("cp", "-a", self.rig_.backing, os.path.join(memory, "copy"))
        self.run_refuses(os.path.join(memory, "copy"), "is on tmpfs", "on a disk")

    def test_volumes_of_the_other_kind_and_in_a_mount(self):
        backing, point = self.folder("backing"), self.folder("point")
        self.assertEqual(self.init(backing, kind=()).returncode, 0)
        other = "salius-mount %s MOUNTPOINT" % backing
        self.run_refuses(backing, "is a volume for a mount", other)
        done = self.call(binary("salius-mount"), self.rig_.backing, point, "-o", "insecure")
        self.refuses(done, 32, "is a direct volume", "salius-run --direct %s -- COMMAND" % self.rig_.backing)
        self.assertEqual(self.call(binary("salius-mount"), backing, point, "-o", "insecure").returncode, 0)
        try:
            self.run_refuses(backing, "is a volume for a mount", other)
            self.run_refuses(point, "is on FUSE")
            os.mkdir(os.path.join(point, "inside"))
            self.refuses(self.init(os.path.join(point, "inside")), 5, "is on FUSE", "local file system")
        finally:
            sh("umount", point)

    def test_limits_and_shared_memory(self):
        for limit, what in (("-v", "address space"), ("-f", "shared memory")):
            self.run_refuses(self.rig_.backing, "bytes of " + what, "raise it (ulimit %s unlimited)" % limit,
                             wrapper=("sh", "-c", 'ulimit %s 100; exec "$@"' % limit if limit == "-f" else
                                      'ulimit -v 1000000; exec "$@"', "sh"))
        for error, text in (("EPERM", "Operation not permitted"), ("ENOSYS", "Function not implemented")):
            self.run_refuses(self.rig_.backing, "memfd_create(2), which must be allowed", text,
                             wrapper=("strace", "-o", "/dev/null", "-e", "trace=memfd_create", "-e",
                                      "inject=memfd_create:error=" + error))
        # Nothing has happened to the volume.
        self.assertTrue(self.status()["state"].strip().startswith("clean"))

    def status(self):
        text = self.rig_.volume.run("salius", "status", self.rig_.backing).stdout
        return dict(line.split(":", 1) for line in text.splitlines() if ":" in line and not line.startswith(" "))

    def test_commands(self):
        script, text = os.path.join(self.base, "script"), os.path.join(self.base, "text")
        for path, content in ((script, "#!/no/interpreter\n"), (text, "hello\n")):
            with open(path, "w") as f:
                f.write(content)
            os.chmod(path, 0o755)
        for command, code, message in (("no-such", 127, "there is no such program"),
                                       ("/no/such", 127, "there is no such program"),
                                       (script, 127, "its interpreter is missing"),
                                       ("/etc/passwd", 126, "no permission to execute it"),
                                       ("/etc", 126, "is a directory"),
                                       (text, 126, "Exec format error")):
            done = self.call(program_for_users("salius-run"), "--insecure", "--direct", self.rig_.backing, "--", command)
            self.refuses(done, code, command, message)

    def test_no_replica_answers(self):
        for replica in self.rig_.replicas:
            replica.kill()
        done = self.call(program_for_users("salius-run"), "--insecure", "--stats", "--direct", self.rig_.backing, "--", "sh", "-c",
                         "dd if=/dev/zero of=%s bs=1k count=3 conv=fsync status=none && echo works"
                         % os.path.join(self.rig_.backing, "f"))
        self.assertEqual((done.returncode, done.stdout), (0, "works\n"), done.stderr)
        said = re.search(r"^salius-run: .* begins in mode local: syncs wait for the local disk.*$", done.stderr, re.M)
        self.assertTrue(said, done.stderr)
        for replica in self.rig_.replicas:
            self.assertIn("replica %s: " % replica.address, said.group())
        stats = read_stats(done.stderr)
        self.assertEqual((stats.syncs, stats.real, stats.reasons), (1, 1, {"local": 1}))


# Writes before and after it does what the test wants of it, to an old descriptor and a new file.
_BEHAVIOUR = """
import ctypes, os, resource, sys
os.chdir(sys.argv[1])
def new(name, data):
    fd = os.open(name, os.O_CREAT | os.O_RDWR | os.O_SYNC, 0o644)
    os.write(fd, data)
    return fd
first = new("a", b"before ")
libc = ctypes.CDLL(None, use_errno=True)
%s
os.write(first, b"after")
os.fsync(new("b", b"new"))
print("works", flush=True)
"""
_CLOSED = '\nfirst = os.open("a", os.O_RDWR | os.O_SYNC | os.O_APPEND)'
_EXEC = """
os.execv(sys.executable, [sys.executable, "-c", "import os; fd = os.open('c', os.O_CREAT | os.O_RDWR | os.O_SYNC); "
         "os.write(fd, b'exec'); print('exec works', flush=True)"])
"""
_UNSHARE = "if libc.unshare(%d) != 0: sys.exit('unshare: %%d' %% ctypes.get_errno())"

# (name, code, whether a program can be started afterwards)
BEHAVIOURS = (
    ("closes-a-range", "os.closerange(3, 100000)" + _CLOSED, True),
    ("closes-each", "for fd in range(3, 5000):\n    try: os.close(fd)\n    except OSError: pass" + _CLOSED, True),
    ("setsid", "if pid := os.fork(): os._exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))\nos.setsid()", True),
    ("chroot", "os.chroot('.')", None),
    ("unshare-mounts", _UNSHARE % 0x20000, True),
    ("unshare-network", _UNSHARE % 0x40000000, True),
    ("unshare-users", _UNSHARE % 0x10000000, True),
    ("drops-privileges", "os.setgid(65534)\nos.setuid(65534)", "Permission denied (does the program run as another user?)"),
    ("lowers-descriptors", "resource.setrlimit(resource.RLIMIT_NOFILE, (16, 16))", True),
    ("lowers-them-more", "resource.setrlimit(resource.RLIMIT_NOFILE, (6, 6))", "Too many open files"),
)


class Programs(DirectCase):

    def words(self, *command, options=()):
        # A program that changed its user must be able to read the library.
        return [program_for_users("salius-run"), *super().words(*command, options=options)[1:]]

    def test_processes_of_another_pid_namespace_are_refused(self):
        # There a waiter that is killed could mark the living owner of a lock as dead.
        reason = "it is in another PID namespace than the volume's salius-run"
        forked = "import ctypes, os\nassert ctypes.CDLL(None).unshare(0x20000000) == 0\n" \
                 "pid = os.fork()\nif pid == 0: os._exit(0)\nos._exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))"
        done = self.run_once(sys.executable, "-c", forked)
        self.assertEqual(done.returncode, 125, done.stderr)
        self.assertIn("salius: a forked process cannot use the volume: " + reason, done.stderr)
        first = self.start("sh", "-c", "echo begun; cat", pipe_in=True)
        self.assertEqual(first.popen.stdout.readline(), "begun\n")
        self.assertEqual(self.run_once("true").returncode, 0)
        other = subprocess.run([*in_netns(self.rig_.net.primary), "unshare", "--pid", "--fork", "--kill-child", "--",
                                *self.words("true")], capture_output=True, text=True, timeout=60)
        self.assertNotEqual(other.returncode, 0)
        self.assertIn(reason, other.stderr)

    def test_program_left_in_the_background_may_attach_after_the_command_has_ended(self):
        # strace makes each execve(2) long: between it and the attachment a process has no connection.
        words = self.words("sh", "-c", "dd if=/dev/zero of=%s bs=1k count=3 conv=fsync status=none &" % self.path("f"))
        done = subprocess.run([*in_netns(self.rig_.net.primary), "strace", "-f", "-o", "/dev/null", "-e", "trace=execve",
                               "-e", "inject=execve:delay_exit=300000", *words], capture_output=True, text=True, timeout=60)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertNotIn("cannot attach", done.stderr)
        self.assertEqual(os.stat(self.path("f")).st_size, 3072)

    def test_programs_that_take_things_away(self):
        for name, code, may_exec in BEHAVIOURS:
            folder = self.path(name)
            os.mkdir(folder)
            os.chmod(folder, 0o777)
            text = _BEHAVIOUR % code + (_EXEC if may_exec else "")
            done = self.run_once(sys.executable, "-c", text, folder, options=("--stats",))
            if may_exec in (True, None):
                self.assertEqual((done.returncode, done.stdout), (0, "works\n" + "exec works\n" * bool(may_exec)),
                                 name + ": " + done.stderr)
            else:
                self.assertEqual((done.returncode, done.stdout), (125, "works\n"), name + ": " + done.stderr)
                self.assertRegex(done.stderr, "salius: cannot attach to the volume at .*: " + re.escape(may_exec))
            # The second write to the old file is logged, unless the file was opened again.
            stats = read_stats(done.stderr)
            self.report("%s: %d syncs, %d of them logged", name, stats.syncs, stats.logged)
            self.assertGreater(stats.logged, 0, name)
        proc = self.start("sh", "-c", "true; echo done; cat", pipe_in=True)
        self.assertEqual(proc.popen.stdout.readline(), "done\n")
        self.cut(proc)
        for name, code, may_exec in BEHAVIOURS:
            expected = {"a": b"before after", "b": b"new", **({"c": b"exec"} if may_exec is True else {})}
            for file, data in expected.items():
                with open(self.path(name, file), "rb") as f:
                    self.assertEqual(f.read(), data, name)


# Writes pieces with O_SYNC until one fails; prints the acknowledged bytes and the errno.
_FILL = """
import errno, os, sys
fd = os.open(sys.argv[1], os.O_CREAT | os.O_WRONLY | os.O_SYNC, 0o600)
done = 0
try:
    while True:
        done += os.pwrite(fd, bytes([done // 65536 % 251 + 1]) * 65536, done)
except OSError as error:
    print(done, errno.errorcode[error.errno], flush=True)
os.fsync(fd)
print("synced", flush=True)
sys.stdin.read(1)
"""


class Full(DirectCase):
    """The disk is full, or the quota used up, in the middle of a write (I8)."""

    SIZE_MB, USER = 96, "games"
    wrapper = ()  # of the program that fills the disk

    def cut_when_full(self, expected, make_room):
        """Fills the disk, cuts the power and recovers; with `make_room()` in between if that is
        needed. Everything that was acknowledged must be there."""
        proc = self.start(*self.wrapper, sys.executable, "-c", _FILL, self.path("f"), pipe_in=True)
        size, why = proc.popen.stdout.readline().split()
        self.assertEqual(why, expected)
        self.assertGreater(int(size), 10 << 20)
        self.assertEqual(proc.popen.stdout.readline(), "synced\n")
        self.rig_.image.shutdown()
        self.kill_all(proc)
        self.rig_.image.umount()
        self.rig_.image.mount()
        done = self.rig_.volume.recover()
        self.report("%s after %s bytes; the first recovery ended with %d", why, size, done.returncode)
        if done.returncode != 0:
            self.assertRegex(done.stdout + done.stderr, "No space left|[Qq]uota exceeded")
            make_room()
            done = self.rig_.volume.recover()
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.check(int(size))

    def check(self, size):
        with open(self.path("f"), "rb") as f:
            data = f.read()
        self.assertGreaterEqual(len(data), size)
        # The last piece may not have fitted whole.
        for at in range(0, size - 65536, 65536):
            self.assertEqual(data[at:at + 65536], bytes([at // 65536 % 251 + 1]) * 65536, at)

    def test_disk_full(self):
        with open(self.path("filler"), "wb") as f:
            f.write(bytes(20 << 20))
        self.cut_when_full("ENOSPC", lambda: os.unlink(self.path("filler")))
        # There is room again: the volume goes on.
        os.unlink(self.path("f"))
        done = self.run_once("dd", "if=/dev/zero", "of=" + self.path("g"), "bs=1M", "count=4", "conv=fsync")
        self.assertEqual(done.returncode, 0, done.stderr)


class Quota(Full):
    """With real quotas where the kernel has those of ext4, else with the answer that strace gives in
    their place."""

    SIZE_MB = 400
    test_disk_full = None

    def image(self):
        self.wrapper = ()
        try:
            image = Image("quota", "ext4", self.SIZE_MB, ("-O", "quota"), "usrquota")
        except HarnessError:
            self.report("this kernel has no ext4 quotas: strace answers EDQUOT")
            self.wrapper = ("strace", "-f", "-o", "/dev/null", "-e", "trace=pwrite64", "-e",
                            "inject=pwrite64:error=EDQUOT:when=200+")
            return None
        self.limit(image.path, 40)
        return image

    def limit(self, path, megabytes):
        sh("setquota", "-u", self.USER, "0", str(megabytes << 10), "0", "0", path)

    def test_quota_used_up(self):
        self.cut_when_full("EDQUOT", lambda: self.limit(self.rig_.image.path, 200))
