"""A second try for tests that were late, as on a busy machine.

A test runs once more, at the end of the run, if
- its only errors are conditions that were not met within their time (harness.run.NotInTime), and
- none of its processes crashed, and no log has the report of a sanitizer or of a failed check.
So a lost write, a difference and a crash are never tried again. An ordinary run does so for MOST
tests, a long one for none: it looks for rare failures. Both tries are printed in full, and the
summary names the test.

A test must be able to run twice: it finds files, mounts and sockets of its first try under no name
that it makes. `--twice` runs all of them once more."""
import pytest

from harness.proc import take_crashed
from harness.run import NotInTime

MOST = 3
REPORTS = ("Sanitizer: ", "check failed: ", "terminate called")


class SecondTries:
    """The pytest plug-in. `logs`: returns the paths of the logs that the running test has
    written. `most`: for how many tests of the run. `twice`: all tests run once more, whatever came
    of the first try."""

    def __init__(self, logs, most=MOST, twice=False):
        self._logs, self._most, self._twice = logs, most, twice
        self._items = {}  # by node id
        self.first = {}   # the text of the first failure, by node id

    def takes(self, errors):
        """Returns whether a test that failed with these errors is tried again."""
        return len(self._items) < self._most and bool(errors) and all(isinstance(error, NotInTime) for error in errors) and not any(
            map(_reports, self._logs()))

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_makereport(self, item, call):
        # unittest keeps all errors, of the clean-ups too; pytest takes the first one from these.
        found = list(getattr(item, "_excinfo", None) or [call.excinfo] * bool(call.excinfo))
        outcome = yield
        report = outcome.get_result()
        if report.when != "call":
            return
        crashed = take_crashed()
        if report.failed and item.nodeid not in self._items and not crashed and self.takes([each.value for each in found]):
            report.outcome = "late"
            self._items[item.nodeid], self.first[item.nodeid] = item, report.longreprtext

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtestloop(self, session):
        outcome = yield
        if outcome.excinfo is not None:
            return
        self._most = 0  # there is no third try
        for item in session.items if self._twice else self._items.values():
            print("second try:", flush=True)
            session.config.hook.pytest_runtest_protocol(item=item, nextitem=None)

    def summary(self, passed):
        """Returns the lines of the summary; `passed`: the node ids of passed tests."""
        return ["%s the second try: %s, first failure: %s" % (
            "passed at" if nodeid in passed else "failed at", nodeid, _reason(text)) for nodeid, text in self.first.items()]


def _reason(text):
    """Returns the first line of the error in pytest's text of a failure."""
    return next((line[1:].strip()[:200] for line in text.splitlines() if line.startswith("E ")), text)


def _reports(path):
    with open(path, errors="replace") as f:
        return any(mark in line for line in f for mark in REPORTS)
