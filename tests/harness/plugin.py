"""The pytest plug-in of the harness: the run, its seed and journal, and what a run prints.

Prints a line as each test begins and ends, the logs of a failed test, each skip with its reason, and
"N passed, N failed" as the last line (tests/run.sh counts it). A long run leaves out the tests that
passed in an earlier part of it, and counts them."""
import os
import secrets
import time

import pytest

from harness import journal
from harness import run as harness_run
from harness.proc import tail
from harness.second_try import MOST, SecondTries

LOG_LINES = 30
CLOCK_GRAIN_S = 0.05  # of a file's times
SCARCE_BYTES = 8 << 30  # as much as the images of all suites may need together


def pytest_addoption(parser):
    parser.addoption("--long", action="store_true", help="full counts everywhere")
    parser.addoption("--twice", action="store_true", help="run each test once more at the end, as one that was late")
    parser.addoption("--seed", type=int, help="repeats a run's choices; without it SALIUS_SEED does")


def pytest_configure(config):
    if config.option.collectonly:
        return
    kept = journal.of_run(config.args)
    drawn = int(os.environ.get("SALIUS_SEED") or secrets.randbits(32))
    seed = kept.get("seed", drawn) if config.option.seed is None else config.option.seed
    if kept.get("seed", seed) != seed:
        raise pytest.UsageError("the run in SALIUS_LONG_DIR has seed %d: give that, or another directory"
                                % kept.get("seed"))
    kept.put("seed", seed)
    run = harness_run.start(seed, config.option.long, kept)
    config.add_cleanup(run.close)
    reporter = Reporter(run, config.option.twice)
    config.pluginmanager.register(reporter.again)
    config.pluginmanager.register(reporter)


class Reporter:
    """Prints and counts the tests of one run."""

    def __init__(self, run, twice):
        self._run = run
        self._tests = 0  # how many are to be run
        self._began = 0  # how many have begun
        self._passed, self._failed, self._skipped = set(), set(), {}
        self._start_s, self._start_wall_s = 0, 0
        self.again = SecondTries(self._logs, 0 if run.long_run else MOST, twice)
        print("run %s, seed %d" % (run.id, run.seed), flush=True)

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items):
        done = [item for item in items if self._run.journal.get(item.nodeid)]
        for item in done:
            print("passed in an earlier part of this run: %s" % item.nodeid, flush=True)
            self._passed.add(item.nodeid)
        items[:] = [item for item in items if item.nodeid not in self._passed]
        self._tests = len(items)

    def pytest_collectreport(self, report):
        if report.failed:
            self._failed.add(report.nodeid)

    def pytest_runtest_logstart(self, nodeid):
        self._began += 1
        self._start_s, self._start_wall_s = time.monotonic(), time.time()
        number = "test %d of %d: " % (self._began, self._tests) if self._run.long_run else ""
        print("%s%s ..." % (number, nodeid), flush=True)

    @pytest.hookimpl(tryfirst=True)
    def pytest_report_teststatus(self, report):
        """Leaves out pytest's letter for each test."""
        if report.failed and report.when != "call":
            return "error", "", "ERROR"
        if report.when == "call" or report.skipped:
            return report.outcome, "", report.outcome.upper()
        return "", "", ""

    def pytest_runtest_logreport(self, report):
        if report.failed:
            self._failed.add(report.nodeid)
        elif report.skipped:
            why = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
            self._skipped[report.nodeid] = why.removeprefix("Skipped: ")
        elif report.when == "call" and report.passed:
            self._passed.add(report.nodeid)

    def pytest_runtest_logfinish(self, nodeid):
        self._passed -= self._failed | self._skipped.keys()
        if nodeid in self._passed:
            self._run.journal.put(nodeid, True)
        late = nodeid in self.again.first and nodeid not in self._passed | self._failed
        if late:
            print(self.again.first[nodeid], flush=True)
        if late or nodeid in self._failed:
            self._show_logs(nodeid)
        print("  %6.1f s  %s" % (time.monotonic() - self._start_s, nodeid), flush=True)

    def _logs(self):
        """Returns the paths of the logs that were written during the test."""
        paths = [os.path.join(self._run.dir, name) for name in sorted(os.listdir(self._run.dir)) if name.endswith(".log")]
        return [path for path in paths if os.stat(path).st_mtime >= self._start_wall_s - CLOCK_GRAIN_S]

    def _show_logs(self, nodeid):
        """Prints the ends of the logs that were written during the test, and keeps them."""
        print("---- %s failed; seed %d" % (nodeid, self._run.seed), flush=True)
        space = os.statvfs(self._run.dir)
        if space.f_bavail * space.f_frsize < SCARCE_BYTES:
            # The images are sparse: their file systems lose data when this is used up.
            print("---- only %d MiB are free in %s" % (space.f_bavail * space.f_frsize >> 20, self._run.dir), flush=True)
        keep = os.environ.get("SALIUS_TEST_KEEP_LOGS")
        for path in self._logs():
            name = os.path.basename(path)
            print("---- %s\n%s" % (name, tail(path, LOG_LINES)), flush=True)
            if keep:
                os.makedirs(keep, exist_ok=True)
                with open(path, "rb") as src, open(os.path.join(keep, name), "wb") as dst:
                    dst.write(src.read())

    def pytest_sessionfinish(self, session):
        """A run whose tests all passed in an earlier part is a success."""
        if session.exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED and self._passed:
            session.exitstatus = pytest.ExitCode.OK

    def pytest_unconfigure(self):
        for nodeid, why in self._skipped.items():
            print("skipped: %s: %s" % (nodeid, why))
        print(*self.again.summary(self._passed), sep="\n", end="\n" * bool(self.again.first))
        print("%d passed, %d failed" % (len(self._passed), len(self._failed)), flush=True)
