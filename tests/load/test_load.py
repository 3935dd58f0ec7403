"""One replica serves many volumes at full speed: memory within its budget, nothing that grows, fair."""
import json
import os
import statistics

from harness.case import Case
from harness.net import Net
from harness.proc import Proc
from harness.replica import Replica
from harness.run import binary, current, wait_until

MEMORY_MIB = 1024


class ManyVolumes(Case):

    def setUp(self):
        super().setUp()
        self.net = self.own(Net(1))
        self.replica = self.own(Replica(self.net, 0, "%dMiB" % MEMORY_MIB))
        self.replica.start()

    def sample(self):
        """(descriptors, threads, resident MiB) of the replica."""
        proc = "/proc/%d" % self.replica.proc.pid
        with open(proc + "/status") as f:
            fields = dict(line.split(":", 1) for line in f)
        return (len(os.listdir(proc + "/fd")), int(fields["Threads"]), int(fields["VmRSS"].split()[0]) / 1024)

    def arena_mib(self):
        return sum(os.stat(os.path.join(folder, name)).st_blocks * 512
                   for folder, _, names in os.walk(self.replica.shm) for name in names) / (1 << 20)

    def test_two_hundred_volumes_from_two_hundred_sessions(self):
        volumes, seconds = 200, self.count(20, 600)
        # In memory: two hundred hosts have two hundred disks, and here the notes of all would wait for one.
        folder = "/dev/shm/volumes"
        os.mkdir(folder)
        log = os.path.join(current().dir, "many_volumes.log")
        load = Proc([binary("many_volumes"), "--dir", folder, "--replica", self.replica.address,
                     "--volumes", volumes, "--seconds", seconds], log, netns=self.net.primary, pipe_out=True)
        self.addCleanup(load.kill)
        self.assertEqual(load.popen.stdout.readline(), "ready\n", load.tail())
        # Every volume has been written to.
        wait_until(lambda: self.replica.metrics().get("salius_replica_records_total", 0) > 50 * volumes, 120,
                   "the load does not start")
        begin = self.sample()
        result = json.loads(load.popen.stdout.readline())
        end = self.sample()
        self.assertEqual(load.wait(60), 0, load.tail())
        records = sorted(result["records"])
        median = statistics.median(records)
        self.report("%d volumes, %d s: %d records/s, slowest %d, median %d, fastest %d; descriptors %d, threads %d, "
                    "resident %.0f MiB, then %.0f; arena %.0f of %d MiB", volumes, seconds, sum(records) / seconds,
                    records[0], median, records[-1], end[0], end[1], begin[2], end[2], self.arena_mib(), MEMORY_MIB)
        self.assertEqual(result["errors"], [])
        self.assertEqual(set(result["modes"]), {"replicated"})
        self.assertGreaterEqual(records[0], median / 2, "the slowest volume")
        self.assertLessEqual(end[0], begin[0] + 2, "descriptors grow")
        self.assertLessEqual(end[1], begin[1] + 2, "threads grow")
        self.assertLessEqual(self.arena_mib(), MEMORY_MIB)
        # Beside the arena, which is locked and so resident from the beginning: the index of each log.
        self.assertLessEqual(end[2], MEMORY_MIB + 200, "memory beside the arena")
