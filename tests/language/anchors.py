#!/usr/bin/env python3
"""Checks that each section of a document that code or another document names exists.

Looks at the tracked C++, Python and Markdown files, but not at docs/history/. A section is named by
`SeeRunbook("anchor")` (common/runbook.h), by `docs/FILE.md#anchor`, and in a document by a link to
`FILE.md#anchor` or `#anchor`. Prints `path:line: document#anchor` for each one that is missing, and
exits 1 if there is one.
"""

import pathlib
import re
import subprocess
import sys
from typing import Iterator

ROOT = pathlib.Path(__file__).resolve().parents[2]
NAMED = re.compile(r'SeeRunbook\(\s*"(?P<runbook>[^"]*)"|\b(?P<path>docs/[\w/-]+\.md)#(?P<anchor>[\w-]+)')
LINK = re.compile(r"\]\((?P<path>[\w./-]*)#(?P<anchor>[\w-]+)\)")
CODE_BLOCK = re.compile(r"^```.*?^```$", re.M | re.S)
NO_SOURCES = ("docs/history/", "tests/language/")  # only linked to; the examples above


def anchors(markdown: str) -> set[str]:
    """Returns the anchors of a document's headings, as Git hosts make them."""
    found: set[str] = set()
    for heading in re.findall(r"^#+ +(.*?) *$", CODE_BLOCK.sub("", markdown), re.M):
        text = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading).lower()
        anchor = base = re.sub(r"[^\w -]", "", text).replace(" ", "-")
        count = 0
        while anchor in found:
            count += 1
            anchor = f"{base}-{count}"
        found.add(anchor)
    return found


def named(path: str, source: str) -> Iterator[tuple[int, str, str]]:
    """Yields (line, document, anchor) for each section that a file names."""
    for found in NAMED.finditer(source):
        line = source.count("\n", 0, found.start()) + 1
        if found["runbook"] is not None:
            yield line, "docs/runbook.md", found["runbook"]
        else:
            yield line, found["path"], found["anchor"]
    if not path.endswith(".md"):
        return
    for found in LINK.finditer(source):
        line = source.count("\n", 0, found.start()) + 1
        if not found["path"]:
            yield line, path, found["anchor"]
        elif found["path"].endswith(".md"):
            target = (ROOT / path).parent / found["path"]
            yield line, str(target.resolve().relative_to(ROOT)), found["anchor"]


def missing(files: dict[str, str]) -> list[str]:
    """Returns a line for each section that these files (text by path) name and that is missing."""
    known: dict[str, set[str]] = {}
    problems = []
    for path, source in sorted(files.items()):
        if path.startswith(NO_SOURCES):
            continue
        for line, document, anchor in named(path, source):
            if document not in known:
                known[document] = anchors(files.get(document, ""))
            if anchor not in known[document]:
                problems.append(f"{path}:{line}: {document}#{anchor}")
    return problems


def main() -> int:
    listed = subprocess.run(["git", "ls-files", "--", "*.cc", "*.h", "*.py", "*.md"],
                            cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    problems = missing({path: (ROOT / path).read_text() for path in listed if (ROOT / path).is_file()})
    print("\n".join(problems) if problems else "every named section exists")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
