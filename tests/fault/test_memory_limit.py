"""A replica in a memory cgroup that is too small reports it and ends; the kernel kills nothing."""
import os
import shutil

from harness.case import Case
from harness.net import Net
from harness.proc import Proc
from harness.replica import PORT
from harness.run import binary, current, wait_until

V1 = "/sys/fs/cgroup/memory"
V2 = "/sys/fs/cgroup"
LIMIT = 64 << 20


class MemoryLimit(Case):

    def group(self):
        """Makes a memory cgroup of LIMIT bytes, of the version that this host has."""
        v1 = os.path.isdir(V1)
        path = os.path.join(V1 if v1 else V2, "salius-" + current().id)
        os.mkdir(path)
        self.addCleanup(lambda: wait_until(lambda: self._removed(path), 20, path + " stays"))
        limit = os.path.join(path, "memory.limit_in_bytes" if v1 else "memory.max")
        with open(limit, "w") as f:
            f.write(str(LIMIT))
        inner = os.path.join(path, "inner")  # the limit is one level above the process's own group
        os.mkdir(inner)
        self.addCleanup(lambda: wait_until(lambda: self._removed(inner), 20, inner + " stays"))
        return inner, limit

    @staticmethod
    def _removed(path):
        try:
            os.rmdir(path)
        except FileNotFoundError:
            return True
        except OSError:
            return False
        return True

    def replica(self, net, group, memory):
        shm = "/dev/shm/%s-limit" % current().id
        self.addCleanup(shutil.rmtree, shm, True)
        log = os.path.join(current().dir, "limit.log")
        into = "echo $$ >%s/cgroup.procs && exec \"$@\"" % group
        proc = Proc(["sh", "-c", into, "sh", binary("salius-replica"), "--listen", "%s:%d" % (net.ip(0), PORT),
                     "--memory", memory, "--shm-dir", shm, "--state-dir", os.path.join(current().dir, "limit.state"),
                     "--insecure"], log, netns=net.replica(0))
        self.addCleanup(proc.kill)
        return proc

    def test_more_memory_than_the_group_above_allows_is_refused_with_the_figure(self):
        group, limit = self.group()
        proc = self.replica(self.own(Net(1)), group, "96MiB")
        self.assertEqual(proc.wait(30), 1, proc.tail())
        text = proc.tail()
        for part in (limit, str(LIMIT), str(96 << 20), "--memory"):
            self.assertIn(part, text)

    def test_memory_within_the_group_limit_is_served(self):
        group, _ = self.group()
        proc = self.replica(self.own(Net(1)), group, "24MiB")
        wait_until(lambda: "serves on" in proc.tail() or not proc.alive(), 30, "it does not serve")
        self.assertTrue(proc.alive(), proc.tail())
        proc.kill()
