"""External synchrony on a direct volume: what a process outside hears of a write, and when.

The program under salius-run writes to a covered file, syncs it, and makes one output. While the
replicas are stopped the sync must return, and the output must not arrive. When the replicas run
again it arrives. The control has no gate and no sync: there the output arrives at once, although
nothing is durable.
"""
import ctypes
import fcntl
import os
import pty
import select
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
import uuid

from harness.direct import DirectCase
from harness.proc import Proc, attach_strace
from harness.run import current, scratch, sh, wait_until

# Covers its two files, waits for a line, writes f, syncs it, writes `synced` without a sync, makes the
# output. Then it prints when the output was made. Its words: the volume, a directory outside,
# whether it syncs.
PROGRAM = """
import ctypes, fcntl, mmap, os, signal, socket, struct, subprocess, sys, termios, threading, time
volume, out, syncs = sys.argv[1], sys.argv[2], sys.argv[3] == "sync"
libc = ctypes.CDLL(None, use_errno=True)
fd = os.open(volume + "/f", os.O_CREAT | os.O_RDWR, 0o600)
synced = os.open(volume + "/synced", os.O_CREAT | os.O_RDWR, 0o600)
def save(text, fd=fd):
    os.pwrite(fd, text, 0)
    if syncs: os.fsync(fd)
def fifo(): return os.open(out + "/fifo", os.O_WRONLY)
def datagram():
    s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    s.connect(out + "/datagram")
    return s
# A system call instruction of our own: mov rax, rdi; ...; syscall; ret
code = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
code.write(bytes.fromhex("4889f84889f74889d64889ca0f05c3"))
raw = ctypes.CFUNCTYPE(ctypes.c_long, ctypes.c_long, ctypes.c_long, ctypes.c_char_p, ctypes.c_long)(
    ctypes.addressof(ctypes.c_char.from_buffer(code)))
%(prepare)s
save(b"first")
save(b"first", synced)
print("ready", flush=True)
save(b"covered")
save(b"covered", synced)
print("ready", flush=True)
sys.stdin.readline()
save(b"second")
os.pwrite(synced, b"second", 0)
libc.prctl(15, b"synced", 0, 0, 0)  # the name of a process is no output
def output():
%(output)s
output()
libc.prctl(15, b"made", 0, 0, 0)
print("made %%f" %% time.monotonic(), flush=True)
sys.stdin.readline()
"""

# A process outside: says what it hears, on standard output.
LISTENER = """
import ctypes, os, signal, sys
buffer = ctypes.create_string_buffer(b"silent")
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
print(os.getpid(), ctypes.addressof(buffer), flush=True)
while True:
    if signal.sigtimedwait([signal.SIGUSR1], 0.02) or buffer.raw[:5] == b"heard":
        print("heard", flush=True)
        sys.exit()
"""

# As PROGRAM, with an output by a child of vfork(2). Its words: the volume, a FIFO outside.
VFORK = r"""
#include <fcntl.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

int main(int argc, char** argv) {
  if (argc != 3 || chdir(argv[1]) != 0) return 2;
  const int fd = open("f", O_CREAT | O_RDWR, 0600);
  const int synced = open("synced", O_CREAT | O_RDWR, 0600);
  const int fifo = open(argv[2], O_WRONLY);
  for (int i = 0; i < 2; ++i) {
    if (pwrite(fd, "covered", 7, 0) != 7 || fsync(fd) != 0) return 3;
    if (pwrite(synced, "covered", 7, 0) != 7 || fsync(synced) != 0) return 3;
    puts("ready");
    fflush(stdout);
  }
  getchar();
  if (pwrite(fd, "second", 6, 0) != 6 || fsync(fd) != 0 || pwrite(synced, "second", 6, 0) != 6) return 4;
  const pid_t child = vfork();
  if (child == 0) _exit(write(fifo, "heard", 5) != 5);
  int status = 0;
  return waitpid(child, &status, 0) != child || status != 0;
}
"""

libc = ctypes.CDLL(None, use_errno=True)
HOLD_S = 0.4  # the output is awaited for so long while it must not come

