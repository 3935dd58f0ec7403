#!/usr/bin/env python3
"""Plants one bug at a time into the shipping code, and checks that it is found.

The list is in tests/mutations/bugs; bugs.py describes it. For each bug the tests that the list names
must fail, and the simulator that it names, if any, must find a broken lifetime. A bug that is
not found is an error. The code is restored afterwards. Files that would change must have no
uncommitted changes.

    tests/mutations/run.py [--count N] [NAME ...]    all, or the named ones; N: the simulator's
                                                     lifetimes for each (100000)
    tests/mutations/run.py --list                    name, guarantee, files
    tests/mutations/run.py --patterns                whether each bug still fits the code, its tests
                                                     and docs/guarantees.md; builds nothing
    tests/mutations/run.py --table                   the rows for docs/guarantees.md
    tests/mutations/run.py --check-replay NAME ...   whether the first seed that each breaks in the
                                                     simulator replays to the byte, and one of the
                                                     first shrinks
"""

import argparse
import signal
import subprocess
import sys

from bugs import ROOT, Bug, Misplaced, load, plant, problems, row, shipping_code
from finders import NotFound, check_replay, find


def check_patterns(bugs: list[Bug]) -> int:
    wrong = problems(bugs, (ROOT / "docs/guarantees.md").read_text())
    for problem in wrong:
        print(problem)
    print(f"{len(bugs)} planted bugs, {len(wrong)} problems")
    return 1 if wrong or not bugs else 0


def paths(bugs: list[Bug]) -> dict[str, list[str]]:
    """Returns the files that each bug changes, by its name."""
    tree = shipping_code()
    return {bug.name: sorted(path.relative_to(ROOT).as_posix() for path in plant(tree, bug)) for bug in bugs}


def uncommitted(bugs: list[Bug]) -> str:
    files = sorted({path for changed in paths(bugs).values() for path in changed})
    return subprocess.run(["git", "status", "--porcelain", "--", *files], cwd=ROOT, capture_output=True, text=True,
                          check=True).stdout


def plant_each(bugs: list[Bug], replay: bool, count: int) -> int:
    """Plants these bugs, one after the other, and prints how each was found."""
    found = 0
    for bug in bugs:
        try:
            for how in [check_replay(bug)] if replay else find(bug, count):
                print(f"{bug.guarantee or '-':4} {bug.name}: {how}", flush=True)
            found += 1
        except (NotFound, Misplaced) as problem:
            print(f"{bug.guarantee or '-':4} {bug.name}: NOT FOUND: {problem}", flush=True)
    print(f"{found} passed, {len(bugs) - found} failed")
    return 0 if found == len(bugs) else 1


def main() -> int:
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--patterns", action="store_true")
    parser.add_argument("--table", action="store_true")
    parser.add_argument("--check-replay", action="store_true")
    parser.add_argument("--count", type=int, default=100000)
    parser.add_argument("names", nargs="*")
    options = parser.parse_args()
    for number in signal.SIGTERM, signal.SIGHUP:  # the code is restored
        signal.signal(number, lambda *_: sys.exit(143))
    bugs = load()
    if options.patterns:
        return check_patterns(bugs)
    if options.list:
        for name, changed in paths(bugs).items():
            guarantee = next(bug.guarantee for bug in bugs if bug.name == name)
            print(f"{name:55} {guarantee or '-':4} {' '.join(changed)}")
        return 0
    if options.table:
        print("\n".join(row(bug, test) for bug in sorted(bugs, key=lambda bug: bug.guarantee) for test in bug.tests))
        return 0
    unknown = set(options.names) - {bug.name for bug in bugs}
    if unknown or (options.check_replay and not options.names):
        print(f"unknown: {', '.join(sorted(unknown))}; --list shows the names", file=sys.stderr)
        return 2
    bugs = [bug for bug in bugs if not options.names or bug.name in options.names]
    if dirty := uncommitted(bugs):
        print(f"commit first, these have changes:\n{dirty}", file=sys.stderr)
        return 2
    return plant_each(bugs, options.check_replay, options.count)


if __name__ == "__main__":
    sys.exit(main())
