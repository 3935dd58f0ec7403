"""Rounds of several subjects in turn, begun only on a quiet machine, and the medians of figures."""
import statistics
import sys
from dataclasses import dataclass, field

from bench.counters import Counters, SystemCalls
from bench.quiet import cpu_times, shares, wait_quiet

MAX_STOLEN = 0.02
QUIET_BOUND_S = 180


@dataclass
class Subject:
    """A subject of measurement: a driver, and the processes that work for it, by group."""
    name: str
    driver: object
    groups: dict = field(default_factory=dict)
    rounds: list = field(default_factory=list)
    calls: dict = field(default_factory=dict)

    def all_groups(self):
        return {"writer": [self.driver.pid], **self.groups}

    def median(self):
        names = self.rounds[0].keys()
        return {**{name: statistics.median(r[name] for r in self.rounds) for name in names}, **self.calls}


def measure(subjects, rounds, seconds, wait=True, count_calls=True, own=0.0):
    """Fills in the subjects' rounds: one of each in turn, each time beginning with another. Repeats
    a round in which a hypervisor took CPU time, twice at most, and then marks it as disturbed
    (figure "stolen"). `own`: as in wait_quiet."""
    for first in range(rounds):
        if wait:
            wait_quiet(QUIET_BOUND_S, own)
        first %= len(subjects)
        for subject in (*subjects[first:], *subjects[:first]):
            for _ in range(3):
                figures = _round(subject, seconds)
                if not wait or figures["stolen"] <= MAX_STOLEN:
                    break
            subject.rounds.append(figures)
    for subject in subjects if count_calls else ():
        calls = SystemCalls(subject.all_groups())
        calls.start()
        operations = subject.driver.round(min(seconds, 0.5))["operations"]
        subject.calls = calls.stop(operations)
        if calls.problem:
            print("system calls are not counted: " + calls.problem, file=sys.stderr)


def _round(subject, seconds):
    counters = Counters(subject.groups)  # the driver counts its own: its writers end with the round
    before = cpu_times()
    counters.start()
    figures = subject.driver.round(seconds)
    figures.update(counters.stop(figures["operations"]))
    figures["stolen"] = round(shares(before, cpu_times())[1], 4)
    return figures


COLUMNS = (("ops_per_second", "ops/s", "%9.0f"), ("p50_us", "p50 us", "%9.1f"), ("p99_us", "p99 us", "%9.1f"),
           ("p999_us", "p99.9 us", "%9.1f"), ("cpu_us_system", "CPU us", "%8.1f"),
           ("cpu_us_writer", "writers", "%8.1f"), ("cpu_us_primary", "primary", "%8.1f"), ("cpu_us_replica", "replicas", "%8.1f"),
           ("calls_primary", "calls", "%7.1f"), ("switches_primary", "switches", "%8.1f"))


def table(subjects, base):
    """Returns lines of text: the medians, and each latency as a multiple of the subject named
    `base`."""
    head = "%-22s" % "" + " ".join("%9s" % title for _, title, _ in COLUMNS) + "   ratio"
    lines = [head]
    medians = {s.name: s.median() for s in subjects}
    for name, median in medians.items():
        cells = " ".join("%9s" % (form % median[key]).strip() if key in median else "%9s" % "-"
                         for key, _, form in COLUMNS)
        ratio = median["p50_us"] / medians[base]["p50_us"] if base in medians else float("nan")
        lines.append("%-22s%s %7.2f" % (name, cells, ratio))
    return lines
