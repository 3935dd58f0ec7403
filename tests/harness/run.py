"""One run of the harness: its id, its work directory, its clean-up, and the waiting primitive.

Invariants:
- Everything the run makes lies in its own mount and PID namespace or in its work directory. So even
  SIGKILL of the harness leaves only that directory. The next run removes it (it takes the lock that
  a live run holds).
- Clean-ups run in reverse order, all of them, also when a test failed. A clean-up that failed is
  reported and fails the run.
- No test sleeps: `wait_until` polls a condition and fails loudly at its bound.
"""
import contextlib
import fcntl
import os
import secrets
import shutil
import subprocess
import sys
import tempfile
import time

NAMESPACE_MARK = "SALIUS_HARNESS_NAMESPACE"
PREFIX = "salius-test-"
REPO = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


class HarnessError(Exception):
    """The harness itself, or a program that it needs, failed."""


class NotInTime(HarnessError):
    """A condition was not met within its time: a fault, or the machine is too busy."""


def sh(*args, check=True, input=None, env=None, timeout=120):
    """Runs a command to its end; returns CompletedProcess with text output."""
    done = subprocess.run([str(a) for a in args], input=input, env=env, timeout=timeout, text=True,
                          stdin=subprocess.DEVNULL if input is None else None,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    if check and done.returncode != 0:
        raise HarnessError("%s: exit %d\n%s%s" % (" ".join(map(str, args)), done.returncode,
                                                  done.stdout, done.stderr))
    return done


def wait_until(condition, timeout_s, what, interval_s=0.005):
    """Polls `condition` until it gives a true value, and returns that. `what` is text, or a
    callable that describes the last state for the error."""
    end = time.monotonic() + timeout_s
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > end:
            raise NotInTime("not within %.1f s: %s" % (timeout_s, what() if callable(what) else what))
        time.sleep(interval_s)


def enter_namespaces(argv):
    """Re-executes the harness in private mount and PID namespaces. When the last process of the PID
    namespace ends, the kernel kills the rest and drops every mount."""
    if os.environ.get(NAMESPACE_MARK):
        return
    if os.geteuid() != 0:
        sys.exit("the fault and application tests need root (loop devices, mounts, namespaces): run as root")
    if not os.path.exists("/dev/fuse"):
        sys.exit("/dev/fuse is missing: load the fuse module (modprobe fuse), or start the container with it")
    env = dict(os.environ, **{NAMESPACE_MARK: "1"})
    if "SALIUS_BIN" not in env:
        env["SALIUS_BIN"] = _built()
    os.execvpe("unshare", ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc",
                           "--propagation", "private"] + argv, env)


def _built():
    """Returns the output directory of `bazel build -c opt`; the link bazel-bin points to the last
    build."""
    done = subprocess.run(["bazel", "info", "-c", "opt", "bazel-bin"], cwd=REPO, stdout=subprocess.PIPE,
                          stderr=subprocess.DEVNULL, text=True)
    return done.stdout.strip() if done.returncode == 0 else os.path.join(REPO, "bazel-bin")


class Run:
    """The one run of this process. `base` is where images live (env SALIUS_TEST_DIR)."""

    def __init__(self, seed, long_run, journal):
        self.id = "sl" + secrets.token_hex(3)
        self.seed = seed
        self.long_run = long_run
        self.journal = journal
        self._stack = contextlib.ExitStack()
        self.loops = set()  # loop devices in use, which no namespace removes at its end
        base = os.environ.get("SALIUS_TEST_DIR", "/var/tmp")
        self.dir = os.path.join(base, PREFIX + self.id)
        # One run at a time: another that begins now must not sweep a directory with no lock yet.
        all_runs = os.open(base, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        fcntl.flock(all_runs, fcntl.LOCK_EX)
        self._sweep(base)
        os.mkdir(self.dir, 0o755)
        self._lock = os.open(os.path.join(self.dir, "lock"), os.O_CREAT | os.O_RDWR | os.O_CLOEXEC)
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        os.close(all_runs)
        # umount(8) keeps notes of mounts in /run/mount; the run's notes belong to the run.
        for path in ("/run/netns", "/run/salius", "/run/salius-replica", "/run/user", "/run/mount", "/dev/shm"):
            os.makedirs(path, exist_ok=True)
            mode = "mode=755" if path == "/run/salius-replica" else "mode=1777"
            sh("mount", "-t", "tmpfs", "-o", mode, self.id, path)

    @staticmethod
    def _sweep(base):
        """Removes work directories of runs that are no longer alive."""
        for name in os.listdir(base):
            path = os.path.join(base, name)
            if not name.startswith(PREFIX):
                continue
            try:
                fd = os.open(os.path.join(path, "lock"), os.O_RDWR)
            except OSError:
                continue
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                Run._remove(path)
            except BlockingIOError:
                pass
            finally:
                os.close(fd)

    def close(self):
        self._remove(self.dir)
        # Loop devices over images on the run's own tmpfs: their paths mean nothing outside it.
        for loop in self.loops:
            sh("losetup", "-d", loop, check=False)
        os.close(self._lock)

    @staticmethod
    def _remove(path):
        """Removes a run's directory. First it detaches mounts that an interrupted test left: a
        removal must not walk into them, and a FUSE mount with a hung daemon would keep the
        directory for ever. Then it detaches the loop devices over its images."""
        with open("/proc/self/mountinfo") as f:
            left = [line.split()[4] for line in f]
        for point in reversed(left):
            if point.startswith(path + "/"):
                sh("umount", "-l", point, check=False)
        for line in sh("losetup", "--list", "--noheadings", "--output", "NAME,BACK-FILE").stdout.splitlines():
            name, _, file = line.partition(" ")
            if file.strip().startswith(path + "/"):
                sh("losetup", "-d", name, check=False)
        shutil.rmtree(path, ignore_errors=True)


_current = None


def start(seed, long_run, journal):
    """Makes the process's run; call it once."""
    global _current
    _current = Run(seed, long_run, journal)
    from harness import sbin  # sbin needs the run
    sbin.hide_installed()
    return _current


def current():
    return _current


def scratch(name):
    """Returns the path `name` in a new directory of the run: a test that runs once more finds nothing
    there."""
    folder = tempfile.mkdtemp(dir=_current.dir)
    os.chmod(folder, 0o755)
    return os.path.join(folder, name)


def binary(name):
    """Returns the path of a built binary, below SALIUS_BIN or, without it, Bazel's output
    directory."""
    root = os.environ.get("SALIUS_BIN") or _built()
    places = {"salius-replica": "replica", "salius-mount": "client/mount", "salius-recover": "recovery",
              "salius": "client/cli", "kill_at": "tests/crash", "disk_model_fs": "tests/bench/disk_model",
              "disk_figures": "tests/bench/disk_model", "differential": "tests/differential", "salius-run": "client/run",
              "libsalius_preload.so": "client/preload", "libsalius.so": "client/api"}
    for path in (os.path.join(root, places[name], name), os.path.join(root, name)):
        if os.access(path, os.X_OK):
            return path
    raise HarnessError("%s is not built under %s: bazel build -c opt //..." % (name, root))


def program_for_users(name):
    """Returns a copy of a built program that every user can execute: the build's own output may lie
    in a home directory."""
    folder = os.path.join(current().dir, "programs")
    os.makedirs(folder, exist_ok=True)
    for each in (name, "libsalius_preload.so"):
        if not os.path.exists(os.path.join(folder, each)):
            shutil.copy(binary(each), os.path.join(folder, each))
    return os.path.join(folder, name)
