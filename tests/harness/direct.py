"""A test on a direct volume: programs under salius-run, their summary of syncs, and power cuts."""
import contextlib
import os
import re
import signal
import subprocess
import sys
from typing import NamedTuple

from harness.case import Case
from harness.keys import Keys
from harness.proc import Proc
from harness.run import HarnessError, current, wait_until
from harness.volume import in_netns

# Writes its n-th block of 512 bytes at slot n mod 64 of the file, and prints n when the write has
# returned. Ends with the errno of a write.
WRITER = """
import os, sys
fd = os.open(sys.argv[1], os.O_CREAT | os.O_RDWR | os.O_SYNC, 0o600)
n = 0
while True:
    n += 1
    try:
        os.pwrite(fd, b"%512d" % n, n % 64 * 512)
    except OSError as error:
        print("errno %d" % error.errno, flush=True)
        sys.exit(3)
    print(n, flush=True)
"""


class Stats(NamedTuple):
    """The summary of `salius-run --stats`."""
    syncs: int
    real: int  # of them, those that were a real fsync(2)
    records: int
    reasons: dict  # of the real ones; one may have several

    @property
    def logged(self):
        """The syncs that waited for the replicas alone."""
        return self.syncs - self.real


def read_stats(text):
    """Reads the last summary in the standard error of salius-run."""
    found = list(re.finditer(r"^salius-run: (\d+) syncs, (\d+) of them by fsync\(2\); (\d+) records, \d+ bytes$", text,
                             re.MULTILINE))
    if not found:
        raise HarnessError("no summary of --stats in:\n" + text)
    reasons = re.findall(r"^salius-run:   (\d+) because of: (.+)$", text[found[-1].end():], re.MULTILINE)
    return Stats(*map(int, found[-1].groups()), {name: int(count) for count, name in reasons})


def whole_lines(text):
    """Returns the lines of a killed program's output. The last one may have been cut."""
    return text.rpartition("\n")[0].splitlines()


class DirectCase(Case):
    """A direct volume of two replicas, both of which must acknowledge, in self.directory.

    A run is a process group and a PID namespace of its own: what a command leaves behind, in
    whatever session, ends with it."""

    _serial = 0
    LOG_MAX, MEMORY, SIZE_MB = "16MiB", "64MiB", 512
    DELTA = "500ms"
    USER = None  # the owner of the volume and the user of the runs; None: root
    KEYS = False  # replicas and primary have keys

    def setUp(self):
        super().setUp()
        self.rig_ = self.rig(m=2, acks=2, memory=self.MEMORY, size_mb=self.SIZE_MB, user=self.USER, image=self.image(),
                             keys=Keys() if self.KEYS else None,
                             init_options=("--direct", "--log-max", self.LOG_MAX, "--delta", self.DELTA))
        self.directory = self.rig_.backing
        DirectCase._serial += 1
        self.log = os.path.join(current().dir, "run%d.log" % DirectCase._serial)

    def image(self):
        """Returns the disk of the volume; None: a new ext4."""
        return None

    def path(self, *names):
        return os.path.join(self.directory, *names)

    def words(self, *command, options=()):
        volume = self.rig_.volume
        return [*volume.as_user, volume.program("salius-run"), *volume.trust_words(), "--direct",
                self.directory, *options, "--", *command]

    # ---- runs

    def start(self, *command, options=(), pipe_in=False, env=None):
        """Starts a run, whose standard output is a pipe and whose errors go to self.log."""
        proc = Proc(self.words(*command, options=options), self.log, netns=self.rig_.net.primary, pipe_in=pipe_in,
                    pipe_out=True, env=env)
        self.addCleanup(self.end, proc)
        return proc

    def start_contained(self, *command, options=(), pipe_in=False, env=None):
        """The same for a command whose processes leave the process group."""
        proc = Proc([*in_netns(self.rig_.net.primary), "unshare", "--pid", "--fork", "--kill-child", "--",
                     *self.words(*command, options=options)], self.log, pipe_in=pipe_in, pipe_out=True, env=env)
        self.addCleanup(self.end, proc)
        return proc

    @classmethod
    def end(cls, proc):
        cls.kill_all(proc)
        for pipe in (proc.popen.stdin, proc.popen.stdout):
            if pipe:
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()

    @staticmethod
    def first_of(proc):
        """Returns the first process in the namespace of start_contained, or 0 if it has ended."""
        with contextlib.suppress(FileNotFoundError), open("/proc/%d/task/%d/children" % (proc.pid, proc.pid)) as f:
            return int((f.read().split() or [0])[0])
        return 0

    @classmethod
    def kill_all(cls, proc):
        """Kills the run and the processes of its command: those of its process group, and of its
        PID namespace if it has one."""
        first = cls.first_of(proc) if proc.argv[0] == "nsenter" else 0
        if first:
            # When the namespace's first process has ended, so have all; unshare waits for it.
            with contextlib.suppress(ProcessLookupError):
                os.kill(first, signal.SIGKILL)
            proc.wait(30)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(proc.pid, signal.SIGKILL)
        proc.kill()

    def run_once(self, *command, options=(), timeout=60, input=None, env=None):
        """Runs to the end; returns CompletedProcess with text."""
        stdin = {"stdin": subprocess.DEVNULL} if input is None else {"input": input}
        return subprocess.run([*in_netns(self.rig_.net.primary), *self.words(*command, options=options)],
                              capture_output=True, text=True, timeout=timeout, env=env, **stdin)

    def writer(self, name="f"):
        """Starts WRITER on that file. Returns its Proc and the first number that it acknowledged."""
        proc = self.start(sys.executable, "-c", WRITER, self.path(name))
        return proc, self.numbers(proc, 1)[0]

    @staticmethod
    def numbers(proc, count):
        """Reads `count` acknowledged numbers."""
        lines = [proc.popen.stdout.readline() for _ in range(count)]
        return [int(line) for line in lines]

    # ---- the volume

    def status(self):
        """Returns {field: text} of the volume's status."""
        text = self.rig_.volume.run("salius", "status", self.directory).stdout
        return dict(line.split(":", 1) for line in text.splitlines() if ":" in line and not line.startswith(" "))

    def wait_mode(self, mode):
        wait_until(lambda: self.status().get("mode", "").strip().startswith(mode), 30,
                   lambda: "not in mode %s: %s" % (mode, self.status()))

    def cut(self, proc, lose_replica=False, also=lambda: None):
        """Does as cut_lines. Returns the last number that the program had acknowledged, if it
        printed any."""
        rest = [line for line in self.cut_lines(proc, lose_replica, also) if line.isdigit()]
        return int(rest[-1]) if rest else None

    def cut_lines(self, proc, lose_replica=False, also=lambda: None):
        """Cuts the power while the program runs: `also` kills what is not of the run. Recovers the
        volume. Returns the lines that the program had printed and that were not read."""
        self.rig_.image.kill_users()
        self.rig_.image.shutdown()
        if lose_replica:
            self.rig_.replicas[1].kill()
        self.kill_all(proc)
        also()
        rest = whole_lines(proc.popen.stdout.read())
        self.rig_.image.umount()
        self.rig_.image.mount()
        done = self.rig_.volume.recover()
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return rest
