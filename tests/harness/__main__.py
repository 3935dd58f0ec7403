"""Runs the tests with real parts.

usage: python3 -m harness [--long] [--seed N] [-k PATTERN] [--failfast] [--list] MODULE…
MODULE: fault, apps, or one file of them such as fault.test_partition
Run with tests/ as working directory or in PYTHONPATH. Exit status: 0 all passed, 1 not, 2 usage.
"""
import argparse
import os
import secrets
import signal
import sys
import time
import unittest

from harness import journal
from harness import run as harness_run

TESTS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


class Timed(unittest.TextTestResult):
    """Prints every test with its time as it ends."""

    def startTest(self, test):
        unittest.TestResult.startTest(self, test)
        self._began = time.monotonic()
        run = harness_run.current()
        print("%s%s ..." % ("test %d of %d: " % (self.testsRun, run.tests) if run.long_run else "", test.id()), flush=True)

    def addSuccess(self, test):
        super().addSuccess(test)
        harness_run.current().journal.put(test.id(), True)

    def stopTest(self, test):
        super().stopTest(test)
        print("  %6.1f s  %s" % (time.monotonic() - self._began, test.id()), flush=True)


def load(names, pattern):
    loader = unittest.TestLoader()
    if pattern:
        loader.testNamePatterns = ["*%s*" % p for p in pattern]
    suite = unittest.TestSuite()
    for name in names:
        folder = os.path.join(TESTS, *name.split("."))
        if os.path.isdir(folder):
            for file in sorted(os.listdir(folder)):
                if file.startswith("test_") and file.endswith(".py"):
                    suite.addTests(loader.loadTestsFromName("%s.%s" % (name, file[:-3])))
        else:
            suite.addTests(loader.loadTestsFromName(name))
    return suite


def main():
    parser = argparse.ArgumentParser(prog="harness", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("modules", nargs="+")
    parser.add_argument("--long", action="store_true", help="full counts everywhere")
    parser.add_argument("--seed", type=int, default=None, help="repeat a run's choices")
    parser.add_argument("-k", action="append", help="only tests whose name contains this")
    parser.add_argument("--failfast", action="store_true")
    parser.add_argument("--list", action="store_true")
    args = parser.parse_intermixed_args()
    sys.path.insert(0, TESTS)
    if args.list:
        def walk(suite):
            for item in suite:
                walk(item) if isinstance(item, unittest.TestSuite) else print(item.id())
        walk(load(args.modules, args.k))
        return 0
    harness_run.enter_namespaces([sys.executable, "-m", "harness"] + sys.argv[1:])
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, _interrupted)
    kept = journal.of_run(args.modules)
    seed = kept.get("seed", secrets.randbits(32)) if args.seed is None else args.seed
    if kept.get("seed", seed) != seed:
        print("the run in SALIUS_LONG_DIR has seed %d: give that, or another directory" % kept.get("seed"), file=sys.stderr)
        return 2
    kept.put("seed", seed)
    run = harness_run.start(seed, args.long, kept)
    print("run %s, seed %d" % (run.id, seed), flush=True)
    try:
        suite = load(args.modules, args.k)
        run.tests = suite.countTestCases()
        if run.tests == 0:
            print("no test matches", file=sys.stderr)
            return 2
        result = unittest.TextTestRunner(stream=sys.stdout, resultclass=Timed, verbosity=0,
                                         failfast=args.failfast).run(suite)
        for test, why in result.skipped:
            print("skipped: %s: %s" % (test.id(), why))
        bad = len({_test_id(test) for test, _ in result.failures + result.errors})
        print("%d passed, %d failed" % (result.testsRun - bad - len(result.skipped), bad), flush=True)
        return 0 if result.wasSuccessful() else 1
    finally:
        run.close()


def _test_id(test):
    """Returns the id of a test or of a subtest of it."""
    return getattr(test, "test_case", test).id()


def _interrupted(number, frame):
    raise KeyboardInterrupt(signal.Signals(number).name)


if __name__ == "__main__":
    sys.exit(main())
