"""One replica serves many volumes at full speed: memory within its budget, no growth, fair
shares."""
import collections
import concurrent.futures
import json
import os
import tempfile
import time

from bench.driver import Driver
from harness.case import Case
from harness.net import Net
from harness.replica import Replica
from harness.run import binary, sh, wait_until
from harness.volume import in_netns

MIB = 1 << 20
MEMORY = 1024 * MIB
# The driver's, without header and entry: so the arena holds fewer records than computed.
RECORD = 4096
# The memory beside the arena that docs/replica.md allows the process. The index takes at most 16
# bytes a record. One system call receives at most 64 messages of 64 KiB. (Records in pieces and
# ranges of seqs are bounded as well, but a session here has one record in progress.)
INDEX = 16
RECEIVED = 64 * (64 << 10)
# Outside the replica's control and promised nowhere: gRPC's buffers and threads' heaps for one more
# connection. Its threads are a few, more for a moment when many requests come at once.
CONNECTION = 32 << 10

# In bytes; `granted` is the sum over the volumes, `free` is granted to none.
Sample = collections.namedtuple("Sample", "descriptors threads resident used granted free")


class ManyVolumes(Case):

    def setUp(self):
        super().setUp()
        self.net = self.own(Net(1))
        self.replica = self.own(Replica(self.net, 0, "%dMiB" % (MEMORY // MIB)))
        self.replica.start()
        wait_until(self.measured, 20, "the replica shows no metrics")

    def measured(self):
        try:
            return self.replica.metrics().get("salius_replica_memory_bytes")
        except OSError:  # the metrics start a moment later than the control port
            return 0

    def sample(self):
        proc = "/proc/%d" % self.replica.proc.pid
        with open(proc + "/status") as f:
            fields = dict(line.split(":", 1) for line in f)
        metrics = self.replica.metrics()
        status = json.loads(sh(*in_netns(self.net.primary), binary("salius"), "status", "--replica",
                               self.replica.address, "--json").stdout)
        self.assertEqual((status["memory_bytes"], metrics["salius_replica_memory_bytes"]), (MEMORY, MEMORY))
        return Sample(len(os.listdir(proc + "/fd")), int(fields["Threads"]), int(fields["VmRSS"].split()[0]) << 10,
                      int(metrics["salius_replica_memory_used_bytes"]),
                      sum(volume["memory_bytes"] for volume in status["volumes"]), status["free_bytes"])

    def say(self, seconds, s):
        self.report("%d s: descriptors %d, threads %d, beside the arena %.1f MiB; of %d MiB used %d, granted %d, "
                    "free %d", seconds, s.descriptors, s.threads, (s.resident - MEMORY) / MIB, MEMORY // MIB,
                    s.used // MIB, s.granted // MIB, s.free // MIB)

    @staticmethod
    def fair(result):
        return result["slowest_writer"] >= result["median_writer"] / 2

    def judge(self, volumes, empty, samples):
        """Judges the largest of each figure under the load. `empty`: before the first session.
        `samples`: since every volume was written to."""
        first, most = samples[0], Sample(*map(max, zip(*samples)))
        self.assertGreater(min(s.used for s in samples), 0)
        self.assertLessEqual(most.used, first.granted, "more is used than the sessions were granted")
        self.assertEqual({s.granted for s in samples}, {first.granted}, "grants change while sessions last")
        self.assertLessEqual(most.granted, MEMORY, "more is granted than there is")
        self.assertEqual({s.granted + s.free for s in samples}, {empty.free}, "granted and free are not the whole")
        # The arena is locked, and so resident from the beginning.
        self.assertGreaterEqual(empty.resident, MEMORY)
        connections = max(volumes, most.descriptors - empty.descriptors)
        allowed = RECEIVED + most.granted // RECORD * INDEX + connections * CONNECTION
        grown = most.resident - empty.resident
        self.report("the process grew by %.1f MiB from its start, of %.1f allowed", grown / MIB, allowed / MIB)
        self.assertLessEqual(grown, allowed, "memory beside the arena")

    def judge_kept(self, volumes, empty):
        """Judges what the sessions keep. They are open, and no record is on its way. A connection
        that a busy host gave up, and a thread for it, are gone after a while."""
        last = empty

        def few():
            nonlocal last
            last = self.sample()
            return (last.descriptors <= empty.descriptors + volumes + 2 and
                    last.threads <= empty.threads + volumes // 10)
        wait_until(few, 60, lambda: "descriptors or threads grow: %s, without sessions %s" % (last, empty), 0.2)

    def test_two_hundred_volumes_from_two_hundred_sessions(self):
        volumes, seconds = 200, self.count(20, 600)
        empty = self.sample()
        self.say(0, empty)
        # In memory: two hundred hosts have two hundred disks; here the notes of all would wait for
        # one.
        folder = tempfile.mkdtemp(dir="/dev/shm")
        load = self.own(Driver(["volumes", folder, self.replica.address, "--writers", str(volumes)],
                               netns=self.net.primary))
        loaded = concurrent.futures.ThreadPoolExecutor(1).submit(load.round, seconds)
        # Every volume has been written to.
        wait_until(lambda: self.replica.metrics().get("salius_replica_records_total", 0) > 50 * volumes, 120,
                   "the load does not start")
        wait_until(lambda: self.replica.metrics()["salius_replica_memory_used_bytes"] > 0, 20, "no memory is used")
        began, samples = time.monotonic(), []
        while not loaded.done():
            samples.append(self.sample())
            self.say(time.monotonic() - began, samples[-1])
            concurrent.futures.wait([loaded], self.count(5, 30))
        result = loaded.result()
        if not self.fair(result):
            # A busy host may have disfavoured a writer's thread; a replica does so to it again.
            self.report("the slowest volume had %d records, the median %d: again",
                        result["slowest_writer"], result["median_writer"])
            result = load.round(seconds)
        samples.append(self.sample())
        self.say(time.monotonic() - began, samples[-1])
        load.round(0.1)  # an error when a volume is not in mode replicated
        self.report("%d volumes, %d s: %.0f records/s, slowest volume %d, median %d, p99 %.0f us", volumes, seconds,
                    result["ops_per_second"], result["slowest_writer"], result["median_writer"], result["p99_us"])
        self.assertTrue(self.fair(result), "the slowest volume")
        self.judge(volumes, empty, samples)
        self.judge_kept(volumes, empty)
