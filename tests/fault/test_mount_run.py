"""`salius-run -- COMMAND` at mounts with commit=external: what a process outside hears of a write, and
when.

The program under salius-run writes to a file of the mount, syncs it, and makes one output. While the
replicas are silent the sync must return, and the output must not arrive. The program shows how far
it is by its own name, which is no output.
"""
import errno
import os
import re
import signal
import subprocess
import sys
import time

from fault.test_gate import LEAKS, Channels
from harness.case import Case
from harness.direct import DirectCase
from harness.gate import Agent
from harness.proc import Proc
from harness.rig import SMALL_LOG
from harness.run import current, scratch, sh, wait_until

# A silent replica is waited for, and the disk not asked to help, for a quarter of it.
SILENT_FOR_LONG = (*SMALL_LOG, "--delta", "60s", "--tau", "2m")
DEEP, NEW_FILES = 12, 50
HOLD_S = 0.4  # an output that must not come is awaited for so long

# Programs that the library is not in, or that do what Python cannot. Their words: how, a descriptor of
# a file of the mount, the path of a FIFO outside.
PROGRAMS = r"""
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

static int save(int fd) { return pwrite(fd, "x", 1, 0) != 1 || fsync(fd) != 0; }

int main(int argc, char** argv) {
  const int fd = atoi(argv[2]);
  if (strcmp(argv[1], "sync") == 0) {
    prctl(PR_SET_NAME, "syncing");
    if (save(fd)) return 1;
    prctl(PR_SET_NAME, "synced");
    char byte;
    return read(STDIN_FILENO, &byte, 1) > 0;
  }
  const int fifo = open(argv[3], O_WRONLY);
  if (fifo < 0 || save(fd)) return 2;
  prctl(PR_SET_NAME, "synced");
  const pid_t child = strcmp(argv[1], "vfork") == 0 ? vfork() : fork();
  if (child == 0) {
    if (write(fifo, "heard", 5) != 5) _exit(3);
    _exit(0);
  }
  int status = 0;
  if (waitpid(child, &status, 0) != child) return 4;
  return WEXITSTATUS(status);
}
"""


# A system call instruction of the program's own.
RAW = """
import mmap
code = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
code.write(bytes.fromhex("4889f84889f74889d64889ca0f05c3"))
raw = ctypes.CFUNCTYPE(ctypes.c_long, ctypes.c_long, ctypes.c_long, ctypes.c_char_p, ctypes.c_long)(
    ctypes.addressof(ctypes.c_char.from_buffer(code)))
"""


