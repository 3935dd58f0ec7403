"""Tests of anchors.py."""

import unittest

from tests.language import anchors

RUNBOOK = "# Runbook\n## Too few members\n### Mode `local`: why?\n## Twice\n## Twice\n```\n# no heading\n```\n"


class AnchorsTest(unittest.TestCase):
    def test_headings_become_anchors(self) -> None:
        self.assertEqual(anchors.anchors(RUNBOOK),
                         {"runbook", "too-few-members", "mode-local-why", "twice", "twice-1"})

    def problems(self, path: str, source: str) -> list[str]:
        return anchors.missing({"docs/runbook.md": RUNBOOK, path: source})

    def test_named_section_exists(self) -> None:
        self.assertEqual(self.problems("a.cc", 'return SeeRunbook("too-few-members");'), [])
        self.assertEqual(self.problems("a.cc", "// see docs/runbook.md#twice"), [])
        self.assertEqual(self.problems("docs/a.md", "[x](runbook.md#twice-1), [y](#z)\n# Z"), [])

    def test_missing_section_is_found(self) -> None:
        self.assertEqual(self.problems("a.cc", '\nSeeRunbook("nothing")'), ["a.cc:2: docs/runbook.md#nothing"])
        self.assertEqual(self.problems("a.cc", "docs/gone.md#x"), ["a.cc:1: docs/gone.md#x"])
        self.assertEqual(self.problems("docs/a.md", "[x](#y)"), ["docs/a.md:1: docs/a.md#y"])


if __name__ == "__main__":
    unittest.main()
