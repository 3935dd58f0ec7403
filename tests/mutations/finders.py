"""Builds the code with a planted bug, and runs the tests or the simulator that must find it."""

import contextlib
import pathlib
import re
import subprocess
from typing import Iterator

from bugs import ROOT, Bug, googletests, plant, shipping_code

TESTS_FAILED = 3  # Bazel's exit code: the tests were built, and one failed
TIMEOUT_S = 900
REPLAY_LIFETIMES = 20000
SHRUNK = 10


class NotFound(Exception):
    """The bug was not found, or could not be built."""


def bazel(*arguments: str, check: bool = False) -> subprocess.CompletedProcess:
    return subprocess.run(["bazel", *arguments], cwd=ROOT, capture_output=True, text=True, check=check)


def build(*targets: str) -> None:
    done = bazel("build", "--noshow_progress", *targets)
    if done.returncode != 0:
        raise NotFound("does not build:\n" + done.stderr[-2000:])


@contextlib.contextmanager
def planted(bug: Bug) -> Iterator[None]:
    """Puts the bug into the code, and restores the code at the end."""
    texts = plant(shipping_code(), bug)
    sources = {path: path.read_text() for path in texts}
    try:
        for path, text in texts.items():
            path.write_text(text)
        yield
    finally:
        for path, source in sources.items():
            path.write_text(source)
        unmount_leftovers()


def unmount_leftovers() -> None:
    """Unmounts the mounts that a test left in Bazel's tree when a planted bug ended it. They forbid
    the next build."""
    root = bazel("info", "execution_root", check=True).stdout.strip()
    for line in pathlib.Path("/proc/mounts").read_text().splitlines():
        where = line.split()[1]
        if where.startswith(root + "/"):
            subprocess.run(["umount", "--lazy", where], check=True)


def label(path: str) -> str:
    """Returns the Bazel label of this file."""
    package = (ROOT / path).parent
    while not (package / "BUILD.bazel").exists():
        package = package.parent
    return f"//{package.relative_to(ROOT)}:{(ROOT / path).relative_to(package)}"


def run_test(test: str) -> str:
    """Runs one googletest, which must fail, on the planted code. Returns how it was found."""
    file = label(googletests()[test])
    targets = bazel("query", "--noshow_progress", f"kind(cc_test, rdeps(//tests/..., {file}))",
                    check=True).stdout.split()
    build(*targets)
    suite, name = test.split(".")
    names = f"{test}:*/{test}/*:{suite}/*.{name}"  # also of parameterized and typed tests
    done = bazel("test", "--noshow_progress", "--nocache_test_results", "--test_output=summary", "--test_timeout=240",
                 f"--test_filter={names}", *targets)
    if done.returncode != TESTS_FAILED:
        raise NotFound(f"{test} does not fail")
    return f"{test} fails"


def simulator(bug: Bug) -> str:
    """Builds the simulator that must find the bug, and returns its path."""
    program = f"{bug.simulator}_sim_run"
    build(f"//tests/sim:{program}")
    return bazel("info", "-c", "opt", "bazel-bin", check=True).stdout.strip() + f"/tests/sim/{program}"


def run_simulator(binary: str, *options: str) -> tuple[int, str, str]:
    """Returns (exit code, output, the last line of its errors)."""
    try:
        ended = subprocess.run([binary, *options], capture_output=True, text=True, check=False, timeout=TIMEOUT_S)
    except subprocess.TimeoutExpired:
        raise NotFound(f"not found within {TIMEOUT_S} s") from None
    return ended.returncode, ended.stdout, (ended.stderr.strip().splitlines() or [""])[-1]


def first_broken(binary: str, count: int, first: int = 1) -> tuple[int, str]:
    """Returns (seed, how it shows) of the first broken lifetime from the seed `first` on."""
    code, text, complaint = run_simulator(binary, "--first", str(first), "--count", str(count))
    last = (text.strip().splitlines() or [""])[-1]
    broken = re.match(r"seed ([1-9]\d*) BROKEN: (.*)", last)
    if broken:
        return int(broken[1]), broken[2] + (": " + complaint[-50:] if code < 0 else "")
    if code != 0:
        raise NotFound(f"the simulator ended with {code} and named no seed: {complaint[-70:]}")
    raise NotFound(f"no broken lifetime: {last}")


def find(bug: Bug, count: int) -> Iterator[str]:
    """Plants the bug, and yields how each of its finders found it. NotFound if one did not."""
    with planted(bug):
        for test in bug.tests:
            yield run_test(test)
        if bug.simulator:
            seed, how = first_broken(simulator(bug), count)
            yield f"the {bug.simulator} simulator, seed {seed}: {how[:70]}"


def trace_twice(binary: str, seed: int, how: str) -> int:
    """Checks that a broken seed replays to the byte. Returns the length of its trace."""
    code, first, _ = run_simulator(binary, "--seed", str(seed), "--trace")
    again = run_simulator(binary, "--seed", str(seed), "--trace")[1]
    if code != 1 or f"seed {seed} BROKEN: {how}" != first.splitlines()[-1]:
        raise NotFound(f"seed {seed} breaks otherwise with --trace: {first[-200:]}")
    if f"\nseed {seed} digest " not in first:
        raise NotFound(f"seed {seed} has no digest: {first[-200:]}")
    if first != again:
        raise NotFound(f"seed {seed} has two traces")
    return len(first)


def shrink(binary: str, seed: int) -> tuple[int, int]:
    """Returns how many faults a broken seed needs, and how many it has."""
    code, shrunk, _ = run_simulator(binary, "--shrink", str(seed))
    left = re.match(r"seed \d+ with (\d+) of (\d+) faults BROKEN: ", (shrunk.splitlines() or [""])[-1])
    if code != 1 or not left:
        raise NotFound(f"seed {seed} does not shrink: {shrunk[-200:]}")
    return int(left[1]), int(left[2])


def check_replay(bug: Bug) -> str:
    """Plants the bug, and checks that the first broken seed replays to the byte, and that one of
    the first SHRUNK broken seeds shrinks. (One that needs each of its faults does not.) Returns a
    line about it; NotFound names the problem."""
    with planted(bug):
        binary = simulator(bug)
        seed, how = first_broken(binary, REPLAY_LIFETIMES)
        replay = f"seed {seed}: {trace_twice(binary, seed, how)} bytes of trace twice"
        kept = []
        for _ in range(SHRUNK):
            needed, faults = shrink(binary, seed)
            kept.append(f"seed {seed} needs {needed} of {faults} faults")
            if needed < faults:
                return f"{replay}; {kept[-1]}"
            seed, _ = first_broken(binary, REPLAY_LIFETIMES, seed + 1)
        raise NotFound("no seed shrinks: " + ", ".join(kept))
