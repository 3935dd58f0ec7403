#!/usr/bin/env python3
"""Checks that each Bazel target lists the system libraries whose headers its own files include.

All of these headers lie in /usr/include, so Bazel sees no undeclared inclusion. A file that includes
"absl/status/status.h" needs @absl//:status in the deps of each target that compiles or exports it. A
module of Abseil whose headers no file of the target includes is reported too. Where a comprehension
makes many targets, one user among them is enough. third_party/ is left out: it is part of the
libraries' own targets.

usage: check.py

Prints `folder:target: problem` for every problem, and their number. Exits 1 if there is one.
"""

import builtins
import pathlib
import re
import sys
from typing import Any, Callable, Iterable, Iterator, NamedTuple

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
INCLUDE = re.compile(r'^\s*#\s*include\s+["<]([^">]+)[">]', re.M)

# Headers of Abseil whose module does not have the header's name.
ABSL_HEADERS = {
    "absl/algorithm/container.h": "algorithm_container",
    "absl/base/thread_annotations.h": "core_headers",
    "absl/container/btree_map.h": "btree",
    "absl/strings/ascii.h": "strings",
    "absl/strings/escaping.h": "strings",
    "absl/strings/match.h": "strings",
    "absl/strings/numbers.h": "strings",
    "absl/strings/str_cat.h": "strings",
    "absl/strings/str_join.h": "strings",
    "absl/strings/str_replace.h": "strings",
    "absl/strings/str_split.h": "strings",
    "absl/strings/string_view.h": "strings",
    "absl/strings/strip.h": "strings",
    "absl/synchronization/blocking_counter.h": "synchronization",
    "absl/synchronization/mutex.h": "synchronization",
    "absl/synchronization/notification.h": "synchronization",
    "absl/time/clock.h": "time",
}
# Beginnings of other headers' names, and the targets of which one must be listed.
LIBRARIES = {
    "CLI/": ("@cli11//:cli11",),
    "benchmark/": ("@benchmark//:benchmark", "@benchmark//:benchmark_main"),
    "fmt/": ("@spdlog//:spdlog",),
    "fuse3/": ("@fuse3//:fuse3",),
    "gmock/": ("@gtest//:gtest", "@gtest//:gtest_main"),
    "google/protobuf/": ("@grpc//:protobuf", "@grpc//:grpc"),
    "grpcpp/": ("@grpc//:grpc",),
    "gtest/": ("@gtest//:gtest", "@gtest//:gtest_main"),
    "isa-l/": ("@isal//:isal",),
    "nettle/": ("@nettle//:nettle",),
    "nlohmann/": ("@json//:json",),
    "openssl/": ("@libcrypto//:libcrypto", "@libcrypto//:libssl"),
    "postgresql/": ("@libpq//:libpq",),
    "prometheus/": ("@prometheus//:prometheus",),
    "rapidcheck/": ("@rapidcheck//:rapidcheck",),
    "rapidcheck.h": ("@rapidcheck//:rapidcheck",),
    "spdlog/": ("@spdlog//:spdlog",),
    "sqlite3.h": ("@sqlite3//:sqlite3",),
    "systemd/": ("@systemd//:systemd",),
    "toml++/": ("@toml//:toml",),
}

# One target of a BUILD file: the line of the rule that made it, and attributes that name files or targets.
Target = NamedTuple("Target", [("line", int), ("name", str), ("files", list[str]), ("deps", list[str])])


class Rules(dict[str, Any]):
    """The names that a BUILD file can use: each unknown one is a list of options, in capitals, or a rule,
    whose calls are recorded."""

    def __init__(self) -> None:
        super().__init__(glob=lambda *_, **__: [], load=lambda *_, **__: None, package=lambda **_: None,
                         select=lambda cases: [value for values in cases.values() for value in values])
        self.targets: list[Target] = []

    def __missing__(self, name: str) -> Callable[..., None] | list[str]:
        if hasattr(builtins, name):
            raise KeyError(name)
        if name.isupper():
            return []

        def rule(*_: Any, **attributes: Any) -> None:
            files = [*attributes.get("srcs", ()), *attributes.get("hdrs", ())]
            if "src" in attributes:
                files.append(attributes["src"])
            self.targets.append(Target(sys._getframe(1).f_lineno, attributes.get("name", ""), files,
                                       list(attributes.get("deps", ()))))

        return rule


def targets(build: str) -> list[Target]:
    """Returns the targets of a BUILD file's text, which is evaluated as Python."""
    rules = Rules()
    exec(compile(build, "BUILD.bazel", "exec"), rules)
    return rules.targets


def providers(header: str) -> tuple[str, ...]:
    """Returns the targets that provide a header, of which one must be listed; () if it is not a library's."""
    if header.startswith("absl/"):
        return (f"@absl//:{ABSL_HEADERS.get(header, pathlib.PurePath(header).stem)}",)
    return next((labels for start, labels in LIBRARIES.items() if header.startswith(start)), ())


def problems(build: str, read: Callable[[str], str]) -> Iterator[tuple[str, str]]:
    """Yields (target, problem) for a BUILD file's text. `read` returns the text of a file beside it,
    or "" for a label or a generated file."""
    rules: dict[int, list[tuple[Target, set[tuple[str, ...]]]]] = {}
    for target in targets(build):
        needed = {providers(header) for file in target.files for header in INCLUDE.findall(read(file))} - {()}
        rules.setdefault(target.line, []).append((target, needed))
        for labels in sorted(needed):
            if not set(labels) & set(target.deps):
                yield target.name, f"lacks {' or '.join(labels)}"
    for made in rules.values():
        used = {label for _, needed in made for labels in needed for label in labels}
        listed = {label for target, _ in made for label in target.deps if label.startswith("@absl//")}
        for label in sorted(listed - used):
            yield made[0][0].name, f"does not use {label}"


def check(builds: Iterable[pathlib.Path]) -> Iterator[str]:
    """Yields one line for each problem of these BUILD files."""
    for path in builds:
        def read(file: str) -> str:
            source = path.parent / file
            return source.read_text() if ":" not in file and source.is_file() else ""

        for name, problem in problems(path.read_text(), read):
            yield f"{path.parent.relative_to(ROOT)}:{name}: {problem}"


def main() -> int:
    builds = [path for path in sorted(ROOT.glob("**/BUILD.bazel"))
              if not path.relative_to(ROOT).parts[0].startswith(("bazel-", ".", "third_party"))]
    found = list(check(builds))
    print(*found, f"{len(builds)} BUILD files, {len(found)} problems", sep="\n")
    return 1 if found or not builds else 0


if __name__ == "__main__":
    sys.exit(main())
