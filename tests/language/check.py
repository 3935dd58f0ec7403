#!/usr/bin/env python3
"""Checks the language of comments, docstrings and documents: plain technical English.

usage: check.py [--summary] [PATH ...]

Prints `path:line: pattern: excerpt` for every place that breaks a rule of PATTERNS, and a count per
pattern and top folder. Exits 1 if there is a place. PATHs (files or folders) restrict the check.
--summary prints only the counts.

Code is checked in its comments and docstrings, its messages (string literals of three words or more:
some patterns only), the names of its tests and its other identifiers (words of IDENTIFIER_WORDS); a
document (Markdown or man page) in all of its text but code. docs/history/ is left out. True uses are listed in allowed.txt, one
per line: `path: fragment of the text  # reason`.
"""

import argparse
import ast
import collections
import io
import pathlib
import re
import subprocess
import sys
import tokenize
from typing import Iterator, NamedTuple

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
LEFT_OUT = ("docs/history/", "tests/fuzz/corpus/")
MAX_COLUMNS = 100
MAX_CELL_WORDS = 30

# A sentence begins with its text or list item, or after a full stop.
START = r"(?:\A|\n\s*\n|(?:\A|\n)\s*(?:[-*]|\d+\.)\s|[.!?]\s)\s*"
# A verb in the third person, which makes the "what" before it a subject.
VERB = (r"(?:is|was|were|are|has|had|does|did|can|cannot|may|must|will|would|should|might"
        r"|(?!(?:its|this|records|bytes|files|names|replicas|others)\b)[a-z]{3,}s)\b")
# The persons of whom "who" may tell: a clause about a program or a machine names it instead.
PERSON = r"(?<!user)(?<!administrator)(?<!operator)(?<!reader)(?<!person)(?<!people)(?<!newcomer)"

PATTERNS = {
    "who/what as subject": re.compile(
        rf"{START}(?:who|what|whose)\b(?![^.;:]*\?)"
        rf"|{PERSON},\s+who\s+{VERB}|[,;:(]\s*what\s+{VERB}|[;:(]\s*who\s+{VERB}"
        r"|\b(?:that|if|when|while|because|and|but|or|so|unless|until)\s+what\s+(?:is|was|has)\b"
        r"|\b(?:to|by|for|from|of|with|than)\s+who\b|\bwhoever\b", re.I),
    "nobody/somebody": re.compile(r"\b(?:nobody|somebody)\b", re.I),
    "opens with Of": re.compile(r"\A\s*Of\b"),
    "so many": re.compile(r"\bso\s+many\b", re.I),
    "as it stands": re.compile(r"\bas\s+it\s+stands\b", re.I),
    "for want of": re.compile(r"\bfor\s+want\s+of\b", re.I),
    "anew": re.compile(r"\banew\b", re.I),
    "is told": re.compile(r"\b(?:is|are|was|were|be|been|being)\s+told\b(?!\s+apart)", re.I),
    "there is no more": re.compile(r"\bthere\s+is\s+no\s+more\b", re.I),
}
# Messages quote, and ask: "who" and "what" are fine in many of them.
IN_MESSAGES = ("nobody/somebody", "so many", "as it stands", "for want of", "anew", "is told",
               "there is no more")
NAME = "name of a test"
NAME_PATTERN = re.compile(r"^(?:a |the )?what\b|\b(?:who|whoever|whatever|nobody|somebody|anew|told(?! apart| from))\b")
TEST_NAME = re.compile(r"^(?:TEST(?:_F|_P)?\(\s*\w+,\s*(\w+)\)|[ ]*def test_(\w+)\()", re.M)
IDENTIFIER = "identifier"
# Words that no identifier has. A user's name and the method tell() of files are words of their own.
IDENTIFIER_WORDS = re.compile(r"\b(?:somebody|everybody|anybody|whoever|whatever|whom|homeless|astray|forsaken|nowhere"
                              r"|anew|told(?! apart| from)|tells|goes on|what (?:is|was|goes))\b|\b(?:nobody|tell) \w")
LONG_LINE = f"line over {MAX_COLUMNS} columns"
LONG_CELL = f"cell over {MAX_CELL_WORDS} words"

# One comment, docstring, or paragraph of a document, with the number of its first line.
Text = NamedTuple("Text", [("line", int), ("text", str)])
# One place that breaks a rule.
Place = NamedTuple("Place", [("path", str), ("line", int), ("pattern", str), ("excerpt", str)])


def merge(comments: list[tuple[int, int, str]]) -> Iterator[Text]:
    """Joins comments (line, column, text) on following lines and in one column."""
    while comments:
        line, column, _ = comments[0]
        size = 1
        while size < len(comments) and comments[size][:2] == (line + size, column):
            size += 1
        yield Text(line, "\n".join(text for _, _, text in comments[:size]))
        comments = comments[size:]


