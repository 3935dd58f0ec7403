"""Finds function definitions in C++ files, and patterns in them.

It knows just enough of C++ for this tree as clang-format writes it: scopes of namespaces and
classes, function definitions with their initializer lists, comments, and literals."""

import bisect
import dataclasses
import functools
import pathlib
import re
from typing import Iterator

# Comments, literals and preprocessor lines, none of which has braces that count.
NOT_CODE = re.compile(
    r"""(?P<comment>//[^\n]*|/\*.*?\*/)
    |(?P<preprocessor>^[ \t]*\#(?:[^\n\\]|\\.)*)
    |R"(?P<raw>[^(\s]*)\(.*?\)(?P=raw)"|"(?:\\.|[^"\\\n])*"|(?<![0-9a-fA-F])'(?:\\.|[^'\\\n])+'""",
    re.S | re.X | re.M)
TEMPLATE = re.compile(r"\s*template\s*<")
SCOPE = re.compile(r"\s*(?:inline\s+)?namespace\b|\s*extern\s*\Z")
CLASS = re.compile(r"\s*(?:class|struct|union)\b(?:\s+[A-Z_]+\b(?:\s*\(\s*\))?(?=\s+\w))*\s*(?P<name>[\w:]*)")
ACCESS = re.compile(r"\s*(?:public|private|protected)\s*:(?!:)")
FUNCTION = re.compile(r"(?P<name>(?:\w+\s*::\s*)*(?:operator\s*(?:\(\s*\)|[^\s\w(]+|\w[\w\s:]*)|~?\w+))\s*\Z")
NO_FUNCTION = {"decltype", "alignas", "__attribute__", "noexcept", "requires", "explicit"}
CONSTRUCTOR = re.compile(r"\)[\s\w]*(?<!:):(?!:)")
TOKEN = re.compile(r'"(?:\\.|[^"\\])*"|\w+|[^\w\s]')


@dataclasses.dataclass(frozen=True)
class Function:
    name: str  # with its classes, without namespaces
    path: pathlib.Path
    begin: int  # offsets in the file's text, from the declaration to the closing brace
    end: int


def blank(match: re.Match) -> str:
    return re.sub(r"[^\n]", " ", match[0])


def without_comments(text: str) -> str:
    """Returns the text with spaces in the place of comments, so that offsets stay."""
    return NOT_CODE.sub(lambda match: blank(match) if match["comment"] else match[0], text)


def closing(shape: str, at: int) -> int:
    """Returns the offset of the bracket that closes the one at `at`."""
    depth = 0
    for match in re.compile(r"[(){}\[\]]").finditer(shape, at):
        depth += 1 if match[0] in "({[" else -1
        if depth == 0:
            return match.start()
    return len(shape)


def without_templates(head: str) -> str:
    while match := TEMPLATE.match(head):
        depth, at = 1, match.end()
        while depth and at < len(head):
            depth += {"<": 1, ">": -1}.get(head[at], 0)
            at += 1
        head = head[at:]
    return head


def top_level(head: str) -> str:
    """Returns the text with its round brackets emptied."""
    out, depth = [], 0
    for c in head:
        depth -= c == ")"
        if depth == 0:
            out.append(c)
        depth += c == "("
    return "".join(out)


def function_name(head: str) -> str | None:
    """Returns the name of the function that this declaration declares; None if it declares none."""
    flat = top_level(head)
    if re.search(r"(?<![=!<>])=(?!=)", re.sub(r"operator\s*[^\s\w(]+", "operator", flat)):
        return None
    for match in re.finditer(r"\(", flat):
        name = FUNCTION.search(flat[:match.start()])
        if name and name["name"] not in NO_FUNCTION:
            return re.sub(r"\s*::\s*", "::", name["name"])
    return None


def functions(path: pathlib.Path, text: str) -> Iterator[Function]:
    """Yields the functions that are defined in this text."""
    shape = NOT_CODE.sub(blank, text)
    scopes: list[str] = []
    start = 0
    at = 0
    bracket = re.compile(r"[;(){}:\[]")
    while match := bracket.search(shape, at):
        at = match.end()
        if match[0] in "([":
            at = closing(shape, match.start()) + 1
        elif match[0] == ";":
            start = at
        elif match[0] == ":":
            if ACCESS.fullmatch(shape, start, at):
                start = at
        elif match[0] == "}":
            if scopes:
                scopes.pop()
            start = at
        elif match[0] == "{":
            head = without_templates(shape[start:match.start()])
            if SCOPE.match(head):
                scopes.append("")
                start = at
                continue
            flat = top_level(head)
            if (found := CLASS.match(head)) and "(" not in flat.replace("()", ""):
                scopes.append(found["name"])
                start = at
                continue
            at = closing(shape, match.start()) + 1
            if CONSTRUCTOR.search(flat) and re.search(r"[\w>]\s*\Z", flat):
                continue  # a member of an initializer list
            if name := function_name(head):
                first = len(shape[:at]) - len(shape[start:at].lstrip())
                yield Function("::".join([scope for scope in scopes if scope] + [name]), path, first, at)
                start = at


def pattern(text: str) -> re.Pattern:
    """Returns a pattern for this piece of code with any white space between its tokens."""
    tokens = TOKEN.findall(text)
    parts = [re.escape(tokens[0])]
    for before, after in zip(tokens, tokens[1:]):
        words = re.match(r"\w", before[-1]) and re.match(r"\w", after[0])
        parts.append((r"\s+" if words else r"\s*") + re.escape(after))
    return re.compile("".join(parts))


class Tree:
    """The C++ files of a source tree, read when they are needed."""

    def __init__(self, root: pathlib.Path, paths: list[str]):
        self._root = root
        self._paths = [root / path for path in paths]

    @functools.cached_property
    def _by_method(self) -> dict[str, list[Function]]:
        """Returns the functions by the last part of their names."""
        found: dict[str, list[Function]] = {}
        for path in self._paths:
            for function in functions(path, path.read_text()):
                found.setdefault(function.name.rsplit("::", 1)[-1], []).append(function)
        return found

    def names(self) -> list[str]:
        return sorted({function.name for some in self._by_method.values() for function in some})

    def named(self, name: str) -> list[Function]:
        """Returns the functions of this name; leading classes may be left out. A name with a dot is
        that of a file, and stands for all of its text."""
        if "." in name:
            return [Function(name, path, 0, len(path.read_text())) for path in self._paths
                    if path.as_posix().endswith("/" + name)]
        return [function for function in self._by_method.get(name.rsplit("::", 1)[-1], [])
                if ("::" + function.name).endswith("::" + name)]

    def find(self, within: list[Function], text: str) -> list[tuple[Function, int, int]]:
        """Returns (function, begin, end) of each place of this piece of code in these functions."""
        wanted = pattern(text)
        places = {}
        for function in within:
            code = without_comments(function.path.read_text())
            for match in wanted.finditer(code, function.begin, function.end):
                places[function.path, match.start()] = (function, match.start(), match.end())
        return list(places.values())

    def everywhere(self, text: str) -> list[str]:
        """Returns the names of the functions with this piece of code."""
        wanted = pattern(text)
        found = []
        for path in self._paths:
            source = path.read_text()
            code = without_comments(source)
            if not wanted.search(code):
                continue
            there = list(functions(path, source))
            for match in wanted.finditer(code):
                at = [f.name for f in there if f.begin <= match.start() and match.end() <= f.end]
                found.append(at[0] if at else path.relative_to(self._root).as_posix())
        return found
