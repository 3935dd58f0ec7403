"""A child process: logged, bound to the life of the harness, ended only by its own pid."""
import contextlib
import glob
import os
import signal
import subprocess

from harness.run import NotInTime, wait_until


# Nothing in the tests sends these to a process: it crashed.
_CRASHES = [-number for number in (signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGSEGV)]
_started = []


def take_crashed():
    """Returns those of the processes that crashed since the last call, and forgets all that have
    ended."""
    crashed = [proc for proc in _started if proc.popen.poll() in _CRASHES]
    _started[:] = [proc for proc in _started if proc.alive()]
    return crashed


class Proc:
    """Runs `argv` with stdout and stderr in `log` (appended). Enters `netns` first when it is
    given. With `pipe_out` stdout is a pipe (self.popen.stdout, text) and only stderr goes to the
    log. With `group` kill() kills its children too, as far as they are in its process group."""

    def __init__(self, argv, log, netns=None, env=None, cwd=None, pipe_in=False, pipe_out=False, group=False):
        self.argv = [str(a) for a in argv]
        self._group = group
        self.log = log
        # A chain of execs keeps one pid from beginning to end; SIGKILL when the harness dies.
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
        _started.append(self)

    def alive(self):
        return self.popen.poll() is None

    def signal(self, number):
        if self.alive():
            self.popen.send_signal(number)

    def kill(self):
        """Kills and reaps the process. Afterwards its descriptors and locks are released."""
        if self._group:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)
        self.signal(signal.SIGKILL)
        self.wait(30)

    def kill_group(self):
        """Kills and reaps the process, and kills all of its process group."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self.kill()

    def kill_tree(self):
        """Kills the process and all that descend from it, in whatever session they are, and reaps
        it. Each is stopped first, so that none makes another one meanwhile."""
        stopped = []
        found = [self.pid] if self.alive() else []
        while found:
            for pid in found:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGSTOP)
            wait_until(lambda found=found: all(_state("/proc/%d/stat" % pid) in "TZX" for pid in found), 10,
                       "processes do not stop")
            stopped += found
            found = [child for pid in stopped for child in _children(pid) if child not in stopped]
        for pid in stopped:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.kill()
        wait_until(lambda: all(_state("/proc/%d/stat" % pid) in "ZX" for pid in stopped), 30, "the processes do not end")

    def terminate(self, timeout_s=30):
        """Sends SIGTERM and returns the exit status; raises when the process does not end on its
        own."""
        self.signal(signal.SIGTERM)
        return self.wait(timeout_s)

    def stop(self):
        """Sends SIGSTOP; returns when the process has really stopped."""
        self.signal(signal.SIGSTOP)
        wait_until(lambda: _state("/proc/%d/stat" % self.pid) in "TZX", 10, "pid %d does not stop" % self.pid)

    def cont(self):
        self.signal(signal.SIGCONT)

    def wait(self, timeout_s):
        try:
            return self.popen.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise NotInTime("pid %d (%s) did not end in %d s; log:\n%s" % (
                self.pid, self.argv[0], timeout_s, self.tail())) from None

    def threads(self, state):
        """Returns how many of its threads are in that state (a letter, proc_pid_stat(5))."""
        return [_state(path) for path in glob.glob("/proc/%d/task/*/stat" % self.pid)].count(state)

    def tail(self, lines=40):
        """Returns the last lines of the log, for error messages."""
        return tail(self.log, lines)


def _children(pid):
    """Returns the ids of the processes that any thread of `pid` has made."""
    found = []
    for path in glob.glob("/proc/%d/task/*/children" % pid):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError), open(path) as f:
            found += map(int, f.read().split())
    return found


def _state(path):
    """Returns the state letter of /proc/PID/stat, or "X" if the process or thread has gone."""
    try:
        with open(path) as f:
            return f.read().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return "X"


def attach_strace(pid, calls, log, inject="", paths=(), thread=None):
    """Starts strace of `calls` ("write,fsync") of process `pid`; returns its Proc. strace writes
    the calls with their paths to `log`. `inject` applies to each call, "error=EIO:when=3" for
    example. With `paths` only calls on these files count. Every thread is traced when this
    returns, or with `thread` only that one."""
    options = ["-e", "inject=%s:%s" % (calls, inject)] if inject else []
    options += [word for path in paths for word in ("-P", path)]
    options += ["--attach=%d" % thread] if thread else ["-f", "--attach=%d" % pid]
    tracer = Proc(["strace", "-qq", "-y", "-o", log, "-e", "trace=" + calls, *options], log + ".log")
    threads = [str(thread)] if thread else None
    try:
        wait_until(lambda: all(_traced(pid, each) for each in threads or os.listdir("/proc/%d/task" % pid)), 30,
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
