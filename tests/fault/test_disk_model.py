"""The model disk of the benchmarks (tests/bench/disk_model), below a loop device. A unit test without
time has the models themselves (tests/unit/bench/disk_model_test.cc)."""
import os
import re

from harness.case import Case
from harness.image import mounts
from harness.proc import Proc
from harness.run import binary, current, scratch, sh, wait_until

SIZE = 256 << 20
BOUND_S = 60


class ModelDisk(Case):

    def setUp(self):
        super().setUp()
        base = scratch("model")
        self.file, self.point, self.at_once = (base + end for end in (".img", ".disk", ".at-once"))
        self.log = os.path.join(current().dir, "model.log")
        with open(self.file, "xb") as f:
            f.truncate(SIZE)
        self.addCleanup(os.unlink, self.file)
        os.mkdir(self.point)
        self.addCleanup(os.rmdir, self.point)

    def run_on(self, options, each_ms):
        """Measures a model disk; returns (lines of disk_figures, requests that the model had, how
        many were outstanding at most)."""
        disk = self.own_disk(options)
        loop = sh("losetup", "--find", "--show", "--direct-io=on", os.path.join(self.point, "disk")).stdout.strip()
        try:
            lines = sh(binary("disk_figures"), "--each-ms", each_ms, loop).stdout.splitlines()
        finally:
            sh("losetup", "-d", loop)
        sh("umount", self.point)
        self.assertEqual(disk.wait(BOUND_S), 0, disk.tail())
        self.assertRegex(disk.tail(), r"(?m)^(real-time|ordinary) priority$")
        self.assertRegex(disk.tail(), r"(?m)^late by \d+ us on average and \d+ us at most, \d+ us of CPU each$")
        return (lines, *map(int, re.findall(r"^(\d+) requests, at most (\d+) outstanding$", disk.tail(), re.M)[-1]))

    def own_disk(self, options):
        disk = Proc([binary("disk_model_fs"), "--at-once", self.at_once, *options, self.file, self.point], self.log)
        self.addCleanup(disk.kill)
        wait_until(lambda: self.point in mounts() or not disk.alive(), BOUND_S, disk.tail)
        self.assertTrue(disk.alive(), disk.tail())
        return disk

    def test_all_of_32_outstanding_requests_come_to_the_model(self):
        most = []

        def all_came():
            lines, requests, outstanding = self.run_on(("--model", "hard-disk"), 200)
            self.assertEqual([line.split()[:3] for line in lines], [
                [call, pattern, depth] for call in ("read", "write") for pattern in ("sequential", "random")
                for depth in ("1", "32")])
            self.assertGreaterEqual(requests, 4 + 4 * 32)
            most.append(outstanding)
            return outstanding >= 32
        # A machine that is too busy for 32 threads gets another try.
        wait_until(all_came, BOUND_S, lambda: "at most %s requests were outstanding" % most)

    def test_no_request_comes_to_the_model_at_once(self):
        with open(self.at_once, "x"):
            pass
        lines, requests, _ = self.run_on(("--model", "iops", "--iops", "1"), 1)
        self.assertEqual((len(lines), requests), (8, 0))
