"""Decides whether the machine is quiet enough to measure on. From /proc/stat: the load of other
programs, and the time that a hypervisor takes."""
import time

from harness.run import HarnessError

# Shares of all CPU time. Above them a percentile reflects the neighbours more than the program.
MAX_BUSY = 0.10
MAX_STEAL = 0.02
WINDOW_S = 1.0
QUIET_WINDOWS = 3  # in a row


class NotQuiet(HarnessError):
    """The machine did not become quiet within the bound."""


def cpu_times():
    """Returns (busy, stolen, all) of all CPUs, in clock ticks since boot."""
    with open("/proc/stat") as f:
        fields = [int(x) for x in f.readline().split()[1:9]]
    user, nice, system, idle, iowait, irq, softirq, steal = fields
    return user + nice + system + irq + softirq, steal, sum(fields)


def shares(before, after):
    """Returns (busy, stolen) as shares of the time between two readings."""
    passed = max(1, after[2] - before[2])
    return (after[0] - before[0]) / passed, (after[1] - before[1]) / passed


def wait_quiet(timeout_s, own=0.0):
    """Returns when the machine was quiet for some seconds. Raises NotQuiet, with the shares, when
    it was not within `timeout_s`. `own`: the share of the CPUs that the measured programs may take
    while they idle."""
    end = time.monotonic() + timeout_s
    quiet = 0
    while quiet < QUIET_WINDOWS:
        before = cpu_times()
        time.sleep(WINDOW_S)
        busy, stolen = shares(before, cpu_times())
        quiet = quiet + 1 if busy <= MAX_BUSY + own and stolen <= MAX_STEAL else 0
        if quiet == 0 and time.monotonic() > end:
            raise NotQuiet("the machine is not quiet after %d s: %.0f%% of the CPUs busy, %.0f%% stolen "
                           "(at most %.0f%% and %.0f%%); --no-wait measures anyway" % (
                               timeout_s, 100 * busy, 100 * stolen, 100 * (MAX_BUSY + own), 100 * MAX_STEAL))
