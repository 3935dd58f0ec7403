"""Rows of a paper's table: works, their seconds on each ground, and bars."""
import os
import statistics
from dataclasses import dataclass, field

from bench import bars
from bench.report import pyplot_or_none


@dataclass
class Bar:
    """`value` is a function of {ground: seconds}; `sense` one of bars.SENSES."""
    words: str
    sense: str
    limit: float
    value: object


@dataclass
class Work:
    name: str
    # {ground: function that does the work once and returns seconds}
    runs: dict
    bars: list = field(default_factory=list)
    seconds: dict = field(default_factory=dict)
    missing: dict = field(default_factory=dict)  # {ground: why it was not measured}

    def measure(self, rounds):
        """Every ground in turn, `rounds` times; each begins a round once."""
        taken = {name: [] for name in self.runs}
        for first in range(rounds):
            names = list(self.runs)
            first %= len(names)
            for name in (*names[first:], *names[:first]):
                taken[name].append(self.runs[name]())
        self.seconds = {name: statistics.median(each) for name, each in taken.items()}

    def judged(self):
        """Returns [(words, sense, limit, value, met)]."""
        found = []
        for bar in self.bars:
            value = bar.value(self.seconds)
            found.append((bar.words, bar.sense, bar.limit, value, bars.SENSES[bar.sense](value, bar.limit)))
        return found


def ratio(over, under):
    return lambda seconds: seconds[over] / seconds[under]


def lines(works):
    """Returns lines of Markdown: the seconds, then the bars. Nothing for no works."""
    if not works:
        return []
    text = ["| work | ground | seconds |", "|---|---|---|"]
    for work in works:
        text += ["| %s | %s | %.3f |" % (work.name, name, seconds) for name, seconds in work.seconds.items()]
        text += ["| %s | %s | not measured: %s |" % (work.name, name, why) for name, why in work.missing.items()]
    text += ["", "| work | bar | measured | |", "|---|---|---|---|"]
    for work in works:
        text += ["| %s: %s | %s %g | %.3g | %s |" % (work.name, words, sense, limit, value, "met" if met else "**missed**")
                 for words, sense, limit, value, met in work.judged()]
    return text


def plot(works, title, path):
    """Writes a picture of the works' seconds. Returns the file's name, or None without Matplotlib."""
    pyplot = pyplot_or_none()
    if pyplot is None:
        print("skipped: the plot: no python3-matplotlib")
        return None
    figure, panels = pyplot.subplots(1, len(works), figsize=(3.2 * len(works), 4), squeeze=False)
    for axes, work in zip(panels[0], works):
        axes.bar(range(len(work.seconds)), list(work.seconds.values()))
        axes.set_xticks(range(len(work.seconds)), list(work.seconds), rotation=60, ha="right", fontsize=7)
        axes.set_yscale("log")
        axes.set_title(work.name, fontsize=8)
    panels[0][0].set_ylabel("seconds")
    figure.suptitle(title)
    figure.savefig(path, dpi=90, bbox_inches="tight")
    pyplot.close(figure)
    return os.path.basename(path)