# Each leak: code before the first sync, code of the output, the channel on which it is heard.
LEAKS = {
    "write": ("f = fifo()", "os.write(f, b'heard')", "fifo"),
    "writev": ("f = fifo()", "os.writev(f, [b'he', b'ard'])", "fifo"),
    "send": ("s = datagram()", "s.send(b'heard')", "datagram"),
    "sendto": ("s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)", "s.sendto(b'heard', out + '/datagram')",
               "datagram"),
    "sendmsg": ("s = datagram()", "s.sendmsg([b'heard'])", "datagram"),
    "sendfile": ("f, w = fifo(), os.open(volume + '/f', os.O_RDONLY)", "os.sendfile(f, w, 0, 5)", "fifo"),
    "splice": ("f = fifo(); r, w = os.pipe(); os.write(w, b'heard')", "os.splice(r, f, 5)", "fifo"),
    "tee": ("f = fifo(); r, w = os.pipe(); os.write(w, b'heard')", "libc.tee(r, f, 5, 0)", "fifo"),
    "vmsplice": ("f = fifo(); b = ctypes.create_string_buffer(b'heard')",
                 "libc.vmsplice(f, struct.pack('QQ', ctypes.addressof(b), 5), 1, 0)", "fifo"),
    "stdio": ("f = libc.fdopen; f.restype = ctypes.c_void_p; f = f(fifo(), b'w')",
              "libc.fputs(b'heard', ctypes.c_void_p(f)); libc.fflush(ctypes.c_void_p(f))", "fifo"),
    "raw system call": ("f = fifo()", "raw(1, f, b'heard', 5)", "fifo"),
    "child": ("f = fifo()", "subprocess.run(['sh', '-c', 'echo heard >&%d' % f], pass_fds=[f])", "fifo"),
    "forked child": ("f = fifo()", "pid = os.fork()\nif pid == 0: os.write(f, b'heard'); os._exit(0)\nos.waitpid(pid, 0)",
                     "fifo"),
    "thread": ("f = fifo()", "t = threading.Thread(target=os.write, args=(f, b'heard')); t.start(); t.join()", "fifo"),
    "close of a pipe": ("f = fifo()", "os.close(f)", "fifo"),
    "close of a socket": ("s = socket.socket(socket.AF_UNIX); s.connect(out + '/stream')", "s.close()", "stream"),
    "connect": ("s = socket.socket(socket.AF_UNIX)", "s.connect(out + '/listener')", "listener"),
    "shutdown": ("s = socket.socket(socket.AF_UNIX); s.connect(out + '/stream')", "s.shutdown(1)", "stream"),
    "dup2 over a pipe": ("f = fifo()", "os.dup2(0, f)", "fifo"),
    "a new file outside": ("", "os.close(os.open(out + '/name', os.O_CREAT | os.O_WRONLY))", "name"),
    "a file outside that must be new": (
        "", "os.close(os.open(out + '/name', os.O_CREAT | os.O_EXCL | os.O_WRONLY))", "name"),
    "a file that must be new, by a link that leads outside": (
        "os.symlink(out, volume + '/link')", "os.close(os.open(volume + '/link/name', os.O_CREAT | os.O_EXCL | os.O_WRONLY))",
        "name"),
    "mkdir outside": ("", "os.mkdir(out + '/name')", "name"),
    "rename outside": ("open(out + '/old', 'w').close()", "os.rename(out + '/old', out + '/name')", "name"),
    "a file outside": ("f = os.open(out + '/file', os.O_WRONLY)", "os.write(f, b'heard')", "file"),
    "the mode of a file outside, by its descriptor": (
        "f = os.open(out + '/file', os.O_PATH)", "os.chmod('/proc/self/fd/%d' % f, 0o612)", "mode"),
    "a lock on a file outside": ("f = os.open(out + '/file', os.O_RDWR)", "fcntl.lockf(f, fcntl.LOCK_EX)", "lock"),
    "flock of a file outside": ("f = os.open(out + '/file', os.O_RDWR)", "fcntl.flock(f, fcntl.LOCK_EX)", "flock"),
    "a terminal": ("f = os.open(TERMINAL, os.O_WRONLY | os.O_NOCTTY)", "os.write(f, b'heard')", "terminal"),
    "tcsendbreak": ("f = os.open(TERMINAL, os.O_WRONLY | os.O_NOCTTY)", "termios.tcsendbreak(f, 0)", None),
    "signal": ("", "os.kill(LISTENER, signal.SIGUSR1)", "listening process"),
    "process_vm_writev": ("b = ctypes.create_string_buffer(b'heard')",
                          "libc.process_vm_writev(LISTENER, struct.pack('QQ', ctypes.addressof(b), 5), 1,"
                          " struct.pack('QQ', MEMORY, 5), 1, 0)", "listening process"),
    "ptrace": ("", "libc.ptrace(16, LISTENER, 0, 0)", None),
    "a pipe that was passed": ("r, w = os.pipe(); s = datagram(); socket.send_fds(s, [b'pipe'], [r])",
                               "os.write(w, b'heard')", "passed"),
    "passing a pipe": ("r, w = os.pipe(); s = datagram()", "socket.send_fds(s, [b'heard'], [r])", "datagram"),
    "close of several": ("f = fifo()", "os.closerange(f, f + 1)", "fifo"),
    "a POSIX queue": ("q = libc.mq_open(QUEUE, os.O_WRONLY)", "libc.mq_send(q, b'heard', 5, 0)", "queue"),
    "a System V queue": ("", "libc.msgsnd(MESSAGES, struct.pack('l5s', 1, b'heard'), 5, 0)", "messages"),
    "a System V semaphore": ("", "libc.semop(SEMAPHORE, struct.pack('HhH', 0, 1, 0), 1)", "semaphore"),
    "pidfd_send_signal": ("p = os.pidfd_open(LISTENER)", "signal.pidfd_send_signal(p, signal.SIGUSR1)",
                          "listening process"),
    "exit": ("f = fifo()", "os._exit(0)", "fifo"),
}