class MountCase(Case):
    """A mount with commit=external in self.directory."""

    _serial = 0
    OPTIONS = "commit=external"  # None: the test mounts
    INIT = SILENT_FOR_LONG
    FS = "ext4"

    def setUp(self):
        super().setUp()
        self.rig_ = self.rig(m=2, acks=2, fs=self.FS, size_mb=320, init_options=self.INIT)
        if self.OPTIONS:
            self.rig_.mount(self.OPTIONS, mode="replicated")
        self.directory = self.rig_.path
        self.addCleanup(self.sound)
        MountCase._serial += 1
        self.log = os.path.join(current().dir, "mount-run%d.log" % MountCase._serial)

    def words(self, *command):
        return [self.rig_.volume.program("salius-run"), "--", *command]

    def start(self, *command, wrapped=True, **how):
        """Starts the command, whose standard output is a pipe and whose errors go to self.log."""
        proc = Proc(self.words(*command) if wrapped else command, self.log, pipe_out=True, **how)
        self.addCleanup(DirectCase.end, proc)
        return proc

    def python(self, text, *words, **how):
        """Starts a program that writes to `fd`, an open file of the mount."""
        begin = "import ctypes, os, sys, time\nname = ctypes.CDLL(None).prctl\n" \
                "fd = os.open(%r, os.O_CREAT | os.O_RDWR, 0o600)\n" \
                "def save(text): os.pwrite(fd, text, 0); os.fsync(fd)\n" \
                "def ready(): print('ready', flush=True); sys.stdin.readline()\n" % self.rig_.file("f")
        return self.start(sys.executable, "-c", begin + text, *words, pipe_in=True, **how)

    def await_ready(self, run):
        self.assertEqual(run.popen.stdout.readline(), "ready\n", run.tail())

    def go(self, run):
        run.popen.stdin.write("\n")
        run.popen.stdin.flush()

    def run_once(self, *command, timeout=60, **how):
        return subprocess.run(self.words(*command), capture_output=True, text=True, timeout=timeout,
                              stdin=subprocess.DEVNULL, **how)

    # ---- what is durable

    def stop_replicas(self, rig=None):
        """Makes everything so far durable, then stops the replicas."""
        rig = rig or self.rig_
        rig.mount_.wait_status(lambda s: s["durable"] == s["issued"], 60, "all durable")
        for replica in rig.replicas:
            replica.proc.stop()

    def sound(self, rig=None):
        for replica in (rig or self.rig_).replicas:
            replica.proc.cont()

    def pending(self, rig=None):
        status = (rig or self.rig_).mount_.status()
        return status["durable"] < status["issued"]

    def names(self, run):
        """Returns the names of the command's processes."""
        found, left = [], [run.pid]
        while left:
            pid = left.pop()
            try:
                for thread in os.listdir("/proc/%d/task" % pid):
                    with open("/proc/%d/task/%s/children" % (pid, thread)) as f:
                        left += map(int, f.read().split())
                with open("/proc/%d/comm" % pid) as f:
                    found.append(f.read().strip())
            except (FileNotFoundError, ProcessLookupError):
                pass
        return found

    def await_name(self, run, name):
        wait_until(lambda: name in self.names(run), 60, lambda: "no process is %s: %s\n%s" % (
            name, self.names(run), run.tail()))

    def end(self, run, code=0):
        run.popen.stdin.close()
        self.assertEqual(run.wait(60), code, run.tail())


class Leaks(Channels, MountCase):

    def leak(self, name):
        """Makes the output while the replicas are silent. Returns whether it was heard meanwhile."""
        prepare, output, channel = LEAKS[name]
        self.listen()
        try:
            run = self.begin(prepare, output, True)
            self.stop_replicas()
            try:
                self.go(run)
                self.await_name(run, "synced")
                early = self.heard(channel or "fifo", HOLD_S)
                self.assertTrue(self.pending(), "the replicas were to be silent")
                self.assertNotIn("made", self.names(run), name + ": the output did not wait")
                if early:
                    return True
            finally:
                self.sound()
            if channel:
                self.assertTrue(self.heard(channel, 60), name + ": it never came\n" + run.tail())
            if name != "exit":
                self.assertEqual(run.popen.stdout.readline().split()[:1], ["made"], run.tail())
            self.end(run)
            return False
        finally:
            self.silence()

    def test_outputs_wait_for_the_replicas(self):
        for name in LEAKS:
            with self.subTest(name):
                self.assertFalse(self.leak(name), name + " was heard before the write was durable")

    def test_it_is_heard_at_once_without_a_gate(self):
        """The control: the program runs without salius-run, and does not sync."""
        prepare, output, channel = LEAKS["write"]
        self.listen()
        try:
            run = self.begin(prepare, output, False, wrapped=False)
            self.stop_replicas()
            self.go(run)
            self.assertTrue(self.heard(channel, 60), "the test cannot hear it\n" + run.tail())
            self.assertTrue(self.pending())
            self.sound()
            self.end(run)
        finally:
            self.silence()


