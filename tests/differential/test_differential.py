"""The same random operations on a mount and on a bare file system of the same kind
(tests/differential/main.cc). Every errno, listing and stat is compared.

With names=async the replicas are a delay away and the window is small, so there are always names
and attributes that are not applied. With names=wait there are fewer operations: a difference there
has another cause."""
import contextlib
import os
import re
import subprocess
import time

from harness import fetch, image
from harness.case import Case
from harness.image import Image
from harness.model_disk import ModelDisk
from harness.relay import Relay
from harness.rig import LESS_PATIENT, PATIENT
from harness.run import binary

DELAY_MS = 2
REPLICAS = 2
STAMP_WRITERS = 3  # and as many readers
KINDS, DATA_KINDS = 40, 25  # that are drawn (drawer.cc)
BOUND_S = 600  # for the operations of one test; tenfold with --long


def run(*words, bound_s=BOUND_S):
    """Runs the program to its end. Returns CompletedProcess with its output."""
    return subprocess.run([binary("differential"), *map(str, words)], stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=bound_s)


class DifferentialCase(Case):
    def bare(self, fs):
        """Returns a new bare file system's directory. A sync costs nothing there."""
        why = image.missing(fs)
        if why:
            self.skipTest(why)
        made = self.own(Image("bare", fs, 4096, mount_options="noatime", directory="/dev/shm"))
        top = os.path.join(made.path, "data")
        os.mkdir(top)
        return top

    def run_through(self, *words):
        """Runs the program, which must find no difference. Returns its output."""
        done = run(*words, bound_s=BOUND_S * self.count(1, 10))
        self.assertEqual(0, done.returncode, done.stdout)
        self.report("%s", done.stdout.strip().replace("\n", "; "))
        return done.stdout

    def run_operations(self, operations, *words, kinds=KINDS):
        """Runs operations, which must find no difference; each of `kinds` kinds must have succeeded
        often."""
        printed = self.run_through("--seed", self.rng.randrange(1 << 32), "--operations", operations, *words)
        counts = re.findall(r" ([a-z-]+) (\d+)/\d+", printed)
        self.assertEqual(len(counts), kinds, printed)
        self.assertEqual([], [kind for kind, succeeded in counts if int(succeeded) < operations // 10_000])

    def compare(self, fs, operations, mount_options, *options, delay_ms=0):
        """Runs operations on a mount and beside it, then compares the trees at rest as well."""
        top = self.bare(fs)
        rig = self.rig(m=REPLICAS, acks=1, fs=fs, size_mb=4096, init_options=LESS_PATIENT, mount_options="noatime")
        mount = rig.mount("noatime,log_max=1MiB," + mount_options, mode="replicated")
        began = int(time.time())
        with contextlib.ExitStack() as cables:
            for i in range(REPLICAS if delay_ms else 0):
                relay = Relay(rig.net, i, delay_ms, delay_ms / 4, 0, self.rng.randrange(1 << 30))
                cables.enter_context(contextlib.closing(relay))
            self.run_operations(operations, "--late-ctime", *options, rig.path, top)
            status = mount.status()
        self.assertEqual("replicated", status["mode"], status)
        mount.umount()
        self.run_through("--compare", began, rig.backing, top)
        rig.image.check()


class Data(DifferentialCase):
    """Mostly operations on data of few files, which drop its pages from memory all the time. The
    mount is on a model disk, so there are always writes that are not applied. Every fetch policy
    that the programs know; more than a hundred thousand operations in the ordinary run, millions
    with --long. Then several writers and readers of one file, which do not wait for one another."""

    OPERATIONS = 160_000  # of all policies together

    def run_policy(self, options, operations):
        top = self.bare("ext4")
        disk = self.own(ModelDisk("--model", "ssd", size_mb=1024, directory="/dev/shm", mount_options="noatime"))
        with disk.at_once():
            rig = self.rig(m=REPLICAS, acks=1, image=disk.image, init_options=PATIENT)
            mount = rig.mount(",".join(filter(None, ("noatime", options))), mode="replicated")
        began = int(time.time())
        self.run_operations(operations, "--data", "--backing", rig.backing, "--own", 2, "--shared", 2, rig.path, top,
                            kinds=DATA_KINDS)
        self.run_through("--stamps", STAMP_WRITERS, "--seed", self.rng.randrange(1 << 32), "--operations", operations // 2,
                         "--backing", rig.backing, rig.path)
        os.unlink(rig.file("stamps"))
        self.assertEqual("replicated", mount.status()["mode"])
        with disk.at_once():
            mount.umount()
            self.run_through("--compare", began, rig.backing, top)
            disk.image.check()
            rig.close()
            disk.close()

    def test_every_policy_is_a_plain_file_system(self):
        options = fetch.options()
        for policy, words in options.items():
            with self.subTest(policy):
                self.report("fetch=%s", policy)
                self.run_policy(words, self.count(self.OPERATIONS, 25 * self.OPERATIONS) // len(options))
        if fetch.unknown():
            self.report(fetch.unknown())


class NamesThatDoNotWait(DifferentialCase):
    """A million operations in the ordinary run; ten million with --long."""

    def test_ext4(self):
        self.compare("ext4", self.count(600_000, 6_000_000), "names=async", "--own", 3, "--shared", 3,
                     delay_ms=DELAY_MS)

    def test_xfs(self):
        self.compare("xfs", self.count(400_000, 4_000_000), "names=async", "--own", 3, "--shared", 3,
                     delay_ms=DELAY_MS)


class NamesThatWait(DifferentialCase):
    def test_ext4(self):
        self.compare("ext4", self.count(60_000, 1_000_000), "names=wait")

    def test_xfs(self):
        self.compare("xfs", self.count(60_000, 1_000_000), "names=wait")


class Controls(DifferentialCase):
    """Two bare file systems do not differ. One that leaves out a single operation does."""

    def test_two_bare_file_systems_are_alike(self):
        for fs in ("ext4", "xfs"):
            self.run_operations(60_000, self.bare(fs), self.bare(fs))

        self.run_operations(60_000, "--data", self.bare("ext4"), self.bare("ext4"), kinds=DATA_KINDS)

    def find_one_left_out(self, *words):
        """Leaves out one operation drawn by chance. A later one can hide that: an overwrite, a removal. Then it
        draws again, at most four times."""
        for _ in range(5):
            number = self.rng.randrange(1, 200)
            done = run("--operations", 20_000, "--plant", number, "--seed", self.rng.randrange(1 << 32), *words)
            if done.returncode != 0:
                self.assertEqual(1, done.returncode, done.stdout)
                self.assertIn("DIFFERENCE", done.stdout)
                return
            self.report("change %d was left out, and nothing differs", number)
        self.fail("five changes were left out, one in each run, and nothing differs:\n%s" % done.stdout)

    def test_one_write_left_out_is_found_by_a_reader(self):
        for _ in range(3):
            self.find_one_left_out("--stamps", STAMP_WRITERS, self.bare("ext4"))

    def test_one_change_left_out_is_found(self):
        for words in ((), (), (), ("--data",), ("--data",)):
            self.find_one_left_out(*words, self.bare("ext4"), self.bare("ext4"))
