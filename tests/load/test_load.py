"""One replica serves many volumes at full speed: memory within its budget, nothing that grows, fair."""
import concurrent.futures
import os

from bench.driver import Driver
from harness.case import Case
from harness.net import Net
from harness.replica import Replica
from harness.run import wait_until

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
        load = self.own(Driver(["volumes", folder, self.replica.address, "--writers", str(volumes)],
                               netns=self.net.primary))
        loaded = concurrent.futures.ThreadPoolExecutor(1).submit(load.round, seconds)
        # Every volume has been written to.
        wait_until(lambda: self.replica.metrics().get("salius_replica_records_total", 0) > 50 * volumes, 120,
                   "the load does not start")
        begin = self.sample()
        result = loaded.result()
        end = self.sample()
        load.round(0.1)  # an error when a volume is not in mode replicated
        self.report("%d volumes, %d s: %.0f records/s, slowest volume %d, median %d, p99 %.0f us; descriptors %d, "
                    "threads %d, resident %.0f MiB, then %.0f; arena %.0f of %d MiB", volumes, seconds,
                    result["ops_per_second"], result["slowest_writer"], result["median_writer"], result["p99_us"],
                    end[0], end[1], begin[2], end[2], self.arena_mib(), MEMORY_MIB)
        self.assertGreaterEqual(result["slowest_writer"], result["median_writer"] / 2, "the slowest volume")
        self.assertLessEqual(end[0], begin[0] + 2, "descriptors grow")
        self.assertLessEqual(end[1], begin[1] + 2, "threads grow")
        self.assertLessEqual(self.arena_mib(), MEMORY_MIB)
        # Beside the arena, which is locked and so resident from the beginning: the index of each log.
        self.assertLessEqual(end[2], MEMORY_MIB + 200, "memory beside the arena")