class Channels:
    """A process outside, with the channels on which it hears the program. A part of a Case."""

    def listen(self):
        """Makes the directory outside with all that a leak may use."""
        self.out = tempfile.mkdtemp(prefix="out", dir=current().dir)
        os.mkfifo(self.out + "/fifo")
        self.fifo = os.open(self.out + "/fifo", os.O_RDONLY | os.O_NONBLOCK)
        open(self.out + "/file", "w").close()
        self.datagram = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.datagram.bind(self.out + "/datagram")
        self.stream, self.listener = socket.socket(socket.AF_UNIX), socket.socket(socket.AF_UNIX)
        self.stream.bind(self.out + "/stream")
        self.listener.bind(self.out + "/listener")
        self.stream.listen()
        self.listener.listen()
        self.master, self.slave = pty.openpty()
        self.queue_name = b"/salius-%s" % uuid.uuid4().hex.encode()  # all runs of the machine share queues
        self.queue = libc.mq_open(self.queue_name, os.O_RDONLY | os.O_CREAT, 0o600, None)
        self.messages = libc.msgget(0, 0o600)  # IPC_PRIVATE
        self.semaphore = libc.semget(0, 1, 0o600)
        self.assertGreater(min(self.queue, self.messages + 1, self.semaphore + 1), 0, "no queue or semaphore")
        self.passed = None
        self.process = subprocess.Popen([sys.executable, "-c", LISTENER], stdout=subprocess.PIPE, text=True)
        self.pid, self.memory = self.process.stdout.readline().split()

    def silence(self):
        for fd in (self.fifo, self.master, self.slave, self.queue, *([self.passed] if self.passed else [])):
            os.close(fd)
        libc.mq_unlink(self.queue_name)
        libc.msgctl(self.messages, 0, None)  # IPC_RMID
        libc.semctl(self.semaphore, 0, 0, None)
        for s in (self.datagram, self.stream, self.listener):
            s.close()
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()

    def heard(self, channel, timeout):
        """Waits for the output on that channel. Returns whether it came."""
        fds = {"fifo": self.fifo, "datagram": self.datagram, "stream": self.accepted, "listener": self.listener,
               "terminal": self.master, "listening process": self.process.stdout, "queue": self.queue,
               "passed": self.passed}
        if channel in fds:
            return bool(select.select([fds[channel]], [], [], timeout)[0])
        try:
            wait_until({"name": self.named, "file": self.written, "lock": self.locked, "flock": self.flocked,
                        "messages": self.messaged, "semaphore": self.raised, "mode": self.made_shared}[channel],
                       timeout, lambda: "silent")
        except Exception:  # the time is over
            return False
        return True

    def named(self):
        return os.path.exists(self.out + "/name")

    def written(self):
        return os.path.getsize(self.out + "/file") > 0

    def made_shared(self):
        return os.stat(self.out + "/file").st_mode & 0o777 == 0o612

    def locked(self):
        with open(self.out + "/file", "rb+") as f:
            ask = struct.pack("hhqqi", fcntl.F_WRLCK, 0, 0, 0, 0)
            return struct.unpack("hhqqi", fcntl.fcntl(f, fcntl.F_GETLK, ask + b"\0" * 8)[:struct.calcsize("hhqqi")])[0] \
                != fcntl.F_UNLCK

    def flocked(self):
        with open(self.out + "/file", "rb+") as f:
            try:
                fcntl.flock(f, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
            return False

    def messaged(self):
        buffer = ctypes.create_string_buffer(16)
        return libc.msgrcv(self.messages, buffer, 5, 0, 0o4000) == 5  # IPC_NOWAIT

    def raised(self):
        return libc.semctl(self.semaphore, 0, 12) == 1  # GETVAL

    def begin(self, prepare, output, gated, **how):
        """Starts the program; `how`: for self.start."""
        for word, value in (("TERMINAL", repr(os.ttyname(self.slave))), ("LISTENER", self.pid),
                            ("MEMORY", self.memory), ("QUEUE", repr(self.queue_name)),
                            ("MESSAGES", str(self.messages)), ("SEMAPHORE", str(self.semaphore))):
            prepare, output = prepare.replace(word, value), output.replace(word, value)
        output = "\n".join("    " + line for line in output.splitlines())
        run = self.start(sys.executable, "-c", PROGRAM % {"prepare": prepare, "output": output}, self.directory, self.out,
                         "sync" if gated else "none", pipe_in=True, **how)
        for _ in range(2):
            self.assertEqual(run.popen.stdout.readline(), "ready\n", run.tail())
        if "send_fds" in prepare:
            self.passed = socket.recv_fds(self.datagram, 16, 1)[1][0]
        self.accepted = self.stream.accept()[0] if "/stream" in prepare else self.stream
        return run


class Recorder(Channels, DirectCase):

    DELTA = "5s"

    def begin(self, prepare, output, gated):
        return super().begin(prepare, output, gated, options=("--commit=external",) if gated else ())

    def go(self, run):
        """Has the program write, sync and make the output. Returns when the sync has returned."""
        run.popen.stdin.write("\n")
        run.popen.stdin.flush()
        wait_until(self.synced, 60, lambda: "the sync does not return early\n" + run.tail())

    def synced(self):
        with open(self.path("synced"), "rb") as f:  # the page cache: it may be on no disk and no replica
            return f.read().startswith(b"second")


class Leaks(Recorder):

    def leak(self, name, gated):
        """Makes the output while the replicas are stopped. Returns whether it was heard meanwhile."""
        prepare, output, channel = LEAKS[name]
        self.listen()
        try:
            run = self.begin(prepare, output, gated)
            for replica in self.rig_.replicas:
                replica.stop()
            try:
                self.go(run)
                early = self.heard(channel or "fifo", HOLD_S)
                if early or not gated:
                    return early
                if name == "exit":
                    self.assertTrue(run.alive(), "the exit status was shown")
            finally:
                continued = time.monotonic()
                for replica in self.rig_.replicas:
                    replica.cont()
            if channel:
                self.assertTrue(self.heard(channel, 60), name + ": it never came\n" + run.tail())
            if name != "exit":
                words = run.popen.stdout.readline().split()
                self.assertEqual(words[:1], ["made"], run.tail())
                self.assertGreater(float(words[1]), continued, name + ": the output did not wait")
            run.popen.stdin.close()
            self.assertEqual(run.wait(30), 0, run.tail())
            return False
        finally:
            self.silence()

    def test_outputs_wait_for_the_replicas(self):
        for name in LEAKS:
            with self.subTest(name):
                self.assertFalse(self.leak(name, True), name + " was heard before the write was durable")

    def test_child_of_vfork_waits(self):
        program = scratch("vfork")
        sh("gcc", "-O1", "-o", program, "-x", "c", "-", input=VFORK)
        self.listen()
        try:
            run = self.start(program, self.directory, self.out + "/fifo", options=("--commit=external",), pipe_in=True)
            for _ in range(2):
                self.assertEqual(run.popen.stdout.readline(), "ready\n", run.tail())
            self.accepted = self.stream
            for replica in self.rig_.replicas:
                replica.stop()
            try:
                self.go(run)
                self.assertFalse(self.heard("fifo", HOLD_S))
                self.assertTrue(run.alive())
            finally:
                for replica in self.rig_.replicas:
                    replica.cont()
            self.assertTrue(self.heard("fifo", 60), run.tail())
            self.assertEqual(run.wait(60), 0, run.tail())
        finally:
            self.silence()

    def test_outputs_do_not_wait_without_a_gate(self):
        """The control: the recorder hears at once of what is in no replica."""
        for name, (_, _, channel) in LEAKS.items():
            if channel:
                with self.subTest(name):
                    self.assertTrue(self.leak(name, False), name + ": the test cannot hear it")


# Changes of the volume that no record vouches for, and no sync follows: code before, code of the
# change.
CHANGES = {
    "a new file": ("", "os.close(os.open(volume + '/new', os.O_CREAT | os.O_WRONLY))"),
    # A cut by an open for writing is logged.
    "a file that is cut": ("", "os.close(os.open(volume + '/f', os.O_RDONLY | os.O_TRUNC))"),
    "bulk data": ("n = os.open(volume + '/new', os.O_CREAT | os.O_WRONLY)", "os.write(n, bytes(4 << 20))"),
    "stdio": ("s = libc.fdopen; s.restype = ctypes.c_void_p; s = ctypes.c_void_p(s(os.open(volume + '/new',"
              " os.O_CREAT | os.O_WRONLY), b'w'))", "libc.fputs(b'data', s); libc.fflush(s)"),
    "raw system call": ("", "raw(1, fd, b'data', 4)"),
    "mkdir": ("", "os.mkdir(volume + '/new')"),
    "mkdir by a child": ("", "subprocess.run(['mkdir', volume + '/new'])"),
    "mkdir by a thread": ("", "t = threading.Thread(target=os.mkdir, args=(volume + '/new',)); t.start(); t.join()"),
    "rmdir": ("os.mkdir(volume + '/old')", "os.rmdir(volume + '/old')"),
    "unlink": ("open(volume + '/old', 'w').close()", "os.unlink(volume + '/old')"),
    "rename": ("open(volume + '/old', 'w').close()", "os.rename(volume + '/old', volume + '/new')"),
    "link": ("", "os.link(volume + '/f', volume + '/new')"),
    "symlink": ("", "os.symlink('f', volume + '/new')"),
    "chmod": ("", "os.chmod(volume + '/f', 0o640)"),
    "utime": ("", "os.utime(volume + '/f', (1, 1))"),
    "setxattr": ("", "os.setxattr(volume + '/f', 'user.tag', b'x')"),
    "removexattr": ("os.setxattr(volume + '/f', 'user.tag', b'x')", "os.removexattr(volume + '/f', 'user.tag')"),
    "mknod": ("", "os.mknod(volume + '/new', 0o600)"),
}


class Changes(Recorder):
    """The program changes the volume without a sync, and makes an output. While the disk's sync is
    held up the output must not arrive."""

    DISK_US = 1_500_000
    DELTA = "500ms"  # so that the volume soon goes to mode local

    def change(self, name, gated, local=False):
        """Returns whether the output was heard while the sync was held up. `local`: in mode local."""
        prepare, change = CHANGES.get(name, ("", ""))
        self.listen()
        try:
            run = self.begin("f = fifo()\n" + prepare, change + "\nos.write(f, b'heard')", gated)
            if local:
                for replica in self.rig_.replicas:
                    replica.kill()
                wait_until(lambda: "local" in self.status()["mode"], 60, run.tail)
            slow = attach_strace(run.pid, "syncfs", os.path.join(self.out, "slow"), "delay_enter=%d" % self.DISK_US)
            try:
                self.go(run)
                early = self.heard("fifo", HOLD_S)
                if gated:
                    self.assertTrue(self.heard("fifo", 60), name + ": it never came\n" + run.tail())
            finally:
                slow.kill()
            run.popen.stdin.close()
            self.assertEqual(run.wait(30), 0, run.tail())
            return early
        finally:
            self.silence()

    def test_outputs_wait_for_changes_that_were_not_synced(self):
        for name in CHANGES:
            with self.subTest(name):
                self.fresh()
                self.assertFalse(self.change(name, True), name + " was not on the disk")

    def test_outputs_wait_for_the_disk_in_mode_local(self):
        self.assertFalse(self.change("a synced write", True, local=True), "the write was not on the disk")

    def test_they_do_not_wait_without_a_gate(self):
        """The control."""
        for name in CHANGES:
            with self.subTest(name):
                self.fresh()
                self.assertTrue(self.change(name, False), name + ": the test cannot hear it")

    def fresh(self):
        for left in ("new", "old"):
            path = os.path.join(self.directory, left)
            if os.path.isdir(path) and not os.path.islink(path):
                os.rmdir(path)
            elif os.path.lexists(path):
                os.unlink(path)


# Calls the Python module on a file of a direct volume. Its words: the volume, the module's directory.
CALLS = """
import errno, os, select, sys
sys.path.insert(0, sys.argv[2])
import salius
fd = os.open(sys.argv[1] + "/f", os.O_CREAT | os.O_RDWR, 0o600)
os.write(fd, b"first")
salius.dsync(fd)
event = os.eventfd(0, os.EFD_NONBLOCK)
def error(call):
    try:
        call()
    except OSError as error:
        return errno.errorcode[error.errno]
    return "none"
print(error(lambda: salius.osync(fd)), error(lambda: salius.notify(fd, fd)),
      error(lambda: salius.wait(fd, 2 ** 39, 0)), flush=True)
print("ready", flush=True)
sys.stdin.readline()
os.pwrite(fd, b"second", 0)
ticket = salius.notify(fd, event)
silent = not select.select([event], [], [], 0.1)[0]
late = error(lambda: salius.wait(fd, ticket, 0.05))
mark = salius.watermarks(fd)
open(sys.argv[3], "w").write("asked")
salius.wait(fd, ticket, 60)
heard = bool(select.select([event], [], [], 60)[0])
print(silent, late, mark.durable < mark.issued, heard, os.eventfd_read(event), flush=True)
"""

MODULE = os.path.join(os.path.dirname(__file__), "..", "..", "client", "api", "python")


class Calls(DirectCase):

    DELTA = "5s"

    def test_notice_comes_when_durable_and_osync_is_refused(self):
        for options in ((), ("--commit=external",)):
            with self.subTest(options):
                asked = scratch("asked")
                run = self.start(sys.executable, "-c", CALLS, self.directory, MODULE, asked, options=options, pipe_in=True)
                self.assertEqual(run.popen.stdout.readline(), "ENOTSUP EINVAL EINVAL\n", run.tail())
                self.assertEqual(run.popen.stdout.readline(), "ready\n", run.tail())
                for replica in self.rig_.replicas:
                    replica.stop()
                try:
                    run.popen.stdin.write("\n")
                    run.popen.stdin.close()
                    # Under external synchrony making the file waits too.
                    if not options:
                        wait_until(lambda: os.path.exists(asked) and os.path.getsize(asked), 20, run.tail)
                    else:
                        self.assertFalse(select.select([run.popen.stdout], [], [], HOLD_S)[0])
                finally:
                    for replica in self.rig_.replicas:
                        replica.cont()
                self.assertEqual(run.popen.stdout.readline(), "True ETIMEDOUT True True 1\n", run.tail())
                self.assertEqual(run.wait(30), 0, run.tail())


# Writes to a covered file after salius-run has died, and notes the errors of the output that the
# library makes, and of the one of the C library itself, in its memory.
UNKNOWN = b"?" * 10
ORPHAN = """
import ctypes, errno, os, sys
libc = ctypes.CDLL(None, use_errno=True)
noted = ctypes.create_string_buffer(%r)
fd = os.open(sys.argv[1] + "/f", os.O_CREAT | os.O_RDWR, 0o600)
for text in b"first", b"covered":
    os.pwrite(fd, text, 0)
    os.fsync(fd)
print(os.getpid(), ctypes.addressof(noted), flush=True)
sys.stdin.readline()
errors = []
def error(call):
    ctypes.set_errno(0)
    call()
    errors.append(errno.errorcode.get(ctypes.get_errno(), "none"))
libc.pwrite(fd, b"second", 6, 0)
error(lambda: libc.write(1, b"heard", 5))
error(lambda: libc.dprintf(1, b"heard"))
noted.raw = " ".join(errors).encode()[:10].ljust(11)
sys.stdin.readline()
""" % UNKNOWN


class Status(DirectCase):

    def test_status_and_stats_show_contract_and_counts(self):
        text = "import os, sys; fd = os.open(sys.argv[1] + '/f', os.O_CREAT | os.O_RDWR); os.fsync(fd); " \
               "print('synced', flush=True); sys.stdin.readline()"
        run = self.start(sys.executable, "-c", text, self.directory, options=("--commit=external", "--stats"), pipe_in=True)
        self.assertEqual(run.popen.stdout.readline(), "synced\n", run.tail())
        status = self.status()
        self.assertEqual(status["contract"].strip(), "external")
        self.assertRegex(status["early syncs"], "1, 1 of them owed")
        self.assertRegex(status["outputs"], r"[1-9]\d* waited, [1-9]\d* of them for a real sync; 0 refused")
        run.popen.stdin.close()
        self.assertEqual(run.wait(30), 0, run.tail())
        self.assertIn("1 syncs returned early, 1 of them owed", run.tail())

    def test_shared_map_of_a_file_outside_ends_early_return(self):
        out = scratch("mapped")
        with open(out, "wb") as f:
            f.truncate(4096)
        text = "import mmap, os, sys, time; fd = os.open(sys.argv[1] + '/f', os.O_CREAT | os.O_RDWR); os.fsync(fd); " \
               "f = os.open(sys.argv[2], os.O_RDWR); m = mmap.mmap(f, 4096); " \
               "os.write(fd, b'x'); os.fsync(fd); m[:5] = b'heard'; sys.stdin.readline()"
        run = self.start(sys.executable, "-c", text, self.directory, out, options=("--commit=external", "--stats"),
                         pipe_in=True)

        def heard():
            with open(out, "rb") as f:
                return f.read(5) == b"heard"

        wait_until(heard, 20, run.tail)
        self.assertIn("a shared map of a file outside", self.status()["early return"])
        run.popen.stdin.close()
        self.assertEqual(run.wait(30), 0, run.tail())
        self.assertIn("1 syncs returned early", run.tail())

    def test_two_contracts_on_one_volume_are_refused(self):
        run = self.start("cat", options=("--commit=external",), pipe_in=True)
        run.popen.stdin.write("x\n")
        run.popen.stdin.flush()
        self.assertEqual(run.popen.stdout.readline(), "x\n")
        done = self.run_once("true")
        self.assertEqual(done.returncode, 125)
        self.assertIn("is in use with --commit=external", done.stderr)
        self.assertEqual(self.run_once("true", options=("--commit=external",)).returncode, 0)

    def test_second_listener_is_refused_with_the_reason(self):
        volume = self.rig_.volume
        done = self.run_once(volume.program("salius-run"), "--insecure", "--direct", self.directory, "--commit=external",
                             "--", "true", options=("--commit=external",))
        self.assertEqual(done.returncode, 125, done.stderr)
        self.assertIn("already supervises the system calls", done.stderr)

    def test_outputs_fail_after_salius_run_was_killed(self):
        run = self.start(sys.executable, "-c", ORPHAN, self.directory, options=("--commit=external",), pipe_in=True)
        pid, address = map(int, run.popen.stdout.readline().split())
        orphan = os.pidfd_open(pid)
        self.addCleanup(os.close, orphan)
        self.addCleanup(signal.pidfd_send_signal, orphan, signal.SIGKILL)
        os.kill(run.pid, signal.SIGKILL)
        run.wait(30)
        run.popen.stdin.write("\n")
        run.popen.stdin.flush()

        def errors():
            with open("/proc/%d/mem" % pid, "rb", 0) as memory:
                memory.seek(address)
                return memory.read(len(UNKNOWN))

        wait_until(lambda: errors() != UNKNOWN, 60, run.tail)
        self.assertEqual(errors(), b"EIO ENOSYS")
        self.assertFalse(select.select([run.popen.stdout], [], [], 0)[0], "an output came")

    def test_io_uring_is_refused_to_raw_system_calls_too(self):
        text = "import errno\n" \
               "print(errno.errorcode[-raw(425, 1, None, 0)], errno.errorcode[-raw(206, 1, None, 0)], flush=True)"
        run = self.start(sys.executable, "-c", PROGRAM % {"prepare": text, "output": "    pass"}, self.directory,
                         tempfile.mkdtemp(dir=current().dir), "sync", options=("--commit=external",), pipe_in=True)
        self.assertEqual(run.popen.stdout.readline(), "ENOSYS ENOSYS\n", run.tail())
