"""Tests the judgement of bars from files of figures, without measuring anything."""
import contextlib
import io
import json
import os
import tempfile
import unittest

from bench import bars, figures, report
from harness.run import HarnessError

MADE = {"commit": "abc", "cpu": "one", "cpus": 2, "kernel": "6", "day": "today", "command": "x"}


class Directory(unittest.TestCase):

    def setUp(self):
        own = tempfile.TemporaryDirectory()
        self.addCleanup(own.cleanup)
        self.path = own.name

    def write(self, name, kind, results, **made):
        with open(os.path.join(self.path, name + ".json"), "w") as f:
            json.dump({"kind": kind, "made": {**MADE, **made}, "complete": True, "results": results}, f)

    def judge(self):
        """Returns (exit status, the lines that it prints)."""
        with contextlib.redirect_stdout(io.StringIO()) as out:
            status = bars.judge_all(self.path)
        return status, out.getvalue().splitlines()

    def line(self, words):
        return next(line for line in self.judge()[1] if line.startswith(words))


class Bars(Directory):

    def test_bar_includes_its_limit(self):
        self.write("a", "bars", [{"case": "slow-disk", "times": 200, "sqlite_times": 99.96, "seconds": 300},
                                 {"case": "reattach", "seconds": [1, 2, 3], "written": 8 << 30}])
        self.assertRegex(self.line("slow disk: writes"), r"at least 200 +200\.000 +met$")
        self.assertRegex(self.line("slow disk: SQLite"), r"at least 100 +99\.960 +missed$")
        self.assertRegex(self.line("re-attach"), r"less than 2 s +2\.000 s +missed$")
        self.assertEqual(self.judge()[0], 1)

    def test_less_than_the_bar_wants_counts_in_a_smoke_run_only(self):
        results = [{"case": "slow-disk", "times": 300, "sqlite_times": 300, "seconds": 299}]
        self.write("a", "bars", results)
        self.assertRegex(self.line("slow disk: writes"), r"measured with 299 instead of 300 +\?$")
        self.write("a", "bars", results, command="slow-disk --smoke")
        self.assertRegex(self.line("slow disk: writes"), r" 300 +met$")
        self.assertIn("smoke run", self.judge()[1][0])

    def test_an_application_that_lost_something_is_not_met(self):
        result = {"name": "sqlite-wal", "ops_per_second": {}, "salius_to_disk": 4, "direct_to_disk": 5, "unreadable": {}}
        run = {"placement": "packed", "size": 1024, "applications": [result]}
        self.write("a", "applications", run)
        self.assertRegex(self.line("direct, SQLite WAL"), r" 5\.00 +met$")
        self.assertRegex(self.line("SQLite WAL"), r" 4\.00 +met$")
        result["unreadable"] = {"salius": "row 7\nis | gone"}
        self.write("a", "applications", run)
        self.assertRegex(self.line("SQLite WAL"), r"not everything can be read back.*\?$")

    def test_latencies_and_rates_are_set_in_the_right_order(self):
        fast, slow = ({"median": {"p50_us": us, "ops_per_second": 1e6 / us}} for us in (20, 100))
        for writers, placement in ((1, "packed"), (1, "free"), (8, "free"), (8, "packed")):
            self.write("%d%s" % (writers, placement), "peers", [{
                "writers": writers, "placement": placement, "size": 4096,
                "subjects": {"salius": fast, "mount floor": fast, "local disk": slow, "redis": slow, "etcd": slow}}])
        self.assertRegex(self.line("one writer: latency of Redis"), r" 0\.20 +met$")
        self.assertRegex(self.line("8 writers, free: of Redis"), r" 5\.00 +met$")
        self.assertRegex(self.line("etcd: its latency"), r" 5\.00 +missed$")
        self.assertRegex(self.line("etcd, 8 writers"), r" 5\.00 +missed$")
        self.assertRegex(self.line("GlusterFS: its"), r"glusterfs was not measured there +\?$")

    def test_a_peer_that_is_not_installed_is_named_with_its_package(self):
        self.write("a", "peers", [{"writers": 8, "placement": "free", "size": 4096, "subjects": {"salius": {}},
                                   "skipped": {"redis": "skipped: redis is not installed"}, "failed": {}}])
        self.assertRegex(self.line("8 writers, free: of Redis"), r"not measured: skipped: redis is not installed +\?$")

    def test_growth_above_linear_is_missed(self):
        def point(writers, us, packed=True):
            return {"slice": "writers", "writers": writers, "packed": packed,
                    "subjects": {"salius": {"median": {"p50_us": us, "cpu_us_system": 1}}}}
        few = [point(1, 10), point(2, 20), point(8, 40)]
        self.write("a", "matrix", few)
        self.assertRegex(self.line("p50: the most that it grows with writers"), r" 1\.000 +met$")
        self.write("a", "matrix", few + [point(64, 400), {**point(9, 0), "subjects": {}, "failed": "no room"}])
        self.assertRegex(self.line("p50: the most that it grows with writers"), r" 1\.25 +missed$")
        self.write("a", "matrix", [point(1, 10), point(2, 30, packed=False)])
        self.assertRegex(self.line("p50: the most that it grows with writers"), r"no two points of writers +\?$")

    def test_a_bar_without_figures_is_not_met(self):
        self.write("a", "bars", [])
        status, lines = self.judge()
        self.assertEqual(status, 2)
        self.assertEqual(len(lines), 1 + len(bars.BARS))
        self.assertTrue(all(line.endswith("?") for line in lines[1:]), lines)

    def test_figures_that_were_not_made_together_are_refused(self):
        self.write("a", "bars", [])
        self.write("b", "matrix", [], commit="def")
        with self.assertRaisesRegex(HarnessError, "not made together: commit abc and def"):
            bars.Figures(self.path)
        self.write("a", "bars", [], commit=None)
        self.write("b", "bars", [], commit=None)
        with self.assertRaisesRegex(HarnessError, "not made together: commit None"):
            bars.Figures(self.path)

    def test_figure_measured_twice_is_not_judged(self):
        for name in "ab":
            self.write(name, "bars", [{"case": "slow-disk", "times": 300, "sqlite_times": 300, "seconds": 300}])
        self.assertRegex(self.line("slow disk: writes"), r"measured 2 times +\?$")

    def test_file_without_figures_is_refused(self):
        with self.assertRaisesRegex(HarnessError, "has no figures"):
            bars.Figures(self.path)
        for text in ("", "[]", "{}"):
            with open(os.path.join(self.path, "a.json"), "w") as f:
                f.write(text)
            with self.assertRaises(HarnessError):
                bars.Figures(self.path)


