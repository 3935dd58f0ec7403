#!/usr/bin/env python3
"""Removes the code behind each guarantee, one piece at a time, and checks that its test then fails.

Each mutation replaces one piece of shipping code, builds the named test with Bazel, runs it and
restores the code. A mutation that no test notices is an error. Refuses to start when a file that it
would change has uncommitted changes. docs/guarantees.md quotes the table that it prints.

    tests/mutations/run.py [NAME ...]     all, or the named ones
    tests/mutations/run.py --list
    tests/mutations/run.py --patterns     whether each pattern is still in its file; builds nothing
"""

import pathlib
import signal
import subprocess
import sys

from planted import MUTATIONS, Mutation

ROOT = pathlib.Path(__file__).resolve().parents[2]


def run(mutation: Mutation) -> str:
    """Returns "" when the test noticed, else the problem."""
    path = ROOT / mutation.path
    source = path.read_text()
    if source.count(mutation.old) != 1:
        return f"pattern found {source.count(mutation.old)} times in {mutation.path}"
    try:
        path.write_text(source.replace(mutation.old, mutation.new))
        build = subprocess.run(["bazel", "build", "--noshow_progress", mutation.target],
                               cwd=ROOT, capture_output=True, text=True, check=False)
        if build.returncode != 0:
            return "does not build:\n" + build.stderr[-2000:]
        result = subprocess.run(
            ["bazel", "test", "--noshow_progress", "--nocache_test_results",
             "--test_output=summary", "--test_timeout=240", f"--test_filter={mutation.test}",
             mutation.target], cwd=ROOT, capture_output=True, text=True, check=False)
        return "" if result.returncode == 3 else "no test noticed"
    finally:
        path.write_text(source)
        unmount_leftovers()


def unmount_leftovers() -> None:
    """Unmounts the mounts that a test left in Bazel's tree when a planted bug ended it. They forbid
    the next build."""
    root = subprocess.run(["bazel", "info", "execution_root"], cwd=ROOT, capture_output=True, text=True,
                          check=True).stdout.strip()
    for line in pathlib.Path("/proc/mounts").read_text().splitlines():
        where = line.split()[1]
        if where.startswith(root + "/"):
            subprocess.run(["umount", "--lazy", where], check=True)


def check_patterns() -> int:
    """Checks that every mutation's pattern is still in its file, and its row in the document;
    builds nothing."""
    wrong = 0
    document = (ROOT / "docs/guarantees.md").read_text()
    for m in MUTATIONS:
        times = (ROOT / m.path).read_text().count(m.old)
        if times != 1 or m.old == m.new:
            wrong += 1
            print(f"{m.name}: its pattern is in {m.path} {times} times")
        if f"| {m.guarantee} | `{m.name}` |" not in document:
            wrong += 1
            print(f"{m.name}: docs/guarantees.md has no row for it")
    print(f"{len(MUTATIONS) - wrong} of {len(MUTATIONS)} planted bugs have their place")
    return 1 if wrong or not MUTATIONS else 0


def main(argv: list[str]) -> int:
    wanted = list(MUTATIONS)
    for number in signal.SIGTERM, signal.SIGHUP:  # the code is restored
        signal.signal(number, lambda *_: sys.exit(143))
    if argv == ["--patterns"]:
        return check_patterns()
    if argv == ["--list"]:
        for m in wanted:
            print(f"{m.guarantee:4} {m.name:45} {m.path}")
        return 0
    if argv:
        wanted = [m for m in wanted if m.name in argv]
        if len(wanted) != len(set(argv)):
            print("unknown mutation; --list shows them", file=sys.stderr)
            return 2
    paths = sorted({m.path for m in wanted})
    dirty = subprocess.run(["git", "status", "--porcelain", "--", *paths], cwd=ROOT,
                           capture_output=True, text=True, check=True).stdout
    if dirty:
        print(f"commit first, these have changes:\n{dirty}", file=sys.stderr)
        return 2
    noticed = 0
    for mutation in wanted:
        problem = run(mutation)
        noticed += problem == ""
        print(f"{mutation.guarantee:4} {mutation.name:45} "
              f"{'noticed by ' + mutation.test if problem == '' else 'NOT NOTICED: ' + problem}",
              flush=True)
    print(f"{noticed} passed, {len(wanted) - noticed} failed")
    return 0 if noticed == len(wanted) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