ITEM = re.compile(r"\s*(?:[-*]|\d+\.)\s+|\.[TIPH]P\b")
C_TOKEN = re.compile(
    r"""(?P<line>//[^\n]*)|(?P<block>/\*.*?\*/)|R"(?P<raw>[^(\s]*)\(.*?\)(?P=raw)"
    |"(?P<text>(?:\\.|[^"\\\n])*)"|(?<![0-9a-fA-F])'(?:\\.|[^'\\\n])+'""", re.S | re.X)


def c_texts(source: str) -> Iterator[Text]:
    """Yields the comments of C, C++ or protobuf."""
    lines = []
    for token in C_TOKEN.finditer(source):
        line = source.count("\n", 0, token.start()) + 1
        if token["line"]:
            column = token.start() - source.rfind("\n", 0, token.start())
            lines.append((line, column, token["line"].lstrip("/")))
        elif token["block"]:
            yield Text(line, re.sub(r"(?m)^\s*\*", "", token["block"][2:-2]))
    yield from merge(lines)


def python_texts(source: str) -> Iterator[Text]:
    """Yields the comments and docstrings of Python or Starlark."""
    comments = []
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT and not token.string.startswith("#!"):
            comments.append((*token.start, token.string.lstrip("#")))
    yield from merge(comments)
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            if ast.get_docstring(node, clean=False) is not None:
                yield Text(node.body[0].lineno, node.body[0].value.value)


def shell_texts(source: str) -> Iterator[Text]:
    """Yields the comments of a shell script or configuration file."""
    comments = []
    for number, line in enumerate(source.split("\n"), 1):
        for sign in re.finditer(r"(?:^|(?<=\s))#(?!!)", line):
            before = line[:sign.start()]
            if before.count('"') % 2 == 0 and before.count("'") % 2 == 0:
                comments.append((number, sign.start(), line[sign.end():]))
                break
    yield from merge(comments)


def document_lines(path: str, source: str) -> Iterator[tuple[int, str, str]]:
    """Yields (number, line, text) of a document outside code; the text has no mark-up."""
    code = indented = item = empty = False
    for number, line in enumerate(source.split("\n"), 1):
        if path.endswith(".md"):
            fence = line.lstrip().startswith("```")
            code ^= fence
            indented = line.startswith("    ") and (indented or (empty and not item))
            item = (item and (not line or line[0] == " ")) or bool(ITEM.match(line))
            empty = not line
            text = re.sub(r"`[^`]*`", lambda found: "x" * len(found[0]), line)
            off = code or fence or indented
            yield number, "" if off else line, "" if off else text
        else:
            code = (code or line.startswith(".nf")) and not line.startswith(".fi")
            request = re.sub(r'^\.(?:\\"|[A-Z]+)\s*', "", line)  # a macro's words are text
            yield number, "" if code else line, "" if code else re.sub(r"\\f[BIRP]", "", request)


def document_texts(path: str, source: str) -> Iterator[Text]:
    """Yields a document's paragraphs, list items, and table cells; headings are left out."""
    block: list[str] = []
    start = 1
    for number, line, text in [*document_lines(path, source), (0, "", "")]:
        heading = re.match(r"#+ |\.(?:SH|SS|TH)\b", line)
        row = line.lstrip().startswith("|")
        item = ITEM.match(line)
        if block and (heading or row or item or not line.strip()):
            yield Text(start, "\n".join(block))
            block = []
        if row:
            # A cell may be a clause, like a heading: the bar keeps it from opening a sentence.
            yield from (Text(number, "|" + cell) for cell in text.split("|"))
        elif line.strip() and not heading:
            start = start if block else number
            block.append(text[item.end():] if item else text)


def layout(path: str, source: str) -> Iterator[Place]:
    """Finds the lines and table cells of a document that are too long."""
    for number, line, text in document_lines(path, source):
        if line.lstrip().startswith("|"):
            for cell in re.split(r"(?<!\\)\|", text):
                if len(cell.split()) > MAX_CELL_WORDS:
                    yield Place(path, number, LONG_CELL, f"{len(cell.split())} words:{cell[:50]}")
        elif len(line) > MAX_COLUMNS and len(line.split()) > 2:
            yield Place(path, number, LONG_LINE, f"{len(line)} columns: {line[:50]}")


def messages(path: str, source: str) -> Iterator[Text]:
    """Yields the string literals of C++ or Python that have three words or more."""
    if path.startswith("tests/language/"):  # they quote the patterns
        return
    if path.endswith((".cc", ".h")):
        for token in C_TOKEN.finditer(source):
            if token["text"] and len(token["text"].split()) >= 3:
                yield Text(source.count("\n", 0, token.start()) + 1, token["text"])
    elif path.endswith(".py"):
        tree = ast.parse(source)
        docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings:
                if len(node.value.split()) >= 3:
                    yield Text(node.lineno, node.value)


def test_names(path: str, source: str) -> Iterator[Place]:
    """Finds the tests whose names break a rule."""
    for found in TEST_NAME.finditer(source if path.endswith((".cc", ".py")) else ""):
        if NAME_PATTERN.search(split_words(found[1] or found[2])):
            yield Place(path, source.count("\n", 0, found.start()) + 1, NAME, found[1] or found[2])