class File(Directory):

    def test_a_run_goes_on_only_where_one_like_it_ended(self):
        path = os.path.join(self.path, "a.json")
        file = figures.File(path, "matrix")
        self.assertEqual(file.earlier(), [])
        file.save([1, 2])
        self.assertEqual(figures.File(path, "matrix").earlier(), [1, 2])
        with self.assertRaises(HarnessError):
            figures.File(path, "peers").earlier()
        for name in ("cpu", "command"):
            self.write("a", "matrix", [1], **{**figures.made(), name: "another"})
            with self.assertRaisesRegex(HarnessError, "another"):
                figures.File(path, "matrix").earlier()


class Machine(unittest.TestCase):

    def test_cpus_of_one_name_are_told_apart(self):
        text = "processor\t: 0\nmodel name\t: AMD EPYC\ncpu family\t: 25\nmodel\t\t: 17\nflags\t\t: fpu %s sse\n\n"
        self.assertEqual(figures.cpu(text % "avx512f" + "model name\t: other"), "AMD EPYC (family 25, model 17, AVX-512)")
        self.assertEqual(figures.cpu(text % "avx512fx"), "AMD EPYC (family 25, model 17, no AVX-512)")


class Report(Directory):

    def test_a_point_that_could_not_be_measured_is_named(self):
        lines = report.slice_tables([{"label": "here", "subjects": {"salius": {"median": {"p50_us": 7}}}},
                                     {"label": "there", "subjects": {}, "failed": "no room\nat all"}])
        self.assertTrue(any(line.startswith("| here | 7.0 |") for line in lines), lines)
        self.assertEqual(lines[-1], "Not measured, there: no room")
        self.assertEqual(report.reason("it ended with 1:\nmuch\nthe reason\n"), "it ended with 1: the reason")
        self.assertEqual(report.reason("the reason\nmuch"), "the reason")

    def test_a_page_is_written_whole_and_another_one_stays(self):
        write = lambda tables: report.write_pages(self.path, tables, "commit abc", ["With commit abc:"])
        read = lambda name: open(os.path.join(self.path, name)).read()
        write({"size": ["| old |"], "log": ["| kept |"]})
        open(os.path.join(self.path, "size-free.png"), "w").close()
        write({"size": ["| new |"]})
        self.assertNotIn("old", read("size.md"))
        self.assertTrue(read("size.md").startswith(report.GENERATED))
        self.assertTrue(read("size.md").endswith("\n| new |\n"))
        self.assertIn("[size-free](size-free.png)", read("size.md"))
        self.assertIn("| kept |", read("log.md"))
        self.assertRegex(read("README.md"), r"(?s)With commit abc:.*\(size.md\).*\(log.md\)")
        self.assertNotIn("peers.md", read("README.md"))


if __name__ == "__main__":
    unittest.main()
