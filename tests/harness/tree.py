"""Stops and continues processes with all their descendants."""
import os
import signal

from harness.run import HarnessError, wait_until

STOP_S = 30  # a system call in progress has to end first


class Stopped:
    """Stops `pids` and all their descendants (SIGSTOP); each has stopped when the constructor
    returns. A pidfd identifies each: a later process with the same number is not mistaken for
    it."""

    def __init__(self, pids):
        self._fds = {}  # pid -> pidfd
        try:
            # Parents first, and again until there is no new one: a stopped process starts nothing.
            while new := [pid for pid in _descendants(pids) if pid not in self._fds]:
                for pid in new:
                    self._stop(pid)
                for pid in new:
                    wait_until(lambda pid=pid: _state(pid) in "TtZX", STOP_S, "pid %d does not stop" % pid)
        except BaseException:
            self.cont()
            raise
        if not self._fds:
            raise HarnessError("there was nothing to stop")

    def _stop(self, pid):
        try:
            self._fds[pid] = os.pidfd_open(pid)
            signal.pidfd_send_signal(self._fds[pid], signal.SIGSTOP)
        except ProcessLookupError:  # it has ended
            self._fds.setdefault(pid, -1)

    def cont(self):
        """Continues them. Idempotent."""
        fds, self._fds = self._fds, {}
        for fd in reversed([fd for fd in fds.values() if fd >= 0]):
            try:
                signal.pidfd_send_signal(fd, signal.SIGCONT)
            except ProcessLookupError:
                pass
            finally:
                os.close(fd)


def _descendants(pids):
    found = []
    for pid in pids:
        found.append(pid)
        try:
            threads = os.listdir("/proc/%d/task" % pid)
            children = []
            for thread in threads:
                with open("/proc/%d/task/%s/children" % (pid, thread)) as f:
                    children += map(int, f.read().split())
        except (FileNotFoundError, ProcessLookupError):
            continue
        found += _descendants(children)
    return found


def _state(pid):
    try:
        with open("/proc/%d/stat" % pid) as f:
            return f.read().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return "X"
