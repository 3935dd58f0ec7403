"""Writes the tables of docs/performance.md, and plots beside it, from the figures that the benchmarks wrote.

usage: python3 -m bench.report [--matrix FILE] [--peers FILE]... [--applications FILE]... [--docs DIR]
Each FILE is what bench.matrix, bench.peers or bench.applications wrote with --json. A table goes between
"<!-- NAME -->" and "<!-- end -->" of the page (a slice's name, peers, applications-packed, applications-free); the text around is written by
people. Plots need python3-matplotlib.
"""
import argparse
import json
import os
import re
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
DOCS = os.path.join(HERE, "..", "..", "docs")
FLOORS = ("mount floor", "in-process floor", "udp floor", "fuse floor", "passthrough", "local disk")
BYTES = {"512B": 512, "4KiB": 4096, "16KiB": 16384, "64KiB": 65536, "256KiB": 262144, "1MiB": 1 << 20}


def _load(path):
    with open(path) as f:
        return json.load(f)


def figure(point, subject, name):
    """A median, or None when the subject was not measured there."""
    found = point["subjects"].get(subject)
    return None if found is None else found["median"].get(name)


def ratio(point, floor, name):
    ours, theirs = figure(point, "salius", name), figure(point, floor, name)
    return None if not ours or not theirs else ours / theirs


def _cell(value, form="%.1f"):
    return "" if value is None else form % value


def slice_table(points):
    """Markdown: Salius at each point, and its multiples of the floors."""
    base = "passthrough" if "passthrough" in points[0]["subjects"] else "mount floor"
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
    return _markdown(rows)


def _markdown(rows):
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
    return _markdown(rows)


def applications_table(run):
    """Markdown: operations a second of each application on its grounds."""
    rows = [("", "local disk", "Salius", "local disk, no sync", "FUSE, no sync", "Salius / local disk",
             "no sync / local disk", "FUSE, no sync / local disk")]
    for result in run["applications"]:
        if "ops_per_second" not in result:
            rows.append((result["name"], result.get("skipped") or "failed", "", "", "", "", "", ""))
            continue
        rows.append((result["name"], *(_cell(result["ops_per_second"][g], "%.0f") for g in ("disk", "salius", "no-sync", "fuse")),
                     *(_cell(result[n], "%.2f") for n in ("salius_to_disk", "no_sync_to_disk", "fuse_to_disk"))))
    return _markdown(rows)


def replace_tables(text, tables):
    """The page with its tables replaced; an error when one has no place."""
    for name, lines in tables.items():
        pattern = re.compile(r"(<!-- %s -->\n).*?(<!-- end -->)" % re.escape(name), re.S)
        if not pattern.search(text):
            raise SystemExit("the page has no place <!-- %s --> ... <!-- end -->" % name)
        text = pattern.sub(lambda m, lines=lines: m.group(1) + "\n".join(lines) + "\n" + m.group(2), text)
    return text


# Per slice: what stands on the x axis, its title, and the figure on the y axis; CPU time stands beside it.
PLOTS = {
    "size": (lambda p: BYTES[p["size"]], "bytes per write", "p50_us"),
    "writers": (lambda p: p["writers"], "writers", "ops_per_second"),
    "replicas": (lambda p: p["m"] + 0.15 * (p["acks"] - 1), "replicas (and a little right for every answer awaited)",
                 "p50_us"),
    "many-replicas": (lambda p: p["m"], "replicas", "p50_us"),
    "idle-volumes": (lambda p: p["other_volumes"], "other volumes, idle", "p50_us"),
    "busy-volumes": (lambda p: p["other_volumes"], "other volumes, busy", "p50_us"),
    "open-files": (lambda p: p["open_files"], "other open files", "p50_us"),
    "log": (lambda p: p["log_mib"], "MiB of log", "p50_us"),
}
LINEAR = ("replicas", "many-replicas")  # their x axes; the others are logarithmic, with a place for 0
Y_TITLES = {"p50_us": "p50 latency, µs", "ops_per_second": "operations/s",
            "cpu_us_system": "CPU of the whole system, µs per operation"}


def plot(name, points, directory):
    """NAME-packed.png and NAME-free.png, as far as there are points; returns the files' names."""
    import matplotlib
    matplotlib.use("Agg")
    from matplotlib import pyplot
    x_of, x_title, y_name = PLOTS[name]
    files = []
    for packed in (True, False):
        chosen = sorted((p for p in points if p["packed"] == packed), key=x_of)
        if not chosen:
            continue
        shape, both = pyplot.subplots(1, 2, figsize=(11, 4))
        for axes, figure_name in zip(both, (y_name, "cpu_us_system")):
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
        both[0].legend(fontsize=8)
        place = "packed" if packed else "free"
        shape.suptitle("%s, %s" % (name, place))
        files.append("%s-%s.png" % (name, place))
        shape.savefig(os.path.join(directory, files[-1]), dpi=90, bbox_inches="tight")
        pyplot.close(shape)
    return files


def main():
    parser = argparse.ArgumentParser(prog="bench.report", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--matrix")
    parser.add_argument("--peers", action="append", default=[])
    parser.add_argument("--applications", action="append", default=[])
    parser.add_argument("--docs", default=DOCS)
    args = parser.parse_args()
    slices = {}
    for point in _load(args.matrix) if args.matrix else []:
        slices.setdefault(point["slice"], []).append(point)
    tables = {name: slice_table(of) for name, of in slices.items()}
    if args.peers:
        tables["peers"] = peers_table([run for path in args.peers for run in _load(path)])
    for run in map(_load, args.applications):
        tables["applications-" + run["placement"]] = applications_table(run)
    page = os.path.join(args.docs, "performance.md")
    with open(page) as f:
        text = replace_tables(f.read(), tables)
    with open(page, "w") as f:
        f.write(text)
    plots = os.path.join(args.docs, "performance")
    os.makedirs(plots, exist_ok=True)
    for name in PLOTS if args.matrix else ():
        for file in plot(name, slices.get(name, []), plots):
            print("wrote performance/" + file)
    return 0


if __name__ == "__main__":
    sys.exit(main())
