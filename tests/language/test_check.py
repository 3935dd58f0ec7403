"""Tests of check.py: each pattern is found, and is not found where it is fine."""

import unittest

from tests.language import check


def patterns(path: str, source: str) -> list[str]:
    """Returns the names of the patterns that the check finds in a file."""
    return [place.pattern for place in check.check(path, source)]


def comment(text: str) -> list[str]:
    """Returns the names of the patterns that the check finds in a C++ comment."""
    return patterns("a.h", "".join(f"// {line}\n" for line in text.split("\n")))


class WordsTest(unittest.TestCase):
    def assert_found(self, pattern: str, *texts: str) -> None:
        for text in texts:
            self.assertEqual(comment(text), [pattern], text)

    def assert_fine(self, *texts: str) -> None:
        for text in texts:
            self.assertEqual(comment(text), [], text)

    def test_subject_clauses_are_found(self) -> None:
        self.assert_found("who/what as subject", "Who asks is refused.", "What is left goes.",
                          "Waits. Whose memory is lost.", "Copies the log, what is\nmissing too.",
                          "The caller tells, who waits.", "Wakes whoever waits.",
                          "A notice to who mounts.", "Fails: what was read is gone.",
                          "Returns and what is left stays.", "- What goes first.")

    def test_object_clauses_are_fine(self) -> None:
        self.assert_fine("What is left?", "Reports what it found.", "An operator, who decides.",
                         "Prints the name, what it holds, and why.", "A record whose sum fails.",
                         "Whatever it holds is kept.", "It is what makes this exact.")

    def test_vague_persons_are_found(self) -> None:
        self.assert_found("nobody/somebody", "Nobody waits.", "Until somebody\nwaits.")
        self.assert_fine("No caller waits.", "Gid nobodys.")

    def test_opening_of_is_found(self) -> None:
        self.assert_found("opens with Of", "Of the process that asks.")
        self.assert_fine("Returns it. Of the two, the newer wins.", "Often fails.")

    def test_phrases_are_found(self) -> None:
        self.assert_found("so many", "Sends so\nmany frames.")
        self.assert_found("as it stands", "Reads the file as it stands.")
        self.assert_found("for want of", "Fails for want of memory.")
        self.assert_found("anew", "Begins anew.")
        self.assert_found("is told", "The caller is told.", "Replicas were told.")
        self.assert_found("there is no more", "There is no more room.")

    def test_like_phrases_are_fine(self) -> None:
        self.assert_fine("Many frames.", "A new file.", "The two are told apart.",
                         "As its standard.", "There is no room.", "A want of room.")


class PlacesTest(unittest.TestCase):
    """A text is looked at where it is prose, and nowhere else."""

    def test_cpp_comments_are_searched_but_no_short_strings(self) -> None:
        source = 'int a = 1\'000;  // anew\n/* x\n * anew */ const char* b = "// anew";\n'
        found = [place.line for place in check.check("a.cc", source + 'R"(// anew)" "\\"// anew"')]
        self.assertEqual(found, [1, 3])

    def test_python_comments_and_docstrings_are_searched(self) -> None:
        source = '"""Begins\nanew."""\nA = "anew"  # anew\nB = """anew"""\n'
        self.assertEqual([place.line for place in check.check("a.py", source)], [2, 3])

    def test_messages_of_three_words_are_searched(self) -> None:
        self.assertEqual(patterns("a.cc", 'Log("it begins anew"); Log("who asks is asked"); Log("anew {}");'), ["anew"])
        self.assertEqual(patterns("a.py", 'Log("it begins anew")\n"""It begins."""\nLog("anew")\n'), ["anew"])

    def test_names_of_tests_are_searched(self) -> None:
        self.assertEqual(patterns("a.cc", "TEST(A, WhatIsLostStays) {}\nTEST_F(A, AWhoFails) {}\n"
                                          "TEST(A, Whole) {}\nTEST(A, ToldApart) {}\n"), [check.NAME] * 2)
        self.assertEqual(patterns("a.py", "def test_what_is_lost(self): pass\ndef test_it(): pass\n"
                                          "def test_the_whole(): pass\ndef whatnot(): pass\n"), [check.NAME])

    def test_identifiers_are_searched_once_each(self) -> None:
        source = ("void KeepHomeless();\nbool told_ = is_astray;\nint told_again = told_;\n"
                  "Tell(seed); TellSeed(); NobodyComes(); kEntryGoesOn = 1; WhatIsLost(); What();\n")
        found = [(place.line, place.excerpt) for place in check.check("a.cc", source)]
        self.assertEqual(sorted(found), [(1, "KeepHomeless"), (2, "is_astray"), (2, "told_"), (3, "told_again"),
                                         (4, "NobodyComes"), (4, "TellSeed"), (4, "WhatIsLost"), (4, "kEntryGoesOn")])
        self.assertEqual(patterns("a.py", "who_told = 1\nfile.tell()\n"), [check.IDENTIFIER])

    def test_identifiers_are_not_searched_in_texts(self) -> None:
        self.assertEqual(patterns("a.cc", 'int a;  // see told_\nF("told_"); G(kNobody, as_nobody, TollGate);\n'
                                          "Scold whole_toll; ListenersAreToldFromDead();\n"), [])
        self.assertEqual(patterns("a.py", "x = 'told_'  # told_\nas_nobody = x\n"), [])
        self.assertEqual(patterns("a.sh", "told=1\n"), [])

    def test_starlark_and_shell_comments_are_searched(self) -> None:
        self.assertEqual(patterns("BUILD.bazel", 'x(name = "anew")  # anew\n'), ["anew"])
        self.assertEqual(patterns("a.sh", '#!/bin/anew\necho "# anew"  # anew\n'), ["anew"])

    def test_document_text_is_searched_but_no_code(self) -> None:
        self.assertEqual(patterns("a.md", "Begin anew. `anew`\n\n```\nanew\n```\n\n    anew\n"),
                         ["anew"])
        self.assertEqual(patterns("a.8", ".nf\nanew\n.fi\n.B anew\n"), ["anew"])

    def test_headings_and_cells_may_open_with_what(self) -> None:
        self.assertEqual(patterns("a.md", "# What is kept\n\n| what | who asks |\n"), [])

    def test_other_files_are_left_out(self) -> None:
        self.assertEqual(patterns("a.png", "anew"), [])


class LayoutTest(unittest.TestCase):
    def test_long_lines_of_a_document_are_found(self) -> None:
        line = "word " * 21
        self.assertEqual(patterns("a.md", line), [check.LONG_LINE])
        self.assertEqual(patterns("a.8", line), [check.LONG_LINE])

    def test_long_lines_of_tables_code_and_links_are_fine(self) -> None:
        line = "word " * 21
        self.assertEqual(patterns("a.md", f"| {line} |\n\n    {line}\n\n```\n{line}\n```\n"), [])
        self.assertEqual(patterns("a.md", "- [link](" + "x" * 100 + ")"), [])
        self.assertEqual(patterns("a.cc", "// " + line), [])

    def test_cells_of_more_than_thirty_words_are_found(self) -> None:
        self.assertEqual(patterns("a.md", f"| {'word ' * 31} | b |"), [check.LONG_CELL])
        self.assertEqual(patterns("a.md", f"| {'word ' * 30} | {'word ' * 30} |"), [])


if __name__ == "__main__":
    unittest.main()
