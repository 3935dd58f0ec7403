"""Writes docs/results (tables and plots) from the figures of tests/bench/run.sh all.

usage: python3 -m bench.report [--results DIR] FIGURES
FIGURES is a directory of files that were made together (bench/figures.py). Each table becomes a page of its own, DIR/NAME.md:
a slice of the matrix, floor, slow-disk, recovery, trees, direct, peers, applications-packed, applications-free and bars (bench/bars.py).
README.md is their index. Pages and index are generated whole; no page that people write is touched. The page of something
that was not measured stays as it is, and its name is printed. Exit status: 0; 2, and nothing is written, when the figures are
missing, not complete, not made together, or of a smoke run (a smoke run needs --results). Plots need python3-matplotlib.
"""
import argparse
import os
import statistics
import sys
import textwrap

from bench import bars, direct, disk, trees
from bench.applications import GROUNDS, TIMES
from harness.run import HarnessError

HERE = os.path.dirname(os.path.abspath(__file__))
RESULTS = os.path.join(HERE, "..", "..", "docs", "results")
FLOORS = ("mount floor", "in-process floor", "kept floor", "udp floor", "fuse floor", "passthrough", "local disk")


def figure(point, subject, name):
    """A median, or None when the subject was not measured there."""
    found = point["subjects"].get(subject)
    return None if found is None else found["median"].get(name)


def ratio(point, floor, name):
    ours, theirs = figure(point, "salius", name), figure(point, floor, name)
    return None if not ours or not theirs else ours / theirs


def _cell(value, form="%.1f"):
    return "" if value is None else form % value


def slice_tables(points):
    """Markdown: Salius at each point beside its nearest floor; what it cost whom, and the other floors."""
    measured = [p for p in points if p["subjects"]]
    lines = []
    if measured:
        base = "passthrough" if "passthrough" in measured[0]["subjects"] else "mount floor"
        lines = slice_table(measured, base) + [""] + cost_table(measured, base)
    for p in points:
        if not p["subjects"]:
            lines += ["", *textwrap.wrap("Not measured, %s: %s" % (p["label"], reason(p["failed"])), 100)]
    return lines


def reason(text):
    """One line of an error's: the first, with the last where that only introduces it."""
    lines = text.strip().splitlines()
    return " ".join((lines[0], lines[-1])) if lines[0].endswith(":") and len(lines) > 1 else lines[0]


def cost_table(points, base):
    """Markdown: per operation, of Salius: CPU time of each side, context switches, system calls; and the other floors."""
    others = [name for name in FLOORS if name != base and any(name in p["subjects"] for p in points)]
    rows = [("", "CPU µs: writers", "primary", "replicas", "switches: primary", "replicas", "calls: primary", "replicas",
             base + ": p99.9 µs", "CPU µs",
             *(name + title for name in others for title in (": p50 µs", ": operations/s")))]
    for p in points:
        rows.append((p["label"],
                     *(_cell(figure(p, "salius", n)) for n in (
                         "cpu_us_writer", "cpu_us_primary", "cpu_us_replica", "switches_primary", "switches_replica",
                         "calls_primary", "calls_replica")),
                     *(_cell(figure(p, base, n)) for n in ("p999_us", "cpu_us_system")),
                     *(_cell(figure(p, name, n), form) for name in others
                       for n, form in (("p50_us", "%.1f"), ("ops_per_second", "%.0f")))))
    return markdown(rows)


def slice_table(points, base):
    """Markdown: Salius at each point, and its multiples of the nearest floor."""
    rows = [("", "p50 µs", "p99 µs", "p99.9 µs", "operations/s", "CPU µs", "calls", base + ": p50 µs", "p99 µs",
             "operations/s", "p50 ratio", "p99 ratio", "operations/s ratio")]
    for p in points:
        rows.append((p["label"],
                     *(_cell(figure(p, "salius", n)) for n in ("p50_us", "p99_us", "p999_us")),
                     _cell(figure(p, "salius", "ops_per_second"), "%.0f"),
                     _cell(figure(p, "salius", "cpu_us_system")), _cell(figure(p, "salius", "calls_primary")),
                     *(_cell(figure(p, base, n)) for n in ("p50_us", "p99_us")),
                     _cell(figure(p, base, "ops_per_second"), "%.0f"),
                     *(_cell(ratio(p, base, n), "%.2f") for n in ("p50_us", "p99_us", "ops_per_second"))))
    return markdown(rows)


