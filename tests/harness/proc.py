"""A child process: logged, bound to the life of the harness, ended only by its own pid."""
import glob
import os
import signal
import subprocess

from harness.run import HarnessError, wait_until


class Proc:
    """`argv` run with stdout and stderr in `log` (appended). `netns` is entered first when given.
    With `pipe_out` stdout is a pipe (self.popen.stdout, text) and only stderr goes to the log."""

    def __init__(self, argv, log, netns=None, env=None, cwd=None, pipe_in=False, pipe_out=False):
        self.argv = [str(a) for a in argv]
        self.log = log
        # exec chain, one pid from beginning to end; SIGKILL when the harness dies.
        chain = ["setpriv", "--pdeathsig", "KILL"]
        if netns:
            chain += ["nsenter", "--net=/run/netns/" + netns]
        with open(log, "ab") as out:
            out.write(("# %s\n" % " ".join(self.argv)).encode())
            out.flush()
            self.popen = subprocess.Popen(
                chain + self.argv, stderr=out, env=env, cwd=cwd, start_new_session=True, bufsize=1, text=True,
                stdout=subprocess.PIPE if pipe_out else out,
                stdin=subprocess.PIPE if pipe_in else subprocess.DEVNULL)
        self.pid = self.popen.pid

    def alive(self):
        return self.popen.poll() is None

    def signal(self, number):
        if self.alive():
            self.popen.send_signal(number)

    def kill(self):
        """SIGKILL and reap. After it the process's descriptors and locks are gone."""
        self.signal(signal.SIGKILL)
        self.wait(30)

    def terminate(self, timeout_s=30):
        """SIGTERM, then the exit status; an error when it does not end by itself."""
        self.signal(signal.SIGTERM)
        return self.wait(timeout_s)

    def stop(self):
        """SIGSTOP; returns when the process really stands still."""
        self.signal(signal.SIGSTOP)
        wait_until(lambda: _state("/proc/%d/stat" % self.pid) in "TZX", 10, "pid %d does not stop" % self.pid)

    def cont(self):
        self.signal(signal.SIGCONT)

    def wait(self, timeout_s):
        try:
            return self.popen.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise HarnessError("pid %d (%s) did not end in %d s; log:\n%s" % (
                self.pid, self.argv[0], timeout_s, self.tail())) from None

    def threads(self, state):
        """How many of its threads are in that state (a letter, proc_pid_stat(5))."""
        return [_state(path) for path in glob.glob("/proc/%d/task/*/stat" % self.pid)].count(state)

    def tail(self, lines=40):
        """The last lines of the log, for error messages."""
        return tail(self.log, lines)


def _state(path):
    """Of the process or thread whose proc_pid_stat(5) that is; X when it is gone."""
    try:
        with open(path) as f:
            return f.read().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return "X"


def attach_strace(pid, calls, log, inject="", paths=()):
    """A Proc: strace of `calls` ("write,fsync") of process `pid`, which writes them with their paths to `log`. `inject`: what
    is done to each, "error=EIO:when=3" for example. With `paths` calls on these files only. Every thread is traced when this
    returns."""
    options = ["-e", "inject=%s:%s" % (calls, inject)] if inject else []
    options += [word for path in paths for word in ("-P", path)]
    tracer = Proc(["strace", "-f", "-qq", "-y", "-o", log, "-e", "trace=" + calls, *options, "--attach=%d" % pid],
                  log + ".log")
    try:
        wait_until(lambda: all(_traced(pid, thread) for thread in os.listdir("/proc/%d/task" % pid)), 30,
                   lambda: "strace does not attach to %d:\n%s" % (pid, tracer.tail()))
    except BaseException:
        tracer.kill()
        raise
    return tracer


def _traced(pid, thread):
    try:
        with open("/proc/%d/task/%s/status" % (pid, thread)) as f:
            return "\nTracerPid:\t0\n" not in f.read()
    except (FileNotFoundError, ProcessLookupError):  # it has ended
        return True


def tail(path, lines=40):
    try:
        with open(path, "rb") as f:
            f.seek(max(0, os.fstat(f.fileno()).st_size - 200 * lines))
            return "\n".join(f.read().decode(errors="replace").splitlines()[-lines:])
    except FileNotFoundError:
        return "(no log)"
