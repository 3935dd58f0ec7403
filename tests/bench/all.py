"""Runs every benchmark and writes its figures into a directory, then judges the bars from them.

usage: python3 -m bench.all [--smoke] [--no-wait] [--cpu N] DIR
Run with tests/ as working directory, as root. About two and a half hours on a quiet machine; a run that was ended goes on
after the files that are complete (and in the matrix after the points that it has), on the same commit. What the peers and
the applications need is not installed: `python3 -m bench.peers --help`, `python3 -m bench.applications --help` name it.
Exit status: as bench.bars; 3 when the machine is not quiet.
"""
import argparse
import os
import subprocess
import sys

from bench import bars, figures
from harness.run import HarnessError

# File, module, arguments; and what is asked of it in a smoke run.
STEPS = (
    ("floor", "bench", ["floor"], ["floor"]),
    ("slow-disk", "bench", ["slow-disk"], ["slow-disk"]),
    ("recovery", "bench", ["recovery"], ["recovery"]),
    ("reattach", "bench", ["reattach"], ["reattach"]),
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


def complete(path, smoke):
    """Whether the file is there, with everything; HarnessError when it is of another commit or machine, or of a smoke run
    where this one is none."""
    if not os.path.exists(path):
        return False
    file = figures.read(path)
    other = figures.difference(file["made"], figures.made())
    if other or smoke != ("--smoke" in file["made"]["command"].split()):
        raise HarnessError("%s has figures of %s; name another directory" % (path, other or "a run with another --smoke"))
    return file["complete"]


def main():
    args = parse()
    os.makedirs(args.directory, exist_ok=True)
    common = ["--smoke"] * args.smoke + ["--no-wait"] * args.no_wait + (["--cpu", args.cpu] if args.cpu else [])
    try:
        for name, module, words, smoke_words in STEPS:
            path = os.path.abspath(os.path.join(args.directory, name + ".json"))
            words = smoke_words if args.smoke else words
            if words is None or complete(path, args.smoke):
                continue
            print("\n#### %s" % name, flush=True)
            code = subprocess.run([sys.executable, "-m", module, *words, *common, "--json", path], check=False).returncode
            if code == 3:
                return 3
            if not complete(path, args.smoke):
                raise HarnessError("%s ended with %d before it was complete" % (name, code))
        print("\n#### bars", flush=True)
        return bars.judge_all(args.directory)
    except HarnessError as error:
        print("bench: %s" % error, file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
