#!/usr/bin/env python3
"""Checks the ids of docs/recovery.md's cases: R1, R2, and so on.

Each case is named by a test, in a comment beside it. If the code of recovery/ names cases, it names
each. No id is named that the document does not have. Prints the problems; exits 1 if there is one.
"""

import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
CASE = re.compile(r"^\| (R\d+) \|", re.M)
COMMENT = re.compile(r"(?://|#)(.*)")
ID = re.compile(r"\bR\d+\b")


def named(*patterns: str) -> dict[str, str]:
    """Returns the ids in comments of these files, each with one of its files."""
    listed = subprocess.run(["git", "ls-files", "--", *patterns], cwd=ROOT, capture_output=True, text=True, check=True)
    found = {}
    for path in listed.stdout.splitlines():
        for comment in COMMENT.findall((ROOT / path).read_text()):
            found |= {case: path for case in ID.findall(comment)}
    return found


def main() -> int:
    cases = CASE.findall((ROOT / "docs/recovery.md").read_text())
    problems = [f"{case} is in the document twice" for case in sorted(set(cases)) if cases.count(case) > 1]
    for kind, patterns in (("test", ["tests/*.cc", "tests/*.py"]), ("code of recovery/", ["recovery/*.cc", "recovery/*.h"])):
        ids = named(*patterns)
        problems += [f"{case} ({ids[case]}) is not in docs/recovery.md" for case in sorted(ids.keys() - set(cases))]
        if ids:
            problems += [f"{case} is named by no {kind}" for case in cases if case not in ids]
    for problem in problems:
        print(problem)
    print(f"{len(cases)} cases, {len(problems)} problems")
    return 1 if problems or not cases else 0


if __name__ == "__main__":
    sys.exit(main())
