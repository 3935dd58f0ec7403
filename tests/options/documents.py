#!/usr/bin/env python3
"""Checks that man pages and sample configurations have the options of the programs, and no other.

- Each option of a command has an entry in its man page, with all its names, and each entry is an
  option. The same for the options of -o.
- Each option with two hyphens that a man page names anywhere belongs to some program.
- Each key of a sample is an option of its program with underscores, and each option that a file may
  have is there. So a key, an option of -o and a long option have one name.

Prints a line for each problem, and exits 1 if there is one.
"""

import re
import sys
from typing import Iterable

from tests.options import programs

# Every long option of `salius init` is a key of volume.toml, but for these.
ONLY_INIT = {"local", "direct", "copy", "force"}
ONLY_REPLICA = {"config"}
ANSWERS = {"-h", "--help", "-V", "--version"}
# Set while a volume is made, so they are no options of a mount.
ONLY_VOLUME = {"volume", "stable_log", "ballast", "allow_same_host"}
OPTION = re.compile(r"(?<![\w-])--?[A-Za-z][\w-]*")
PAGES = {"salius-mount": "salius-mount.8", "salius-recover": "salius-recover.8",
         "salius-replica": "salius-replica.8", "mount.salius": "mount.salius.8", "salius-run": "salius-run.1"}


def plain(line: str) -> str:
    """Returns a line of a page without the marks of troff and mdoc."""
    if re.match(r"\.(It|Op|Fl|Nm)\b", line):
        line = re.sub(r"\bFl +", "-", line)
    line = re.sub(r"\\f.", "", line.replace(r"\-", "-").replace(r"\&", ""))
    return re.sub(r"^\.\w+ *", "", line).replace('"', "")


def sections(page: str) -> dict[str, str]:
    """Returns the text of each section and subsection of a man page by its title."""
    parts = re.split(r"^\.S[HhSs] +(.*)$", page, flags=re.M)
    return {plain(title): text for title, text in zip(parts[1::2], parts[2::2])}


def entries(text: str) -> list[str]:
    """Returns the heads of the entries of a section: lines after .TP and .TQ, and .It of mdoc."""
    return [plain(found[1] or found[2]) for found in re.finditer(r"^\.T[PQ].*\n(.*)$|^(\.It .*)$", text, re.M)]


def compare(where: str, documented: Iterable[str], there: Iterable[str]) -> list[str]:
    """Returns a line for each name that one side lacks."""
    documented, there = set(documented), set(there)
    return ([f"{where} lacks {name}" for name in sorted(there - documented)] +
            [f"{where} names {name}, which does not exist" for name in sorted(documented - there)])


def standard_names(head: str) -> set[str]:
    """Returns the names of a list such as "ro, [no] dev, x-*"."""
    names = set()
    for word in head.split(","):
        both = re.fullmatch(r"\[ *no *\] *(\w+)", word.strip())
        names |= {both[1], "no" + both[1]} if both else {word.strip()}
    return names


def mount_option_names(heads: list[str], own: set[str]) -> set[str]:
    """Returns the options of -o that these entries name: "acks=N", or a list of standard ones."""
    names = set()
    for head in heads:
        name = head.partition("=")[0].strip()
        names |= {name} if name in own or "," not in head else standard_names(head)
    return names


def page_problems(commands: dict[str, programs.Command], pages: dict[str, str]) -> list[str]:
    """Compares man pages (text by file name) with the commands."""
    problems = []
    known = {name for command in commands.values() for name in command.names()}
    for name, command in commands.items():
        file = PAGES.get(name, "salius.8")
        parts = sections(pages[file])
        text = parts.get(name.upper(), "") if file == "salius.8" else pages[file]
        where = f"docs/man/{file} ({name})"
        if "Values of -o" in parts:
            text = text.replace(parts["Values of -o"], "")
            own = {option.names[0] for option in command.mount_options}
            problems += compare(f"{where}, -o,", mount_option_names(entries(parts["Values of -o"]), own),
                                own | set(command.standard))
        documented = {option for head in entries(text) for option in OPTION.findall(head)}
        answers = ANSWERS if file == "salius.8" else set()
        problems += compare(where, documented - answers, command.names() - answers)
    for file, page in pages.items():
        for line in page.splitlines():
            for option in OPTION.findall(plain(line)):
                if option.startswith("--") and option not in known:
                    problems.append(f"docs/man/{file} names {option}, which no program has")
    return problems


def keys(sample: str) -> set[str]:
    return set(re.findall(r"^([\w-]+) *=", sample, re.M))


def file_keys(command: programs.Command, without: set[str]) -> set[str]:
    """Returns the keys that a file has for the long options of a command."""
    names = {name[2:] for name in command.names() - ANSWERS if name.startswith("--")}
    return {name.replace("-", "_") for name in names - without}


def sample_problems(commands: dict[str, programs.Command], volume: str, replica: str) -> list[str]:
    """Compares the samples with the long options, and the keys of a volume with the options of -o."""
    volume_keys = file_keys(commands["salius init"], ONLY_INIT) | {"volume"}
    own = {option.names[0] for option in commands["salius-mount"].mount_options}
    return (compare("deploy/volume.toml.sample", keys(volume), volume_keys) +
            compare("deploy/replica.toml.sample", keys(replica), file_keys(commands["salius-replica"], ONLY_REPLICA)) +
            [f"{key} of volume.toml is no option of -o" for key in sorted(volume_keys - ONLY_VOLUME - own)])


def main() -> int:
    commands = programs.read()
    pages = {path.name: path.read_text() for path in sorted((programs.ROOT / "docs/man").glob("*.[18]"))}
    samples = [(programs.ROOT / "deploy" / f"{name}.toml.sample").read_text() for name in ("volume", "replica")]
    problems = page_problems(commands, pages) + sample_problems(commands, *samples)
    print("\n".join(problems) if problems else "man pages and samples have every option, and no other")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
