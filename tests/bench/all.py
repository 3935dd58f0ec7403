"""Runs every benchmark and writes its figures into a directory, then judges the bars from them.

usage: python3 -m bench.all [--smoke] [--no-wait] [--cpu N] DIR

Run with tests/ as working directory or in PYTHONPATH, as root. It takes two and a half to three
hours on a quiet machine. An interrupted run continues after the files that are complete, and in the
matrix after its finished points, if options and programs are the same. Peers and applications that
are not installed are named, with their packages, and left out. Exit status: as bench.bars, but 2
too when a benchmark failed; 3 when the machine is not quiet.
"""
import argparse
import os
import subprocess
import sys

from bench import bars, figures
from harness.run import HarnessError

# File, module, arguments, and the arguments of a smoke run.
STEPS = (
    ("floor", "bench", ["floor"], ["floor"]),
    ("patterns", "bench", ["patterns"], ["patterns"]),
    ("writers", "bench", ["writers"], ["writers"]),
    ("slow-disk", "bench", ["slow-disk"], ["slow-disk"]),
    ("recovery", "bench", ["recovery"], ["recovery"]),
    ("reattach", "bench", ["reattach"], ["reattach"]),
    ("trees", "bench", ["trees"], ["trees"]),
    ("direct", "bench", ["direct"], ["direct"]),
    ("matrix", "bench.matrix", ["--rounds", "5", "--seconds", "0.5"], ["size", "cached"]),
    ("peers-1", "bench.peers", ["--seconds", "1.5"], None),
    ("peers-8", "bench.peers", ["--seconds", "1.5", "--writers", "8"], ["--writers", "8", "--placement", "free", "redis"]),
    ("applications-packed", "bench.applications", ["--seconds", "1.5", "--placement", "packed"],
     ["--placement", "packed", "sqlite-wal", "sqlite-delete"]),
    ("applications-free", "bench.applications", ["--seconds", "1.5", "--placement", "free"], None),
)


def parse():
    parser = argparse.ArgumentParser(prog="bench.all", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", metavar="DIR")
    parser.add_argument("--smoke", action="store_true", help="smallest size: shows that everything works")
    parser.add_argument("--no-wait", action="store_true", help="measure on a busy machine too")
    parser.add_argument("--cpu", help="for what is packed on one CPU")
    return parser.parse_args()


def complete(path, words, made):
    """Returns whether the file has everything that `words` measure. HarnessError when its programs,
    machine or words differ."""
    if not os.path.exists(path):
        return False
    file = figures.read(path)
    other = figures.difference(file["made"], made)
    if not other and file["made"]["command"] != " ".join(words):
        other = file["made"]["command"]
    if other:
        raise HarnessError("%s has figures of %s; name another directory" % (path, other))
    return file["complete"]


def main():
    args = parse()
    directory = os.path.abspath(args.directory)
    os.makedirs(directory, exist_ok=True)
    common = ["--smoke"] * args.smoke + ["--no-wait"] * args.no_wait + (["--cpu", args.cpu] if args.cpu else [])
    made = figures.made()
    if made["commit"] is None:
        print("bench: of which commit the programs are is not known (git)", file=sys.stderr)
        return 2
    environment = {**os.environ, figures.COMMIT: made["commit"]}
    failed = False
    try:
        for name, module, words, smoke_words in STEPS:
            path = os.path.join(directory, name + ".json")
            words = smoke_words if args.smoke else words
            if words is None or complete(path, words + common, made):
                continue
            print("\n#### %s" % name, flush=True)
            code = subprocess.run([sys.executable, "-m", module, *words, *common, "--json", path], env=environment,
                                  check=False).returncode
            if code == 3:
                return 3
            if not complete(path, words + common, made):
                print("FAILED: %s ended with %d before it was complete" % (name, code), flush=True)
                failed = True
        print("\n#### bars", flush=True)
        status = bars.judge_all(directory)
        return 2 if failed else status
    except HarnessError as error:
        print("bench: %s" % error, file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