def markdown(rows):
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    lines.insert(1, "|" + "---|" * len(rows[0]))
    return lines


def peers_table(runs):
    """Markdown: every subject of every run of bench.peers, as a multiple of Salius in that run."""
    rows = [("", "writers", "placed", "p50 µs", "p99 µs", "operations/s", "its p50 / Salius's",
             "Salius's operations/s / its")]
    for run in runs:
        for name in run["subjects"]:
            rows.append((name, str(run["writers"]), run["placement"],
                         *(_cell(figure(run, name, n)) for n in ("p50_us", "p99_us")),
                         _cell(figure(run, name, "ops_per_second"), "%.0f"),
                         _cell(figure(run, name, "p50_us") / figure(run, "salius", "p50_us"), "%.2f"),
                         _cell(figure(run, "salius", "ops_per_second") / figure(run, name, "ops_per_second"), "%.2f")))
        for name, why in {**run["skipped"], **run["failed"]}.items():
            rows.append((name, str(run["writers"]), run["placement"], why.partition("\n")[0].replace("|", "/"), "", "", "", ""))
    return markdown(rows)


def applications_table(run):
    """Markdown: operations a second of each application on its grounds."""
    rows = [("", *GROUNDS.values(), *("%s / local disk" % GROUNDS[ground] for ground in TIMES.values()))]
    for result in run["applications"]:
        if "ops_per_second" not in result:
            rows.append((result["name"], result.get("skipped") or "failed", *[""] * (len(rows[0]) - 2)))
            continue
        if result["unreadable"]:
            rows.append((result["name"], "not everything could be read back", *[""] * (len(rows[0]) - 2)))
            continue
        rows.append((result["name"], *(_cell(result["ops_per_second"][g], "%.0f") for g in GROUNDS),
                     *(_cell(result[name], "%.2f") for name in TIMES)))
    return markdown(rows)


def floor_table(cases):
    """Markdown: the overwrite beside its floors, m of m and free."""
    rows = [("", "mount: p50 µs", "p99 µs", "writes/s", "mount floor: p50 µs", "p99 µs", "writes/s", "UDP floor: p50 µs",
             "local `O_SYNC`: p50 µs", "ratio of p50 (of the starts)", "of p99")]
    for case in cases:
        udp = next(target for name, target in case.items() if name.startswith("floor-udp"))
        cells = [(case[t][f], form) for t in ("path", "floor-mount") for f, form in (
            ("p50_us", "%.1f"), ("p99_us", "%.0f"), ("ops_per_second", "%.0f"))]
        cells += [(udp["p50_us"], "%.1f"), (case["floor-dir"]["p50_us"], "%.1f")]
        starts = case["ratios_p50_us"]
        rows.append(("%d replicas, acks=%d, %s" % (case["m"], case["acks"], "packed" if case["packed"] else "free"),
                     *(form % value for value, form in cells),
                     "%.2f (%.2f to %.2f)" % (case["ratio_p50_us"], min(starts), max(starts)),
                     "%.2f" % case["ratio_p99_us"]))
    return markdown(rows)


def disk_lines(figures):
    """Markdown: the model disk's own figures, where there are some."""
    return ["", *markdown(disk.rows(figures["disk"]))] if "disk" in figures else []


def slow_disk_table(case):
    """Markdown: synchronous writes and SQLite on the slow disk."""
    rows = [("", "writes/s", "p50 µs", "p99 µs", "SQLite, transactions/s")]
    for name, words in (("path", "Salius over the slow disk"), ("floor-dir", "ext4 over the slow disk")):
        rows.append((words, *(_cell(case[name][f], "%.0f") for f in ("ops_per_second", "p50_us", "p99_us")),
                     _cell(case["sqlite"][name])))
    rows.append(("times", "**%.0f**" % case["times"], "", "", "**%.0f**" % case["sqlite_times"]))
    return markdown(rows) + disk_lines(case)


