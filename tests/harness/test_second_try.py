"""Which failures get a second try, with pytest itself on small tests.

Run in tests/: python3 -m unittest harness.test_second_try"""
import contextlib
import io
import os
import tempfile
import unittest

import pytest

from harness import proc
from harness.second_try import MOST, SecondTries

# `late(N)`: the condition of this test is not met in its first N tries.
TESTS = """
import os, signal, unittest
from harness.proc import Proc
from harness.run import HarnessError, wait_until
from harness.ledger import Ledger
tries = {}
class Tests(unittest.TestCase):
    def late(self, times):
        tries[self.id()] = tries.get(self.id(), 0) + 1
        wait_until(lambda: tries[self.id()] > times, 0, "the condition")
"""


class SecondTry(unittest.TestCase):

    def run_tests(self, *bodies, log="", most=MOST, twice=False):
        """Runs tests with these bodies, test_0, … Each finds that `log` was written meanwhile. Returns
        (exit status, tries of each by its name, the summary)."""
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "test_it.py")
            with open(path, "w") as f:
                f.write(TESTS)
                for number, body in enumerate(bodies):
                    f.write("    def test_%d(self):\n        %s\n" % (number, body.replace("LOG", folder + "/proc.log")))
            written = os.path.join(folder, "it.log")
            with open(written, "w") as f:
                f.write(log)
            plugin = SecondTries(lambda: [written], most, twice)
            seen = Seen()
            with contextlib.redirect_stdout(io.StringIO()):
                status = pytest.main(["-q", "-p", "no:cacheprovider", "--import-mode=importlib", "--rootdir", folder,
                                      path], plugins=[plugin, seen])
        return status, seen.tries, [line.partition("::Tests::")[2] for line in plugin.summary(seen.passed)]

    def once(self, *bodies, **kwargs):
        """Checks that all these tests fail, and run once."""
        status, tries, summary = self.run_tests(*bodies, **kwargs)
        self.assertEqual((status, tries, summary), (1, {"test_%d" % i: 1 for i in range(len(bodies))}, []))

    def setUp(self):
        proc.take_crashed()

    def test_late_test_passes_at_the_second_try(self):
        status, tries, summary = self.run_tests("self.late(1)", "pass")
        self.assertEqual((status, tries), (0, {"test_0": 2, "test_1": 1}))
        self.assertRegex(summary[0], "^test_0, first failure: harness.run.NotInTime: not within 0.0 s: the condition$")

    def test_late_test_fails_at_the_second_try(self):
        status, tries, summary = self.run_tests("self.late(2)")
        self.assertEqual((status, tries, len(summary)), (1, {"test_0": 2}, 1))

    def test_each_test_runs_twice_on_request(self):
        status, tries, summary = self.run_tests("pass", "self.late(1)", twice=True)
        self.assertEqual((status, tries, len(summary)), (0, {"test_0": 2, "test_1": 2}, 1))

    def test_missing_acknowledgements_are_late(self):
        self.assertEqual(self.run_tests("Ledger().wait_total(1, 0)")[1], {"test_0": 2})

    def test_findings_run_once(self):
        self.once("self.assertEqual(1, 2)", "raise HarnessError('exit 1')", "raise TimeoutError")

    def test_finding_of_a_clean_up_runs_once(self):
        self.once("self.addCleanup(self.fail, 'lost write'); self.late(1)")

    def test_crash_runs_once(self):
        crash = "p = Proc(['sh', '-c', 'kill -%s $$'], 'LOG'); p.wait(30); self.late(1)"
        self.once(crash % "ABRT", crash % "SEGV")

    def test_killed_process_is_no_crash(self):
        self.assertEqual(self.run_tests("p = Proc(['sleep', '1000'], 'LOG'); p.kill(); self.late(1)")[0], 0)

    def test_reports_in_a_log_run_once(self):
        for line in ("ERROR: AddressSanitizer: heap-use-after-free", "a.cc:7: check failed: a == b"):
            with self.subTest(line):
                self.once("self.late(1)", log="first\n%s\n" % line)

    def test_few_tests_of_a_run_are_tried_again(self):
        status, tries, summary = self.run_tests(*["self.late(1)"] * (MOST + 1))
        self.assertEqual((status, sorted(tries.values()), len(summary)), (1, [1] + [2] * MOST, MOST))
        self.once("self.late(1)", most=0)


class Seen:
    """Counts the tries of each test."""

    def __init__(self):
        self.tries, self.passed = {}, set()

    def pytest_runtest_logreport(self, report):
        if report.when == "call":
            name = report.nodeid.rpartition("::")[2]
            self.tries[name] = self.tries.get(name, 0) + 1
            if report.passed:
                self.passed.add(report.nodeid)


if __name__ == "__main__":
    unittest.main()