def split_words(name: str) -> str:
    """Returns the words of a name in snake or camel case, in lower case."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=A)(?=[A-Z][a-z])|_", " ", name).strip().lower()


def identifiers(path: str, source: str) -> Iterator[Place]:
    """Finds the first use of each identifier of C++ or Python that has a word of IDENTIFIER_WORDS."""
    seen = set()
    if path.endswith((".cc", ".h")):
        # A blank of the same length keeps the lines' numbers.
        code = C_TOKEN.sub(lambda found: re.sub(r"[^\n]", " ", found[0]), source)
        names = [(code.count("\n", 0, found.start()) + 1, found[0]) for found in re.finditer(r"\b[A-Za-z_]\w*", code)]
    elif path.endswith(".py"):
        tokens = tokenize.generate_tokens(io.StringIO(source).readline)
        names = [(token.start[0], token.string) for token in tokens if token.type == tokenize.NAME]
    else:
        return
    tests = {found[1] or f"test_{found[2]}" for found in TEST_NAME.finditer(source)}  # test_names() has these
    for line, name in names:
        if name not in seen and name not in tests and IDENTIFIER_WORDS.search(split_words(name)):
            yield Place(path, line, IDENTIFIER, name)
        seen.add(name)


def texts_of(path: str, source: str) -> Iterator[Text]:
    """Yields the texts of a file by the kind that its name tells."""
    name = pathlib.PurePath(path)
    if re.fullmatch(r"\.(?:md|[1-8])", name.suffix):
        return document_texts(path, source)
    if name.suffix in (".cc", ".h", ".c", ".proto"):
        return c_texts(source)
    if name.suffix in (".py", ".bzl", ".bazel") or name.name == "WORKSPACE":
        return python_texts(source)
    if name.suffix in (".sh", ".sample", ".service", ".toml") or name.name.startswith("."):
        return shell_texts(source)
    if source.startswith("#!"):
        return python_texts(source) if "python" in source.split("\n")[0] else shell_texts(source)
    return iter(())


def check(path: str, source: str) -> list[Place]:
    """Returns the places of one file that break a rule, in order."""
    places = [*test_names(path, source), *identifiers(path, source)]
    texts = [(text, PATTERNS) for text in texts_of(path, source)]
    texts += [(text, {name: PATTERNS[name] for name in IN_MESSAGES}) for text in messages(path, source)]
    for (line, text), patterns in texts:
        for name, pattern in patterns.items():
            for hit in pattern.finditer(text):
                at = hit.end() - len(re.split(r"[\s(]+", hit[0].strip())[-1])
                excerpt = " ".join(text[max(0, at - 40):at + 60].split())
                places.append(Place(path, line + text.count("\n", 0, at), name, excerpt))
    if re.search(r"\.(?:md|[1-8])$", path):
        places += layout(path, source)
    return sorted(places)


def allowed_uses() -> list[tuple[str, str]]:
    """Returns (path, fragment) of every line of allowed.txt."""
    lines = (HERE / "allowed.txt").read_text().splitlines()
    entries = [line.partition("  # ")[0] for line in lines if line and not line.startswith("#")]
    return [(path, fragment.strip()) for path, _, fragment in (e.partition(":") for e in entries)]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--summary", action="store_true", help="print only the counts")
    parser.add_argument("paths", nargs="*", help="files or folders; all by default")
    args = parser.parse_args()
    wanted = [pathlib.Path(path).resolve() for path in args.paths] or [ROOT]

    tracked = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True)
    allowed = allowed_uses()
    used = set()
    places = []
    for path in tracked.stdout.decode().split("\0"):
        file = ROOT / path
        if path.startswith(LEFT_OUT) or not file.is_file():
            continue
        if not any(file == one or one in file.parents for one in wanted):
            continue
        try:
            source = file.read_text()
        except UnicodeDecodeError:  # a picture, or a test's damaged input
            continue
        for place in check(path, source):
            uses = {use for use in allowed if use[0] == path and use[1] in place.excerpt}
            used |= uses
            if not uses:
                places.append(place)
    if not args.summary:
        for place in places:
            print(f"{place.path}:{place.line}: {place.pattern}: {place.excerpt}")
    unused = [] if args.paths else [use for use in allowed if use not in used]
    for path, fragment in unused:
        print(f"{path}: allowed, but not found: {fragment}")

    folders = collections.Counter((p.path.partition("/")[0], p.pattern) for p in places)
    for (folder, pattern), count in sorted(folders.items()):
        print(f"{count:6} {folder}: {pattern}")
    for pattern, count in collections.Counter(p.pattern for p in places).most_common():
        print(f"{count:6} all: {pattern}")
    print(f"{len(places):6} in all")
    return 1 if places or unused else 0


if __name__ == "__main__":
    sys.exit(main())
