"""The list of planted bugs: the files bugs/*.toml.

Each table is one bug, under its name:

    [one_ack_too_few]
    guarantee = "I1"                   # of docs/guarantees.md; only with `tests`
    tests = ["ReplicatorTest.X"]       # the googletests that must fail, each alone
    simulator = "volume"               # the simulator that must find it, or "direct"; true: that of a
                                       # cluster
    in = "Replicator::Recoverable"     # the function; a file's name where there is no function
    old = 'acks >= needed'             # the code to replace, once in that function
    new = 'acks >= needed - 1'

A bug has `tests`, `simulator`, or both. A bug in several places has one table
[[name.places]] for each, with `in`, `old` and `new`.

- A function is found in whichever file defines it. Its namespaces are left out, and leading classes
  may be. Several functions can have the name (overloads): the code is in one of them.
- White space between the tokens of `old` and comments in the code do not count.
"""

import dataclasses
import difflib
import pathlib
import re
import subprocess
import tomllib

from cpp_source import Tree, pattern

ROOT = pathlib.Path(__file__).resolve().parents[2]
LIST = pathlib.Path(__file__).resolve().parent / "bugs"
TEST = re.compile(r"^(?:TYPED_)?TEST(?:_F|_P)?\(\s*(\w+)\s*,\s*(\w+)\s*\)", re.M)


@dataclasses.dataclass(frozen=True)
class Place:
    function: str
    old: str
    new: str


@dataclasses.dataclass(frozen=True)
class Bug:
    name: str
    guarantee: str  # "" if only the simulator finds it
    tests: tuple[str, ...]
    simulator: str  # of tests/sim: "cluster", "volume", "direct", or ""
    places: tuple[Place, ...]


class Misplaced(ValueError):
    """A bug does not fit the code."""


def load() -> list[Bug]:
    """Returns all planted bugs. ValueError if the list itself is wrong."""
    found: dict[str, Bug] = {}
    for path in sorted(LIST.glob("*.toml")):
        for name, entry in tomllib.loads(path.read_text()).items():
            if name in found:
                raise ValueError(f"{path.name}: {name} is in the list twice")
            found[name] = parse(name, entry)
    return list(found.values())


def parse(name: str, entry: dict) -> Bug:
    places = entry.pop("places", None) or [{key: entry.pop(key, "") for key in ("in", "old", "new")}]
    simulator = entry.pop("simulator", "")
    simulator = "cluster" if simulator is True else simulator
    bug = Bug(name, entry.pop("guarantee", ""), tuple(entry.pop("tests", ())), simulator,
              tuple(Place(place["in"], place["old"].strip(), place["new"].strip()) for place in places))
    if entry:
        raise ValueError(f"{name}: unknown {', '.join(entry)}")
    if bool(bug.guarantee) != bool(bug.tests) or not (bug.tests or bug.simulator):
        raise ValueError(f"{name}: needs a guarantee and tests, or a simulator, or all of them")
    if bug.simulator not in ("", "cluster", "volume", "direct"):
        raise ValueError(f"{name}: no simulator {bug.simulator}")
    if not all(place.function and place.old and place.old != place.new for place in bug.places):
        raise ValueError(f"{name}: each place needs `in`, `old` and another `new`")
    return bug


def tracked(*patterns: str) -> list[str]:
    """Returns the files of the work tree, new ones too, that match these Git patterns."""
    listed = subprocess.run(["git", "ls-files", "--cached", "--others", "--exclude-standard", "--", *patterns],
                            cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    return [path for path in listed if (ROOT / path).is_file()]


def shipping_code() -> Tree:
    return Tree(ROOT, tracked("*.cc", "*.h", ":!tests/*"))


def googletests() -> dict[str, str]:
    """Returns the file of each unit test, by `Suite.Name`."""
    return {f"{suite}.{name}": path for path in tracked("tests/unit/*.cc")
            for suite, name in TEST.findall((ROOT / path).read_text())}


def locate(tree: Tree, place: Place) -> tuple[pathlib.Path, int, int]:
    """Returns (file, begin, end) of the code to replace. Misplaced if it is not there once."""
    functions = tree.named(place.function)
    places = tree.find(functions, place.old)
    if len(places) == 1:
        return places[0][0].path, places[0][1], places[0][2]
    if not functions:
        problem = f"no function or file {place.function}; near names: " + ", ".join(near(tree, place.function))
    else:
        where = sorted({function.path.relative_to(ROOT).as_posix() for function in functions})
        problem = f"{place.function} ({', '.join(where)}) has its code {len(places)} times"
    elsewhere = [] if places else tree.everywhere(place.old)
    if elsewhere:
        problem += "; the code is in " + ", ".join(elsewhere[:5])
    raise Misplaced(f"{problem}; its code: {place.old}")


def near(tree: Tree, name: str) -> list[str]:
    """Returns names like this one, those with the same method first."""
    names = tree.names()
    method = name.rsplit("::", 1)[-1]
    same = [other for other in names if other.rsplit("::", 1)[-1] == method]
    return (same + difflib.get_close_matches(name, names, n=5))[:8] or ["none"]


def plant(tree: Tree, bug: Bug) -> dict[pathlib.Path, str]:
    """Returns the new text of each file that the bug changes; writes nothing. Misplaced if it does
    not fit."""
    changes: dict[pathlib.Path, list[tuple[int, int, str]]] = {}
    for place in bug.places:
        path, begin, end = locate(tree, place)
        changes.setdefault(path, []).append((begin, end, place.new))
    texts = {}
    for path, edits in changes.items():
        text = path.read_text()
        for begin, end, new in sorted(edits, reverse=True):
            text = text[:begin] + new + text[end:]
        texts[path] = text
    return texts


def problems(bugs: list[Bug], document: str) -> list[str]:
    """Returns each problem of the list: code or test that is not there, or no row in the document
    of guarantees."""
    tree = shipping_code()
    tests = googletests()
    rows = {tuple(row.split(" | ")) for row in re.findall(r"^\| (I\d+ \| .*) \|$", document, re.M)}
    found = []
    for bug in bugs:
        try:
            plant(tree, bug)
        except Misplaced as problem:
            found.append(f"{bug.name}: {problem}")
        for test in bug.tests:
            if test not in tests:
                close = difflib.get_close_matches(test, tests, n=3)
                found.append(f"{bug.name}: no test {test}; near names: {', '.join(close) or 'none'}")
            if (bug.guarantee, f"`{bug.name}`", f"`{test}`") not in rows:
                found.append(f"{bug.name}: docs/guarantees.md lacks its row: {row(bug, test)}")
    known = {(bug.guarantee, f"`{bug.name}`", f"`{test}`") for bug in bugs for test in bug.tests}
    found += [f"docs/guarantees.md has a row of no planted bug: {' | '.join(row)}" for row in sorted(rows - known)]
    return found


def row(bug: Bug, test: str) -> str:
    return f"| {bug.guarantee} | `{bug.name}` | `{test}` |"