class Gated(MountCase):

    def hold(self, run, name, rig=None):
        """Checks that no process of the command gets past that name while nothing becomes durable."""
        begin = time.monotonic()
        while time.monotonic() - begin < HOLD_S:
            self.assertIn(name, self.names(run), run.tail())
            self.assertTrue(self.pending(rig), "the replicas were to be silent")

    def programs(self):
        """Compiles PROGRAMS statically and dynamically. Returns both."""
        paths = []
        for linked in ("static", "shared"):
            paths.append(os.path.join(current().dir, "programs-%s" % linked))
            if not os.path.exists(paths[-1]):
                with open(paths[-1] + ".c", "w") as source:
                    source.write(PROGRAMS)
                sh("gcc", "-O1", *(("-static",) if linked == "static" else ()), "-o", paths[-1], paths[-1] + ".c")
        return paths

    def fifo(self, name="fifo"):
        path = scratch(name)
        os.mkfifo(path)
        end = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        self.addCleanup(os.close, end)
        return path, end

    @staticmethod
    def heard(end):
        try:
            return os.read(end, 100)
        except BlockingIOError:
            return b""

    def await_heard(self, end, run):
        wait_until(lambda: self.heard(end), 60, lambda: "it never came\n" + run.tail())

    def test_a_hundred_syncs_wait_once(self):
        run = self.python("d = os.open(os.path.dirname(sys.argv[1]), os.O_RDONLY)\n"
                          "o = os.open(sys.argv[1] + '.o', os.O_CREAT | os.O_WRONLY | os.O_SYNC)\n"
                          "save(b'x'); ready()\n"
                          "for i in range(100): save(b'%d' % i); os.write(o, b'y'); os.fsync(d)\n"
                          "name(15, b'synced'); print('shown', flush=True)", self.rig_.file("f"))
        self.await_ready(run)
        self.stop_replicas()
        self.go(run)
        self.await_name(run, "synced")
        self.hold(run, "synced")
        self.sound()
        self.assertEqual(run.popen.stdout.readline(), "shown\n")
        self.end(run)

    def test_syncs_make_no_request(self):
        run = self.python("d = os.open(os.path.dirname(sys.argv[1]), os.O_RDONLY)\n"
                          "save(b'x'); ready(); os.fsync(fd); os.fdatasync(fd); os.fsync(d); name(15, b'synced')\n"
                          "sys.stdin.readline()", self.rig_.file("f"))
        self.await_ready(run)
        daemon = self.rig_.mount_.proc
        daemon.stop()
        try:
            self.go(run)
            self.await_name(run, "synced")
        finally:
            daemon.cont()
        self.end(run)

    def test_synchronous_write_of_a_plain_file_returns_early(self):
        """pwritev2 with RWF_DSYNC, on a file that was never synced."""
        run = self.python("ready(); os.pwritev(fd, [b'x'], 0, os.RWF_DSYNC); name(15, b'synced'); print('shown', flush=True)")
        self.await_ready(run)
        self.stop_replicas()
        self.go(run)
        self.await_name(run, "synced")
        self.hold(run, "synced")
        self.sound()
        self.assertEqual(run.popen.stdout.readline(), "shown\n")
        self.end(run)

    def test_new_file_asks_for_its_directories_once(self):
        """The kernel keeps no name of such a mount: each directory of a path is a request, each time. That
        the path is in the mount, and the file is made, must not each cost them."""
        deep = os.path.join(self.directory, *["d"] * DEEP)
        os.makedirs(deep)
        run = self.python("ready(); os.pwrite(fd, b'x', 0); deep, new = sys.argv[1], os.O_CREAT | os.O_EXCL | os.O_WRONLY\n"
                          "for i in range(%d): os.close(os.open('%%s/f%%d' %% (deep, i), new, 0o640))\n"
                          "name(15, b'made'); sys.stdin.readline()\n"
                          "def error(path):\n"
                          "    try: return os.close(os.open(path, new))\n"
                          "    except OSError as e: return e.errno\n"
                          "print(error(deep + '/f0'), error(deep + '/none/f'), error(deep + '/f/'), error(deep + '/f0/f'),\n"
                          "      error('/' + deep + '/.'), flush=True)\n"
                          "os.chdir(deep); print(error('here'), error('./there'), flush=True)\n" % NEW_FILES, deep)
        self.await_ready(run)
        self.stop_replicas()  # else there may be nothing that an output waits for
        before = self.requests()
        self.go(run)
        self.await_name(run, "made")
        each = (self.requests() - before) / NEW_FILES
        self.assertTrue(self.pending(), "the replicas were to be silent")
        self.sound()
        run.popen.stdin.write("\n")
        run.popen.stdin.flush()
        self.assertEqual(run.popen.stdout.readline().split(), [str(number) for number in (
            errno.EEXIST, errno.ENOENT, errno.EISDIR, errno.ENOTDIR, errno.EEXIST)], run.tail())
        self.assertEqual(run.popen.stdout.readline(), "None None\n", run.tail())
        self.end(run)
        self.assertEqual(sorted(os.listdir(deep)), sorted(["f%d" % i for i in range(NEW_FILES)] + ["here", "there"]))
        self.assertEqual(os.stat(deep + "/f0").st_mode & 0o777, 0o640)
        # A name and the attributes of each directory, each with a look at the caller; some for the file.
        self.assertLess(each, 6 * DEEP)

    def test_changes_of_a_file_of_the_mount_do_not_ask_the_supervisor(self):
        """They are no output, and salius-run would only say so."""
        run = self.python("ready(); os.pwrite(fd, b'x', 0)\n"
                          "f = os.open(sys.argv[1], os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)\n"
                          "os.write(f, b'new'); os.fchmod(f, 0o640); os.fchown(f, 1, 2); os.setxattr(f, 'user.x', b'1')\n"
                          "os.utime(f, (3, 4)); os.close(f); name(15, b'made'); sys.stdin.readline()", self.rig_.file("new"))
        self.await_ready(run)
        self.stop_replicas()  # else there may be nothing that an output waits for
        run.stop()
        try:
            self.go(run)
            self.await_name(run, "made")
        finally:
            run.cont()
        self.assertTrue(self.pending(), "the replicas were to be silent")
        self.sound()
        self.end(run)
        made = os.stat(self.rig_.file("new"))
        self.assertEqual((made.st_mode & 0o777, made.st_uid, made.st_gid, made.st_mtime, made.st_size), (0o640, 1, 2, 4, 3))
        self.assertEqual(os.getxattr(self.rig_.file("new"), "user.x"), b"1")

    def test_mode_of_a_directory_does_not_wait(self):
        """The C library sets it by /proc/self/fd where the kernel has no call for what may be a link."""
        os.mkdir(self.rig_.file("d"))
        run = self.python("ready(); os.pwrite(fd, b'x', 0); d = os.open(sys.argv[1], os.O_PATH)\n"
                          "os.chmod('/proc/self/fd/%d' % d, 0o750); name(15, b'made'); sys.stdin.readline()", self.rig_.file("d"))
        self.await_ready(run)
        self.stop_replicas()  # an output would wait
        before = self.rig_.mount_.status()["durable"]
        self.go(run)
        self.await_name(run, "made")
        self.assertEqual(self.rig_.mount_.status()["durable"], before, "it waited")
        self.sound()
        self.end(run)
        self.assertEqual(os.stat(self.rig_.file("d")).st_mode & 0o777, 0o750)

    def requests(self):
        """Returns how often the daemon has read: each request is one or two."""
        with open("/proc/%d/io" % self.rig_.mount_.pid) as f:
            return int(re.search("^syscr: ([0-9]+)$", f.read(), re.M).group(1))

    def test_syncs_wait_once_a_process_outside_maps_the_file(self):
        """The grant was given before: the daemon must tell the process of the map."""
        run = self.python("os.pwrite(fd, bytes(4096), 0); os.fsync(fd); ready()\n"
                          "os.fsync(fd); name(15, b'synced'); sys.stdin.readline()")
        self.await_ready(run)
        self.rig_.mount_.wait_status(lambda s: s["durable"] == s["issued"], 60, "all durable")
        agent = self.own(Agent(scratch("agent.log")))
        agent.ask("files.update(f=os.open(%r, os.O_RDWR))" % self.rig_.file("f"))
        agent.ask("files.update(map=mmap.mmap(files['f'], 4096))")
        agent.ask("files['map'].write(b'stored')")
        self.stop_replicas()
        self.go(run)
        wait_until(self.pending, 60, "no record: the sync has not written the page back")
        time.sleep(HOLD_S)
        self.assertNotIn("synced", self.names(run))
        self.assertTrue(self.pending(), "the replicas were to be silent")
        self.sound()
        self.await_name(run, "synced")
        self.end(run)

    def test_process_outside_waits_for_what_it_would_see(self):
        run = self.python("ready(); save(b'new'); name(15, b'synced'); sys.stdin.readline()")
        self.await_ready(run)
        agent = self.own(Agent(scratch("agent.log")))
        self.stop_replicas()
        self.go(run)
        self.await_name(run, "synced")
        agent.start("os.stat(%r).st_size" % self.rig_.file("f"))
        self.hold(run, "synced")
        self.assertFalse(agent.done())
        self.sound()
        self.assertEqual(agent.result(60), 3)
        self.end(run)

    def test_exec_gives_early_return_back(self):
        static, shared = self.programs()
        for program, name in ((static, "syncing"), (shared, "synced")):
            with self.subTest(program):
                # A program without the library waits at its sync, one with it at its end.
                run = self.python("os.set_inheritable(fd, True); f = os.open(sys.argv[2], os.O_WRONLY)\n"
                                  "save(b'x'); ready(); os.execv(sys.argv[1], ['p', 'sync', str(fd)])", program,
                                  self.fifo(os.path.basename(program))[0])
                self.await_ready(run)
                self.stop_replicas()
                self.go(run)
                self.await_name(run, name)
                wait_until(self.pending, 60, "no record")
                self.hold(run, name)
                self.sound()
                self.end(run)

    def test_children_of_fork_and_vfork_wait(self):
        for how in ("fork", "vfork"):
            for program in self.programs():
                with self.subTest((how, program)):
                    path, end = self.fifo("%s-%s" % (how, os.path.basename(program)))
                    run = self.python("os.set_inheritable(fd, True); ready(); "
                                      "os.execv(sys.argv[1], ['p', sys.argv[2], str(fd), sys.argv[3]])", program, how, path)
                    self.await_ready(run)
                    self.stop_replicas()
                    self.go(run)
                    wait_until(self.pending, 60, "no record")
                    if "static" not in program:  # its sync waits
                        self.await_name(run, "synced")
                    time.sleep(HOLD_S)
                    self.assertTrue(self.pending(), "the replicas were to be silent")
                    self.assertEqual(self.heard(end), b"")
                    self.sound()
                    self.await_heard(end, run)
                    self.end(run)

    def test_exit_code_comes_when_all_is_durable(self):
        run = self.python("f = os.open(sys.argv[1], os.O_WRONLY); ready(); save(b'x'); os._exit(7)", os.devnull)
        self.await_ready(run)
        self.stop_replicas()
        self.go(run)
        wait_until(self.pending, 60, "no record")
        begin = time.monotonic()
        while time.monotonic() - begin < HOLD_S:
            self.assertTrue(run.alive())
            self.assertTrue(self.pending())
        self.sound()
        self.end(run, 7)

    def test_exit_code_is_salius_runs_when_the_volume_fails(self):
        run = self.python("ready(); save(b'x'); name(15, b'synced'); sys.stdin.readline(); os._exit(0)")
        self.await_ready(run)
        self.stop_replicas()
        self.go(run)
        self.await_name(run, "synced")
        self.rig_.image.shutdown()
        self.end(run, 125)
        self.assertIn("not everything that the command did is durable", run.tail())

    def test_output_waits_for_each_of_two_mounts(self):
        other = self.rig(m=2, acks=2, size_mb=256, init_options=SILENT_FOR_LONG)
        other.mount("commit=external", mode="replicated")
        self.addCleanup(self.sound, other)
        path, end = self.fifo()
        run = self.python("o = os.open(sys.argv[1], os.O_CREAT | os.O_RDWR); f = os.open(sys.argv[2], os.O_WRONLY)\n"
                          "def both(text): save(text); os.pwrite(o, text, 0); os.fsync(o)\n"
                          "for i in range(2): ready(); both(b'x'); name(15, b'synced'); os.write(f, b'heard')",
                          other.file("g"), path)
        for rig in (self.rig_, other):
            self.await_ready(run)
            self.stop_replicas(rig)
            self.go(run)
            self.await_name(run, "synced")
            self.hold(run, "synced", rig)
            self.assertEqual(self.heard(end), b"")
            self.sound(rig)
            self.await_heard(end, run)
        self.end(run)

    def test_mount_with_another_contract_is_outside(self):
        other = self.rig(m=2, acks=2, size_mb=256, init_options=SILENT_FOR_LONG)
        other.mount("recover=auto", mode="replicated")
        with open(other.file("g"), "w"):
            pass
        run = self.python("o = os.open(sys.argv[1], os.O_RDWR); ready(); save(b'x'); name(15, b'synced')\n"
                          "os.write(o, b'heard'); name(15, b'done'); sys.stdin.readline()", other.file("g"))
        self.await_ready(run)
        self.stop_replicas()
        self.go(run)
        self.await_name(run, "synced")
        self.hold(run, "synced")
        self.assertEqual(os.path.getsize(other.file("g")), 0)
        self.sound()
        self.await_name(run, "done")
        self.end(run)

    def test_file_mounted_over_a_name_of_the_mount_is_outside(self):
        out, over = scratch("over"), self.rig_.file("g")
        for path, text in ((out, "there"), (over, "")):
            with open(path, "w") as f:
                f.write(text)
        sh("mount", "--bind", out, over)
        try:
            run = self.python("ready(); save(b'x'); name(15, b'synced'); os.open(sys.argv[1], os.O_CREAT | os.O_TRUNC | "
                              "os.O_WRONLY); name(15, b'done'); sys.stdin.readline()", over)
            self.await_ready(run)
            self.stop_replicas()
            self.go(run)
            self.await_name(run, "synced")
            self.hold(run, "synced")
            self.assertEqual(os.path.getsize(out), 5)
            self.sound()
            self.await_name(run, "done")
            self.end(run)
            self.assertEqual(os.path.getsize(out), 0)
        finally:
            sh("umount", over)

    def test_nothing_leaves_when_salius_run_is_killed(self):
        for what in ("write", "stdio"):
            with self.subTest(what):
                path, end = self.fifo(what)
                run = self.python("f = open(sys.argv[1], 'w'); s = ctypes.CDLL(None); s.fdopen.restype = ctypes.c_void_p\n"
                                  "p = ctypes.c_void_p(s.fdopen(f.fileno(), b'w'))\n"
                                  "ready(); save(b'x'); name(15, b'synced'); time.sleep(%g)\n"
                                  "%s" % (HOLD_S / 2, "os.write(f.fileno(), b'heard')" if what == "write" else
                                          "s.fputs(b'heard', p); s.fflush(p)"), path)
                self.await_ready(run)
                self.stop_replicas()
                self.go(run)
                self.await_name(run, "synced")
                run.signal(signal.SIGKILL)
                time.sleep(2 * HOLD_S)
                self.assertTrue(self.pending(), "the replicas were to be silent")
                self.assertEqual(self.heard(end), b"")
                os.killpg(run.pid, signal.SIGKILL)
                self.sound()
                run.wait(60)

    def test_connection_that_the_program_closed_ends_early_return(self):
        """The program closes by system calls of its own what the library has open."""
        path, end = self.fifo()
        run = self.python(RAW + "f = os.open(sys.argv[1], os.O_WRONLY)\n"
                          "save(b'x'); mine = {0, 1, 2, fd, f}\n"
                          "for n in sorted(int(n) for n in os.listdir('/proc/self/fd')):\n"
                          "    if n not in mine: raw(3, n, None, 0)\n"
                          "ready(); os.pwrite(fd, b'y', 0); name(15, b'written')\n"
                          "os.write(f, b'heard'); name(15, b'done'); ready(); save(b'z'); name(15, b'synced')", path)
        self.await_ready(run)
        self.stop_replicas()
        self.go(run)
        self.await_name(run, "written")
        self.hold(run, "written")
        self.assertEqual(self.heard(end), b"")
        self.sound()
        self.await_heard(end, run)
        self.await_ready(run)
        self.stop_replicas()
        self.go(run)
        wait_until(self.pending, 60, "no record")
        self.hold(run, "done")
        self.sound()
        self.end(run)

    def test_child_that_cannot_register_waits(self):
        path, end = self.fifo()
        run = self.python("f = os.open(sys.argv[1], os.O_WRONLY); save(b'x'); ready()\n"
                          "if os.fork() == 0:\n"
                          "    os.pwrite(fd, b'y', 0); name(15, b'written'); os.write(f, b'heard'); ready(); save(b'z'); "
                          "os._exit(0)\nos.wait()", path)
        self.await_ready(run)
        gate = "/run/salius/%s.gate" % self.rig_.mount_.status()["volume"]
        os.rename(gate, gate + ".away")
        try:
            self.stop_replicas()
            self.go(run)
            self.await_name(run, "written")
            self.hold(run, "written")
            self.assertEqual(self.heard(end), b"")
            self.sound()
            self.await_heard(end, run)
            self.await_ready(run)
            self.stop_replicas()
            self.go(run)
            wait_until(self.pending, 60, "no record")
            time.sleep(HOLD_S)
            self.assertIn("written", self.names(run), "its sync has not waited")
            self.assertTrue(self.pending(), "the replicas were to be silent")
            self.sound()
            self.end(run)
        finally:
            os.rename(gate + ".away", gate)

    def test_writable_map_of_a_file_outside_ends_early_return(self):
        out = scratch("mapped")
        with open(out, "wb") as f:
            f.truncate(4096)
        run = self.python("import mmap; save(b'x'); f = os.open(sys.argv[1], os.O_RDWR); m = mmap.mmap(f, 4096); ready()\n"
                          "save(b'y'); m[:5] = b'heard'; name(15, b'done'); sys.stdin.readline()", out)
        self.await_ready(run)
        self.stop_replicas()
        self.go(run)
        wait_until(self.pending, 60, "no record")
        time.sleep(HOLD_S)
        self.assertTrue(self.pending(), "the replicas were to be silent")
        with open(out, "rb") as f:
            self.assertEqual(f.read(5), bytes(5))
        self.sound()
        self.await_name(run, "done")
        self.end(run)

    def test_io_uring_and_libaio_are_refused_to_raw_system_calls_too(self):
        run = self.python(RAW + "import errno\n"
                          "print(errno.errorcode[-raw(425, 1, None, 0)], errno.errorcode[-raw(206, 1, None, 0)], flush=True)")
        self.assertEqual(run.popen.stdout.readline(), "ENOSYS ENOSYS\n", run.tail())
        self.end(run)

    def test_left_behind_process_is_waited_for(self):
        run = self.python("ready()\nif os.fork() == 0: sys.stdin.readline(); save(b'late'); os._exit(0)\nos._exit(3)")
        self.await_ready(run)
        self.go(run)
        wait_until(lambda: "waiting for processes that it left behind" in run.tail(), 60, run.tail)
        self.assertTrue(run.alive())
        self.end(run, 3)
        with open(self.rig_.file("f"), "rb") as f:
            self.assertEqual(f.read(), b"late")

    def test_salius_run_within_salius_run_is_refused(self):
        run = self.rig_.volume.program("salius-run")
        for words, why in (((run, "--", "true"), "within a command of salius-run already"),
                           ((run, "--direct", self.rig_.backing, "--", "true"), "outputs are gated there")):
            done = self.run_once(*words)
            self.assertEqual(done.returncode, 125, done.stderr)
            self.assertIn(why, done.stderr)
        done = self.run_once("true", env=dict(os.environ, SALIUS_DIRECT_SOCKET="/somewhere"))
        self.assertEqual(done.returncode, 125)
        self.assertIn("within a command of salius-run --direct", done.stderr)

    def test_without_such_a_mount_it_says_what_to_do(self):
        self.rig_.mount_.umount()
        self.rig_.mount("commit=ordered", mode="replicated")
        done = self.run_once("true")
        self.assertEqual(done.returncode, 125)
        self.assertIn("mount a volume with `-o commit=external`", done.stderr)
        self.assertIn("another contract", done.stderr)

    def test_codes_of_the_command_are_its_own(self):
        self.assertEqual(self.run_once("false").returncode, 1)
        self.assertEqual(self.run_once("sh", "-c", "kill -9 $$").returncode, 137)
        self.assertEqual(self.run_once("/nothing").returncode, 127)
        self.assertEqual(self.run_once(self.directory).returncode, 126)
        done = self.run_once("sh", "-c", "echo shown; cd %s; echo x > y; cat y" % self.directory)
        self.assertEqual((done.returncode, done.stdout), (0, "shown\nx\n"), done.stderr)
