"""The cost of a round beside time: CPU time and context switches of groups of processes, and system
calls."""
import os
import signal
import subprocess

from bench.quiet import cpu_times

TICK_US = 1e6 / os.sysconf("SC_CLK_TCK")


def _tasks(pid):
    try:
        return os.listdir("/proc/%d/task" % pid)
    except FileNotFoundError:
        return []


def _cpu_ns(pid, task):
    try:
        with open("/proc/%d/task/%s/schedstat" % (pid, task)) as f:
            return int(f.read().split()[0])
    except (FileNotFoundError, ProcessLookupError):  # it has ended, before or after it was opened
        return 0


def _switches(pid, task):
    try:
        with open("/proc/%d/task/%s/status" % (pid, task)) as f:
            return sum(int(line.split()[1]) for line in f if "ctxt_switches" in line)
    except (FileNotFoundError, ProcessLookupError):  # it has ended, before or after it was opened
        return 0


class Counters:
    """Counters of `groups`: {name: [pid, ...]}. start() before a round; stop(operations) after it
    returns {figure: value}, each per operation: cpu_us and switches of every group, and the whole
    system's CPU time."""

    def __init__(self, groups):
        self.groups = groups
        self._before = None

    def _read(self):
        read = {}
        for name, pids in self.groups.items():
            tasks = [(pid, task) for pid in pids for task in _tasks(pid)]
            read[name] = (sum(_cpu_ns(*t) for t in tasks), sum(_switches(*t) for t in tasks))
        return cpu_times()[0], read

    def start(self):
        self._before = self._read()

    def stop(self, operations):
        busy, after = self._read()
        busy_before, before = self._before
        per_operation = 1 / max(1, operations)
        figures = {"cpu_us_system": (busy - busy_before) * TICK_US * per_operation}
        for name, (cpu_ns, switches) in after.items():
            figures["cpu_us_" + name] = (cpu_ns - before[name][0]) / 1000 * per_operation
            figures["switches_" + name] = (switches - before[name][1]) * per_operation
        return {name: round(value, 3) for name, value in figures.items()}


class SystemCalls:
    """Counts the system calls of the groups during a round of its own (counting costs time), with
    perf. stop(operations) returns {"calls_<group>": per operation}. If perf cannot count, it
    returns nothing, and `problem` has the reason."""

    def __init__(self, groups):
        self.groups = {name: pids for name, pids in groups.items() if pids}
        self.problem = ""
        self._perf = {}

    def start(self):
        for name, pids in self.groups.items():
            try:
                self._perf[name] = _Perf(pids)
            except FileNotFoundError:
                self.problem = "perf is not installed (apt-get install linux-perf)"
                return
        for perf in self._perf.values():
            self.problem = self.problem or perf.command("enable")

    def stop(self, operations):
        figures = {}
        for name, perf in self._perf.items():
            self.problem = self.problem or perf.command("disable")
            count, said = perf.end()
            if count is None:
                self.problem = self.problem or said
            else:
                figures["calls_" + name] = round(count / max(1, operations), 3)
        self._perf = {}
        return {} if self.problem else figures


class _Perf:
    """One `perf stat` that counts on command."""

    def __init__(self, pids):
        control_out, self._control = os.pipe()
        self._ack, ack_in = os.pipe()
        argv = ["perf", "stat", "-x,", "-e", "raw_syscalls:sys_enter", "-D", "-1",
                "--control", "fd:%d,%d" % (control_out, ack_in), "-p", ",".join(str(p) for p in pids)]
        try:
            self._popen = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                           stderr=subprocess.PIPE, text=True, pass_fds=(control_out, ack_in))
        finally:
            os.close(control_out)
            os.close(ack_in)

    def command(self, word):
        """Sends a command and waits for the answer; returns an error text, or ""."""
        try:
            os.write(self._control, word.encode() + b"\n")
        except BrokenPipeError:
            return "perf ended"
        return "" if os.read(self._ack, 16) else "perf ended"

    def end(self):
        """Ends perf; returns (count, "") or (None, perf's output)."""
        self._popen.send_signal(signal.SIGINT)
        said = self._popen.communicate(timeout=30)[1]
        os.close(self._control)
        os.close(self._ack)
        counts = [line.split(",")[0] for line in said.splitlines() if "raw_syscalls" in line]
        if counts and counts[0].isdigit():
            return int(counts[0]), ""
        return None, "perf does not count system calls here: " + " ".join(said.split())[:200]
