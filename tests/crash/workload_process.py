"""Runs a workload as a program: one step for each line of stdin, its number on stdout when it is
durable.

usage: workload_process.py DIR SEED KIND gated     KIND: append, overwrite

Its operations depend on KIND and SEED alone. Stand-alone, so that it can run under eatmydata.
"""
import os
import random
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from crash import workload  # noqa: E402

KINDS = {kind.__name__.lower(): kind for kind in (workload.Append, workload.Overwrite)}


def main():
    work = KINDS[sys.argv[3]](sys.argv[1], random.Random(int(sys.argv[2])))
    for _ in sys.stdin:
        work.step()
        os.write(1, b"%d\n" % work.steps)


if __name__ == "__main__":
    main()
