"""Tests of deploy/salius.bash-completion, in bash."""

import os
import pathlib
import pty
import select
import signal
import subprocess
import tempfile
import time
import unittest

from tests.options import completion, programs

# Does what bash does at the TAB key, and prints the completions.
RUN = r"""
set -u
source "$1"
COMP_LINE=$2 COMP_POINT=${#2}
_salius
printf '%s\n' "${COMPREPLY[@]+"${COMPREPLY[@]}"}"
"""


def complete(line: str, directory: str = "/") -> list[str]:
    """Returns the completions of the command line's last word."""
    done = subprocess.run(["bash", "--norc", "-c", RUN, "bash", str(completion.PATH), line], cwd=directory,
                          capture_output=True, text=True, check=True, timeout=60)
    if done.stderr:
        raise AssertionError(done.stderr)
    return done.stdout.split()


class CompletionTest(unittest.TestCase):
    def test_subcommands_and_their_options(self) -> None:
        self.assertEqual(complete("salius sta"), ["status"])
        self.assertIn("init", complete("salius "))
        self.assertEqual(complete("salius --v"), ["--version"])
        self.assertEqual(complete("salius init --log"), ["--log-max"])
        self.assertEqual(complete("/usr/local/sbin/salius doctor --"), ["--help", "--preload", "--keys", "--json"])
        self.assertEqual(complete("salius nonsense --"), [])

    def test_values_of_a_choice(self) -> None:
        self.assertEqual(complete("salius-recover --progress "), ["auto", "always", "never"])
        self.assertEqual(complete("salius-recover --progress=al"), ["always"])
        self.assertEqual(complete("salius-replica --log-level d"), ["debug"])
        self.assertEqual(complete("salius-recover --timeout "), [])

    def test_lists_of_mount_options(self) -> None:
        self.assertEqual(complete("salius-mount -o log"), ["log_max=", "log=", "log_level="])
        self.assertEqual(complete("salius-mount -o recover="), ["auto", "refuse"])
        self.assertEqual(complete("salius-mount -oro,rec"), ["-oro,recover="])
        # bash has only "1,insec" of the word, and gets what replaces that.
        self.assertEqual(complete("salius-mount -o acks=1,insec"), ["1,insecure"])
        self.assertEqual(complete("salius-mount -o acks=1,recover=re"), ["refuse"])
        self.assertIn("noatime", complete("salius-mount -o no"))

    def test_names_of_files(self) -> None:
        with tempfile.TemporaryDirectory() as directory:
            for name in ("backing", "be hind"):
                (pathlib.Path(directory) / name).mkdir()
            (pathlib.Path(directory) / "file").touch()
            self.assertEqual(complete("salius-mount ba", directory), ["backing"])
            self.assertEqual(complete("salius-recover fi", directory), [])
            self.assertEqual(complete("salius-replica --config fi", directory), ["file"])
            self.assertEqual(complete("salius-replica --config=fi", directory), ["file"])
            self.assertEqual(complete("salius-mount -o log=fi", directory), ["file"])
            self.assertEqual(complete("salius-replica ", directory), [])

    def test_tab_key_of_an_interactive_bash(self) -> None:
        pid, terminal = pty.fork()
        if pid == 0:
            os.execvpe("bash", ["bash", "--norc", "-i"], {**os.environ, "TERM": "dumb", "INPUTRC": "/dev/null"})
        try:
            # bash shows what is typed; only the output has the word in one piece.
            os.write(terminal, f"source '{completion.PATH}'; echo rea''dy\n".encode())
            self.read_until(terminal, b"ready")
            os.write(terminal, b"salius-recover --progress=alw\t")
            self.read_until(terminal, b"--progress=always ")
        finally:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            os.close(terminal)

    def read_until(self, terminal: int, text: bytes) -> None:
        seen, end = b"", time.monotonic() + 60
        while text not in seen:
            self.assertLess(time.monotonic(), end, seen)
            if select.select([terminal], [], [], 1)[0]:
                seen += os.read(terminal, 4096)


class ScriptTest(unittest.TestCase):
    def test_options_of_a_command_are_in_the_script(self) -> None:
        init = programs.Command("salius init", "DIR", [programs.Option(("-q", "--quick")),
                                                       programs.Option(("--mode",), "fast|slow")])
        mount = programs.Command("salius-mount", "A B", [programs.Option(("-o",), "LIST")],
                                 [programs.Option(("log",), "FILE"), programs.Option(("insecure",))], ["ro", "x-*"])
        text = completion.script({"salius init": init, "salius-mount": mount})
        for line in ('["salius"]="init"', '["salius init"]="-q --quick --mode"', '["salius init --mode"]="fast slow"',
                     '["-o log"]="@file"', '_salius_mount_options="log= insecure ro"',
                     "complete -F _salius salius salius-mount"):
            self.assertIn(line, text)


if __name__ == "__main__":
    unittest.main()
