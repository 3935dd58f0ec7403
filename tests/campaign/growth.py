"""Judges whether processes grow: resident memory, descriptors, threads, each within the life of one
process.

The figures of a process that has ended say nothing about its successor. So only a life nearly as
long as the judged time is compared. A process that must have such a life and has none fails as if
it had grown.
"""
import os
import statistics
from collections import namedtuple

GROWTH = 1.05  # resident memory
MORE = 8  # descriptors; threads
WHOLE = 0.8  # of the judged time: the least length of a life

# `at`: seconds since the beginning. `memory`: the process's own resident KiB, without shared
# memory. A replica's arena, which is locked and always resident, would hide growth beside it.
Sample = namedtuple("Sample", "at memory descriptors threads")


def sample(pid, at):
    with open("/proc/%d/status" % pid) as f:
        fields = dict(line.split(":", 1) for line in f)
    own = sum(int(fields[name].split()[0]) for name in ("RssAnon", "RssFile"))
    return Sample(at, own, len(os.listdir("/proc/%d/fd" % pid)), int(fields["Threads"]))


class Lives:
    """Samples of named processes, by the life to which they belong."""

    def __init__(self):
        self._lives = {}  # name: {pid: [Sample]}

    def add(self, name, pid, at):
        self.put(name, pid, sample(pid, at))

    def put(self, name, pid, taken):
        self._lives.setdefault(name, {}).setdefault(pid, []).append(taken)

    def last(self):
        """Returns {name: its memory}."""
        return {name: list(lives.values())[-1][-1].memory for name, lives in self._lives.items()}

    def judge(self, length, whole):
        """Returns (a line for each name, the lines of those that grew) over `length` seconds.
        `whole`: names that must have lived through it."""
        lines, bad = [], []
        for name, lives in self._lives.items():
            longest = max(lives.values(), key=lambda samples: samples[-1].at - samples[0].at)
            lived = longest[-1].at - longest[0].at
            line = "%s: %d processes, one for %.0f of %.0f s" % (name, len(lives), lived, length)
            if lived >= length * WHOLE:
                text, grown = _compare(longest)
                line += ": " + text
                bad += [line] if grown else []
            elif name in whole:
                bad.append(line)
            lines.append(line)
        bad += ["%s: never seen" % name for name in whole if name not in self._lives]
        return lines, bad


def _compare(samples):
    """Compares the second fifth of a life with its last; returns text, and whether it grew. In the
    first fifth caches and pools fill."""
    start, length = samples[0].at, samples[-1].at - samples[0].at or 1
    early = [s for s in samples if 0.2 <= (s.at - start) / length < 0.4] or samples[:1]
    late = [s for s in samples if (s.at - start) / length >= 0.8]
    before, after = (Sample(*map(statistics.median, zip(*part))) for part in (early, late))
    grown = (after.memory > before.memory * GROWTH or after.descriptors > before.descriptors + MORE or
             after.threads > before.threads + MORE)
    return "%d KiB, then %d KiB (%+.1f %%); %d descriptors, then %d; %d threads, then %d; %d samples" % (
        before.memory, after.memory, (after.memory / before.memory - 1) * 100, before.descriptors, after.descriptors,
        before.threads, after.threads, len(samples)), grown
