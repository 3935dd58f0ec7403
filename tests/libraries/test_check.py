"""Tests of check.py: missing and unused libraries, and how BUILD files are read."""

import unittest

from tests.libraries import check

FILES = {
    "a.cc": '#include "absl/status/statusor.h"\n#include "absl/strings/match.h"\n',
    "a.h": "#pragma once\n",
    "b_test.cc": "#include <gtest/gtest.h>\n# include <prometheus/registry.h>\n",
    "c_test.cc": '#include <vector>\n#include "common/check.h"\n// #include "absl/time/time.h"\n',
}


def problems(build: str) -> list[tuple[str, str]]:
    """Returns the problems of a BUILD file beside FILES."""
    return list(check.problems(build, lambda file: FILES.get(file, "")))


class CheckTest(unittest.TestCase):
    def test_listed_libraries_are_fine(self) -> None:
        self.assertEqual(problems('cc_library(name = "a", srcs = ["a.cc"], hdrs = ["a.h"],\n'
                                  '    deps = ["@absl//:statusor", "@absl//:strings"])'), [])

    def test_missing_library_is_found(self) -> None:
        self.assertEqual(problems('cc_library(name = "a", hdrs = ["a.cc"], deps = ["@absl//:statusor"])'),
                         [("a", "lacks @absl//:strings")])

    def test_target_without_deps_is_found(self) -> None:
        self.assertEqual(problems('cc_binary(name = "a", srcs = ["a.cc"])'),
                         [("a", "lacks @absl//:statusor"), ("a", "lacks @absl//:strings")])

    def test_unused_module_is_found(self) -> None:
        self.assertEqual(problems('cc_test(name = "c", srcs = ["c_test.cc"], deps = ["@absl//:time"])'),
                         [("c", "does not use @absl//:time")])

    def test_one_of_several_providers_is_enough(self) -> None:
        build = 'cc_test(name = "b", srcs = ["b_test.cc"], deps = ["@prometheus//:prometheus", "@gtest//:%s"])'
        self.assertEqual(problems(build % "gtest_main"), [])
        self.assertEqual(problems(build % "gtest"), [])
        self.assertEqual(problems(build % "other"), [("b", "lacks @gtest//:gtest or @gtest//:gtest_main")])

    def test_comprehension_is_evaluated(self) -> None:
        build = ('[cc_test(name = n, srcs = [n], deps = d + ["@absl//:statusor"]) for n, d in {\n'
                 '    "a.cc": ["@absl//:strings"], "c_test.cc": []}.items()]')
        self.assertEqual(problems(build), [])
        self.assertEqual(problems(build.replace('["@absl//:strings"], ', "[], ")),
                         [("a.cc", "lacks @absl//:strings")])

    def test_select_and_labels_are_read(self) -> None:
        self.assertEqual(problems('load("//x:y.bzl", "salius_fuzzer")\n'
                                  'salius_fuzzer(name = "a", srcs = ["a.cc", ":made"], deps = ["@absl//:strings"] +\n'
                                  '    select({"//:fuzz": ["@absl//:statusor"], "//conditions:default": []}))'), [])

    def test_module_of_a_header(self) -> None:
        self.assertEqual(check.providers("absl/status/status.h"), ("@absl//:status",))
        self.assertEqual(check.providers("absl/synchronization/mutex.h"), ("@absl//:synchronization",))
        self.assertEqual(check.providers("fuse3/fuse.h"), ("@fuse3//:fuse3",))
        self.assertEqual(check.providers("sys/stat.h"), ())


if __name__ == "__main__":
    unittest.main()
