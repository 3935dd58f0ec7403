"""The options of the programs, read from what their --help shows.

--help is printed from the tables that the programs parse with (common/options.h, and kOwn in
client/mount/mount_options.cc).
"""

import dataclasses
import os
import pathlib
import re
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[2]
COLUMN = 28  # at which the explanations begin
PLACES = {"salius": "client/cli/salius", "salius-mount": "client/mount/salius-mount",
          "salius-recover": "recovery/salius-recover", "salius-replica": "replica/salius-replica",
          "mount.salius": "client/mount/salius-mount", "salius-run": "client/run/salius-run"}


@dataclasses.dataclass(frozen=True)
class Option:
    """An option: its names ("-f", "--foreground", or "acks" in a list of -o), and its value as the
    help shows it; "" is a switch."""
    names: tuple[str, ...]
    value: str = ""

    def choices(self) -> list[str]:
        """Returns the values that may be given, or [] when the help does not list them."""
        return self.value.split("|") if re.fullmatch(r"[a-z_|]+", self.value) else []


@dataclasses.dataclass
class Command:
    """A program or a subcommand ("salius init")."""
    name: str
    places: str = ""  # the arguments without a dash, as the usage line has them
    options: list[Option] = dataclasses.field(default_factory=list)
    mount_options: list[Option] = dataclasses.field(default_factory=list)  # Salius' own, of -o
    standard: list[str] = dataclasses.field(default_factory=list)  # the other options of -o

    def names(self) -> set[str]:
        return {name for option in self.options for name in option.names}


def _head(line: str) -> str:
    """Returns the line without the explanation."""
    return (line[:COLUMN] if len(line) >= COLUMN and line[COLUMN - 1] == " " else line).strip()


def parse(name: str, help_text: str) -> Command:
    """Returns what the help of a command says. ValueError for a text that is no such help."""
    command = Command(name)
    usage = re.search(r"^usage: " + re.escape(name) + r" \[OPTION\]\.\.\.(?: (.*))?$", help_text, re.M)
    if usage is None:
        raise ValueError(f"{name} --help has no usage line")
    command.places = usage[1] or ""
    section = ""
    for line in help_text.splitlines():
        if not line.startswith(" "):
            section = line
        elif re.match(r"  \S", line):
            head, _, value = _head(line).partition(" ")
            if section == "Options:":
                command.options.append(Option(tuple(head.split(",")), value))
            elif section.startswith("Options of -o"):
                word, _, value = head.partition("=")
                command.mount_options.append(Option((word,), value))
            elif section in ("Of mount(8):", "Without effect:"):
                command.standard += line.strip().rstrip(",").split(", ")
    return command


def subcommands(help_text: str) -> list[str]:
    """Returns the commands that `salius --help` lists."""
    return re.findall(r"^  ([a-z]+) +\S", help_text, re.M)


def _help(program: str, *words: str) -> str:
    root = pathlib.Path(os.environ.get("SALIUS_BIN") or ROOT / "bazel-bin")
    done = subprocess.run([program, *words, "--help"], executable=root / PLACES[program], capture_output=True,
                          text=True, check=True, timeout=60)
    return done.stdout


def read() -> dict[str, Command]:
    """Returns every command by its name. Runs the built programs, below SALIUS_BIN or bazel-bin."""
    helps = {f"salius {word}": _help("salius", word) for word in subcommands(_help("salius"))}
    helps |= {program: _help(program) for program in PLACES if program != "salius"}
    return {name: parse(name, text) for name, text in helps.items()}