def trees_table(case):
    """Markdown: seconds of each work on every ground, and what one row cannot say."""
    return [*markdown(trees.rows(case)), "", *textwrap.wrap(trees.stores_row(case), 100), "",
            *textwrap.wrap("Waits for replicas in %d times create, write, close, chmod, utimens: %d. Memory of the daemon for "
                           "a cached inode: %.0f bytes, of which %.0f%% are given back when the kernel forgets it." % (
                               case["calls"], case["waits"], case["inode_bytes"], 100 * case["returned"]), 100)]


def direct_table(case):
    """Markdown: every subject, and the bars."""
    rows = [("", "operations/s", "p50, µs", "p99, µs")]
    for title, subjects in direct.tables(case):
        rows.append(("**%s**" % title, "", "", ""))
        rows += [(name, "%.0f" % f["ops_per_second"], "%.1f" % f["p50_us"], "%.1f" % f["p99_us"])
                 for name, f in subjects.items()]
    judged = [("", "bar", "measured", "")] + [
        (words, "%s %g" % (sense, bar), "%.3g" % value, bars.WORDS[bars.SENSES[sense](value, bar)])
        for words, value, sense, bar in direct.judged(case)]
    return [*markdown(rows), "", *textwrap.wrap(direct.rest(case), 100), *disk_lines(case["slow_disk"]), "", *markdown(judged)]


def recovery_table(case):
    """Markdown: every run, and the medians."""
    phases = list(case["runs"][0]["phase_ms"])
    rows = [("", "seconds", "of which CPU of `salius-recover`", *phases, "MiB/s", "plain writes from memory, MiB/s")]
    for n, run in enumerate(case["runs"], 1):
        rows.append((str(n), "%.2f" % run["seconds"], "%.2f" % run["cpu_s"],
                     *("%.2f" % (run["phase_ms"][p] / 1000) for p in phases),
                     "%.0f" % run["mib_per_second"], "%.0f" % run["plain_mib_per_second"]))
    middle = [statistics.median(run[name] for run in case["runs"]) for name in ("mib_per_second", "plain_mib_per_second")]
    return markdown(rows + [("median", "", "", *("" for _ in phases), "**%.0f**" % middle[0],
                              "%.0f: **%.2f** times" % (middle[1], middle[0] / middle[1]))])


def made_text(of):
    """One line for each file: with what it was made."""
    return [*textwrap.wrap("With %s:" % of.words(), 100), "", *("    tests/bench/run.sh %s" % command_of(name, file) for name, file in of.files.items())]


def command_of(name, file):
    """Words after tests/bench/run.sh that repeat it."""
    module = {"bars": ""}.get(file["kind"], file["kind"] + " ")
    return "%s%s   # %s" % (module, file["made"]["command"], name)


# The pages, in the order of the index: title, and what stands in the tables.
PAGES = {
    "bars": ("Bars", "Every bar of [performance](../performance.md#the-bars), with the measured value."),
    "floor": ("The overwrite and its floors",
              "`tests/bench/run.sh floor`: 4 KiB; medians over several starts of the programs."),
    "slow-disk": ("A slow disk", "`tests/bench/run.sh slow-disk`: a file system whose fsync takes 8 ms."),
    "recovery": ("Recovery", "`tests/bench/run.sh recovery`: 1 GiB in 262,144 records; seconds for each phase."),
    "direct": ("Direct volumes", "`tests/bench/run.sh direct`: programs under salius-run, beside the mount and the floors."),
    "trees": ("Trees of small files",
              "`tests/bench/run.sh trees`: 20,000 files; medians of the time beside an empty pass-through."),
    "size": ("Matrix: sizes", "Writes of 512 B to 1 MiB, three replicas, `acks=2`."),
    "writers": ("Matrix: writers", "One to 64 writers, two replicas, `acks=2`."),
    "replicas": ("Matrix: replicas and acknowledgements", "m replicas, `acks=f`; two of two where a row names neither."),
    "multicast": ("Matrix: multicast", "One datagram to a group instead of one to each replica."),
    "pattern": ("Matrix: patterns", "`fsync:K`: K plain writes, then `fdatasync`, are one operation."),
    "network": ("Matrix: networks", "Loopback, and veth cables behind a bridge with MTU 1500 or 9000."),
    "cached": ("Matrix: reads and plain writes", "Beside an empty passthrough."),
    "many-replicas": ("Growth: replicas", "Two to eight replicas, `acks=2`."),
    "idle-volumes": ("Growth: idle volumes", "Other volumes on every replica, which write nothing."),
    "busy-volumes": ("Growth: busy volumes", "Other volumes, whose writers never pause."),
    "open-files": ("Growth: open files", "Other files that are held open in the mount."),
    "log": ("Growth: log", "Records that are in the log already."),
    "peers": ("Other systems", "`tests/bench/run.sh peers`: three copies in memory, in turn with Salius (`acks=2`)."),
    "applications-packed": ("Applications, packed",
                            "`tests/bench/run.sh applications`: operations a second, rows of 1 KiB."),
    "applications-free": ("Applications, free",
                          "`tests/bench/run.sh applications`: operations a second, rows of 1 KiB."),
}
GENERATED = "<!-- Generated by tests/bench/run.sh report. Do not edit. -->"


