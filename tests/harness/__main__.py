"""Runs the tests with real parts: pytest with harness/plugin.py, in namespaces of its own.

usage: python3 -m harness [--long] [--twice] [--seed N] [PYTEST OPTION…] PATH…
PATH: a suite such as fault, or a part of one: fault/test_input.py, fault/test_input.py::Class::test

Run it in tests/. `--collect-only` lists the tests. Exit status: pytest's, so 0 if all passed.
"""
import os
import signal
import sys

import pytest

from harness import run as harness_run

TESTS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
OPTIONS = [
    "-p", "harness.plugin", "--rootdir", TESTS, "-o", "python_files=test_*.py posix_*.py",
    "--quiet", "--capture=no", "--tb=short", "--continue-on-collection-errors",
    "-p", "no:cacheprovider",
    # Python reports these itself, at once.
    "-p", "no:warnings", "-p", "no:threadexception", "-p", "no:unraisableexception",
]


def main():
    if len(sys.argv) == 1 or "--help" in sys.argv:
        print(__doc__)
        return 0 if "--help" in sys.argv else 2
    if "--collect-only" not in sys.argv:
        harness_run.enter_namespaces([sys.executable, "-m", "harness"] + sys.argv[1:])
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, _interrupted)
    return pytest.main(OPTIONS + sys.argv[1:])


def _interrupted(number, frame):
    raise KeyboardInterrupt(signal.Signals(number).name)


if __name__ == "__main__":
    sys.exit(main())
