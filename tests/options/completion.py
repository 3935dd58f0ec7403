#!/usr/bin/env python3
"""Makes deploy/salius.bash-completion from the programs' --help.

    python3 -m tests.options.completion            compares the file; exits 1 if it is out of date
    python3 -m tests.options.completion --write    writes it
"""

import re
import sys

from tests.options import programs

PATH = programs.ROOT / "deploy/salius.bash-completion"
HEAD = """\
# bash completion of Salius. Made by `python3 -m tests.options.completion --write`: do not edit.
# shellcheck shell=bash

# By command: its options, and what its arguments without a dash are. By command and option, or by
# -o and option of the mount: the values. @directory and @file are names of files; "" is any text.
"""
FUNCTIONS = r"""
# Adds the words of $2 that begin with $3, each after $1; @directory and @file stand for names.
_salius_words() {
  local word
  case $2 in
    @*)
      compopt -o filenames 2>/dev/null
      mapfile -t COMPREPLY < <(compgen -A "${2#@}" -- "$3")
      COMPREPLY=("${COMPREPLY[@]/#/$1}")
      ;;
    *) for word in $2; do [[ $word != "$3"* ]] || COMPREPLY+=("$1$word"); done ;;
  esac
}

# Completes the last element of a list of -o: $1 is before the list, $2 the list so far.
_salius_mount_list() {
  local before=$1 last=$2
  [[ $2 != *,* ]] || before+=${2%,*}, last=${2##*,}
  if [[ $last == *=* ]]; then
    _salius_words "$before${last%%=*}=" "${_salius_values["-o ${last%%=*}"]-}" "${last#*=}"
  else
    _salius_words "$before" "$_salius_mount_options" "$last"
  fi
}

# Completes the word $2 that follows $3, for the command $1.
_salius_word() {
  local command=$1 word=$2 before=$3
  if [[ $word == --*=* ]]; then
    _salius_words "${word%%=*}=" "${_salius_values["$command ${word%%=*}"]-}" "${word#*=}"
  elif [[ $word == -o?* ]]; then
    _salius_mount_list -o "${word#-o}"
  elif [[ $before == -o ]]; then
    _salius_mount_list '' "$word"
  elif [[ $before == -* && -n ${_salius_values["$command $before"]+set} ]]; then
    _salius_words '' "${_salius_values["$command $before"]}" "$word"
  elif [[ $word == -* ]]; then
    _salius_words '' "${_salius_options[$command]}" "$word"
  else
    _salius_words '' "${_salius_places[$command]-}" "$word"
  fi
}

# bash calls this. A word is what stands between spaces. bash replaces only what follows its last
# = or :, and so COMPREPLY has that part.
_salius() {
  local line=${COMP_LINE:0:COMP_POINT} command word start
  local -a words
  read -ra words <<<"$line"
  [[ $line != *[[:space:]] ]] || words+=('')
  command=${words[0]##*/} word=${words[-1]}
  [[ $command != salius || ${#words[@]} -eq 2 ]] || command="salius ${words[1]}"
  COMPREPLY=()
  [[ -n ${_salius_options[$command]-} ]] || return 0
  _salius_word "$command" "$word" "${words[-2]-}"
  start=${word%"${word##*[=:]}"}
  COMPREPLY=("${COMPREPLY[@]#"$start"}")
  [[ ${#COMPREPLY[@]} -ne 1 || ${COMPREPLY[0]} != *= ]] || compopt -o nospace 2>/dev/null
  return 0
}
"""


def values_of(option: programs.Option) -> str:
    """Returns what completes the option's value."""
    return {"DIR": "@directory", "FILE": "@file"}.get(option.value, " ".join(option.choices()))


def arrays(commands: dict[str, programs.Command], words: list[str]) -> str:
    """Returns the declarations of the arrays. `words`: the subcommands of salius."""
    options = {"salius": "--help --version"}
    places = {"salius": " ".join(words)}
    values: dict[str, str] = {}
    for name, command in commands.items():
        options[name] = " ".join(names for option in command.options for names in option.names)
        # Every argument that has a name is, or may be, a directory.
        if command.places:
            places[name] = "@directory"
        values |= {f"{name} {option.names[-1]}": values_of(option) for option in command.options if option.value}
    mount = commands["salius-mount"]
    values |= {f"-o {option.names[0]}": values_of(option) for option in mount.mount_options if option.value}
    names = [option.names[0] + ("=" if option.value else "") for option in mount.mount_options]
    names += [name for name in mount.standard if not re.search(r"\*|=$", name)]

    def array(name: str, entries: dict[str, str]) -> str:
        lines = [f'  ["{key}"]="{value}"' for key, value in entries.items()]
        return "\n".join([f"declare -gA {name}=(", *lines, ")"])
    return "\n".join([array("_salius_options", options), array("_salius_places", places),
                      array("_salius_values", values), f'_salius_mount_options="{" ".join(names)}"'])


def script(commands: dict[str, programs.Command]) -> str:
    """Returns the text of the file."""
    shown = {name: command for name, command in commands.items() if name != "mount.salius"}
    words = [name.removeprefix("salius ") for name in shown if name.startswith("salius ")]
    called = ["salius"] + [name for name in shown if " " not in name]
    return HEAD + arrays(shown, words) + "\n" + FUNCTIONS + f"\ncomplete -F _salius {' '.join(called)}\n"


def main() -> int:
    text = script(programs.read())
    if sys.argv[1:] == ["--write"]:
        PATH.write_text(text)
        return 0
    if PATH.is_file() and PATH.read_text() == text:
        print(f"{PATH.name} is up to date")
        return 0
    print(f"{PATH.name} is out of date: python3 -m tests.options.completion --write")
    return 1


if __name__ == "__main__":
    sys.exit(main())