def notes(name):
    """Lines of what is known beside the figures: the file notes/NAME.md, if there is one."""
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "notes", name + ".md")
    if not os.path.exists(path):
        return []
    with open(path) as f:
        return ["", *f.read().splitlines()]


def page(name, lines, made, plots=()):
    """The text of NAME.md. `made` says with which commit, on what machine and when the figures were made."""
    title, about = PAGES[name]
    links = ["Plots: %s." % ", ".join("[%s](%s)" % (file[:-len(".png")], file) for file in plots), ""] if plots else []
    return "\n".join([GENERATED, "", "# " + title, "", about, "", textwrap.fill("Made with %s." % made, 100), "",
                      *links, *lines, *notes(name), ""])


def index(lines, names):
    """The text of README.md: `lines` of made_text(), and a link to each page in `names`."""
    return "\n".join([GENERATED, "", "# Results of the benchmarks", "",
                      "[Performance](../performance.md) says what is measured and how to read it.", "", *lines, "",
                      *markdown([("page", "what"), *(("[%s](%s.md)" % (PAGES[name][0], name), PAGES[name][1])
                                                      for name in PAGES if name in names)]), ""])


def plots_of(name, directory):
    """Names of the plots of a page that are in the directory."""
    return [file for file in ("%s-packed.png" % name, "%s-free.png" % name)
            if os.path.exists(os.path.join(directory, file))]


def write_pages(directory, tables, made, made_lines):
    """Writes a page for each of `tables` ({name: lines}) and the index; a page that has no new table stays."""
    for name, lines in tables.items():
        with open(os.path.join(directory, name + ".md"), "w") as f:
            f.write(page(name, lines, made, plots_of(name, directory)))
    names = [name for name in PAGES if os.path.exists(os.path.join(directory, name + ".md"))]
    with open(os.path.join(directory, "README.md"), "w") as f:
        f.write(index(made_lines, names))


# Per slice: the value and title of the x axis, and the figures on the y axes; CPU time stands beside them.
PLOTS = {
    "size": (bars.GROWS["size"], "bytes per write", ("p50_us",)),
    "writers": (lambda p: p["writers"], "writers", ("p50_us", "ops_per_second")),
    "replicas": (lambda p: p["m"] + 0.15 * (p["acks"] - 1), "replicas (and a little right for every answer awaited)",
                 ("p50_us",)),
    "many-replicas": (lambda p: p["m"], "replicas", ("p50_us",)),
    "idle-volumes": (lambda p: p["other_volumes"], "other volumes, idle", ("p50_us",)),
    "busy-volumes": (lambda p: p["other_volumes"], "other volumes, busy", ("p50_us",)),
    "open-files": (lambda p: p["open_files"], "other open files", ("p50_us",)),
    "log": (lambda p: p["log_mib"], "MiB of log", ("p50_us",)),
}
LINEAR = ("replicas", "many-replicas")  # their x axes; the others are logarithmic, with a place for 0
Y_TITLES = {"p50_us": "p50 latency, µs", "ops_per_second": "operations/s",
            "cpu_us_system": "CPU of the whole system, µs per operation"}


