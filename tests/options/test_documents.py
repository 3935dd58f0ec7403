"""Tests of programs.py and documents.py."""

import unittest

from tests.options import documents, programs

HELP = """Shows it.

usage: salius-mount [OPTION]... BACKING MOUNTPOINT

Options:
  -h,--help                 this text
  -f,--foreground           do not go into
                            the background
  --log-max BYTES           a size
  --progress auto|always|never
                            a bar

Options of -o; those up to datagram override:
  acks=N                    how many
  log_level=debug|info      level
  insecure                  trusted

Of mount(8):
  ro, dev,
  nodev
Without effect:
  x-*, comment=
"""
PAGE = r"""
.SH OPTIONS
.TP
.BR \-h ", " \-\-help
Text.
.TP
.BR \-f ", " \-\-foreground
Text.
.TP
.BI \-\-log\-max " BYTES"
See
.BR \-\-progress .
.TP
.BI \-\-progress " WHEN"
.SS "Values of \-o"
.TP
.BI acks= N
.TP
.BI log_level= LEVEL
.TP
.B insecure
.TP
.BR ro ", [" no ] dev
.TQ
.BR x-* ", " comment=
"""


class ProgramsTest(unittest.TestCase):
    def test_help_is_read(self) -> None:
        command = programs.parse("salius-mount", HELP)
        self.assertEqual(command.places, "BACKING MOUNTPOINT")
        self.assertEqual([option.names for option in command.options],
                         [("-h", "--help"), ("-f", "--foreground"), ("--log-max",), ("--progress",)])
        self.assertEqual(command.options[3].choices(), ["auto", "always", "never"])
        self.assertEqual(command.options[2].choices(), [])
        self.assertEqual([option.names[0] for option in command.mount_options], ["acks", "log_level", "insecure"])
        self.assertEqual(command.standard, ["ro", "dev", "nodev", "x-*", "comment="])

    def test_text_without_usage_is_no_help(self) -> None:
        with self.assertRaises(ValueError):
            programs.parse("salius-mount", "nothing")

    def test_subcommands_are_found(self) -> None:
        self.assertEqual(programs.subcommands("usage: salius COMMAND\n\n  init    make\n  status  show\n"),
                         ["init", "status"])


class DocumentsTest(unittest.TestCase):
    def problems(self, page: str) -> list[str]:
        command = programs.parse("salius-mount", HELP)
        return documents.page_problems({"salius-mount": command}, {"salius-mount.8": page})

    def test_complete_page_has_no_problem(self) -> None:
        self.assertEqual(self.problems(PAGE), [])

    def test_missing_and_surplus_options_are_found(self) -> None:
        self.assertEqual(self.problems(PAGE.replace('.BI \\-\\-log\\-max " BYTES"', "text")),
                         ["docs/man/salius-mount.8 (salius-mount) lacks --log-max"])
        self.assertEqual(self.problems(PAGE.replace("\\-f ", "\\-g ")),
                         ["docs/man/salius-mount.8 (salius-mount) lacks -f",
                          "docs/man/salius-mount.8 (salius-mount) names -g, which does not exist"])
        self.assertEqual(self.problems(PAGE.replace("See", "See \\-\\-gone")),
                         ["docs/man/salius-mount.8 names --gone, which no program has"])

    def test_mount_options_are_compared(self) -> None:
        self.assertEqual(self.problems(PAGE.replace("acks=", "ack=")),
                         ["docs/man/salius-mount.8 (salius-mount), -o, lacks acks",
                          "docs/man/salius-mount.8 (salius-mount), -o, names ack, which does not exist"])
        self.assertEqual(self.problems(PAGE.replace(", [\" no ] dev", ", \" dev")),
                         ["docs/man/salius-mount.8 (salius-mount), -o, lacks nodev"])

    def test_mdoc_entries_are_read(self) -> None:
        heads = documents.entries(".Bl\n.It Fl -shm-dir Ar dir\n.It Fl h , Fl -help\n")
        self.assertEqual([documents.OPTION.findall(head) for head in heads], [["--shm-dir"], ["-h", "--help"]])

    def test_keys_of_samples_are_options(self) -> None:
        def command(name: str, *options: str) -> programs.Command:
            return programs.Command(name, options=[programs.Option((option,)) for option in options])
        mount = programs.Command("salius-mount", mount_options=[programs.Option(("log_max",), "BYTES")])
        commands = {"salius init": command("salius init", "--help", "--log-max", "--copy"), "salius-mount": mount,
                    "salius-replica": command("salius-replica", "--shm-dir", "--config")}
        problems = documents.sample_problems
        self.assertEqual(problems(commands, 'volume = "x"\nlog_max = "1MiB"\n', 'shm_dir = "/x"\n'), [])
        self.assertEqual(problems(commands, 'volume = "x"\nlog_max_bytes = 5\n', 'shm_dir = "/x"\n'),
                         ["deploy/volume.toml.sample lacks log_max",
                          "deploy/volume.toml.sample names log_max_bytes, which does not exist"])
        mount.mount_options.clear()
        self.assertEqual(problems(commands, 'volume = "x"\nlog_max = 1\n', 'shm_dir = "/x"\n'),
                         ["log_max of volume.toml is no option of -o"])


if __name__ == "__main__":
    unittest.main()