def pyplot_or_none():
    """Matplotlib's, for files; None where it is not installed."""
    try:
        import matplotlib
    except ImportError:
        return None
    matplotlib.use("Agg")
    from matplotlib import pyplot
    return pyplot


def plot(pyplot, name, points, directory):
    """NAME-packed.png and NAME-free.png, as far as there are points; returns the files' names."""
    x_of, x_title, y_names = PLOTS[name]
    y_names += ("cpu_us_system",)
    files = []
    for packed in (True, False):
        chosen = sorted((p for p in points if p["packed"] == packed and p["subjects"]), key=x_of)
        if not chosen:
            continue
        shape, panels = pyplot.subplots(1, len(y_names), figsize=(5.5 * len(y_names), 4))
        for axes, figure_name in zip(panels, y_names):
            for subject in ("salius",) + FLOORS:
                line = [(x_of(p), figure(p, subject, figure_name)) for p in chosen if figure(p, subject, figure_name)]
                if line:
                    axes.plot(*zip(*line), marker="o", label=subject, linewidth=2 if subject == "salius" else 1)
            if name not in LINEAR:
                axes.set_xscale("symlog", base=2)
            axes.set_yscale("log")
            axes.set_xlabel(x_title)
            axes.set_ylabel(Y_TITLES[figure_name])
            axes.grid(True, which="both", alpha=0.3)
        panels[0].legend(fontsize=8)
        place = "packed" if packed else "free"
        shape.suptitle("%s, %s" % (name, place))
        files.append("%s-%s.png" % (name, place))
        shape.savefig(os.path.join(directory, files[-1]), dpi=90, bbox_inches="tight")
        pyplot.close(shape)
    return files


def tables_of(of):
    """{name: lines} of everything that was measured."""
    slices = {}
    for points in of.results("matrix"):
        for point in points:
            slices.setdefault(point["slice"], []).append(point)
    tables = {name: slice_tables(points) for name, points in slices.items()}
    cases = {}
    for results in of.results("bars"):
        for result in results:
            cases.setdefault(result["case"], []).append(result)
    if "floor" in cases:
        tables["floor"] = floor_table(cases["floor"])
    if "slow-disk" in cases:
        tables["slow-disk"] = slow_disk_table(cases["slow-disk"][0])
    if "recovery" in cases:
        tables["recovery"] = recovery_table(cases["recovery"][0])
    if "direct" in cases:
        tables["direct"] = direct_table(cases["direct"][0])
    if "trees" in cases:
        tables["trees"] = trees_table(cases["trees"][0])
    if of.results("peers"):
        tables["peers"] = peers_table([run for results in of.results("peers") for run in results])
    for run in of.results("applications"):
        tables["applications-" + run["placement"]] = applications_table(run)
    tables["bars"] = markdown([("work", "bar", "measured", ""), *bars.table(of)])
    return tables, slices


def main():
    parser = argparse.ArgumentParser(prog="bench.report", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("figures", metavar="FIGURES")
    parser.add_argument("--results", metavar="DIR", default=RESULTS)
    args = parser.parse_args()
    try:
        of = bars.Figures(args.figures)
        partial = [name for name, file in of.files.items() if not file["complete"]]
        if partial or of.smoke and args.results == RESULTS:
            raise HarnessError("%s: %s" % (args.figures, "of a smoke run" if of.smoke else "not complete: " + ", ".join(partial)))
        tables, slices = tables_of(of)
    except HarnessError as error:
        print("bench: %s" % error, file=sys.stderr)
        return 2
    os.makedirs(args.results, exist_ok=True)
    pyplot = pyplot_or_none()
    if pyplot is None:
        print("skipped: plots: no python3-matplotlib")
    for name in PLOTS if pyplot else ():
        for file in plot(pyplot, name, slices[name], args.results) if name in slices else ():
            print("wrote " + file)
    write_pages(args.results, tables, of.words(), made_text(of))
    for name in PAGES:
        if name not in tables:
            print("not measured, stays as it is: " + name)
    return 0


if __name__ == "__main__":
    sys.exit(main())
