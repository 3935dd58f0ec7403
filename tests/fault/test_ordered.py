"""commit=ordered: synchronous calls wait for nothing, and a power cut leaves a prefix (I2). A dsync
and a notification promise their operations (I1)."""
import ctypes
import errno
import mmap
import os
import sys
import time

from harness import ordered, ordered_writer
from harness.case import Case
from harness.installed import SCRIPT, link_built
from harness.ops import Damage
from harness.ordered_writer import salius
from harness.rig import PATIENT, SMALL_LOG
from harness.run import binary, current, scratch, sh

# A silent replica is waited for, and the disk not asked to help, for five seconds: a quarter of it.
SILENT_FOR_LONG = (*SMALL_LOG, "--delta", "20s")
# Far less than what makes records durable without replicas.
AT_ONCE_S = 2


class PowerCuts(Case):

    def fate(self, rig):
        """Loses the memory of one replica or of none."""
        if self.rng.random() < 0.6:
            self.rng.choice(rig.replicas).reboot()

    def test_power_cut_leaves_a_prefix_with_all_that_was_promised(self):
        rig = self.rig(m=3, acks=2, size_mb=256, init_options=PATIENT)
        last, lost, promised = 0, [], 0
        for _ in self.rounds("power cuts", self.count(20, 200), lambda: "no hole"):
            rig.mount("commit=ordered").wait_whole()
            writer = ordered.OrderedWriter(rig.path, last + 1)
            self.addCleanup(writer.kill)
            writer.wait("done", self.rng.randint(60, 400))
            if self.rng.random() < 0.4:
                rig.disk_ahead(self.rng)
            cut_off = self.rng.choice([[], [0, 1], [1, 2], [0, 1, 2]])
            for i in cut_off:  # nothing becomes durable any more; a replica that is left may hold it
                rig.net.drop(i, udp_only=True)
            time.sleep(self.rng.random() / 20)  # into operations that are not durable
            rig.power_cut(shutdown_first=self.rng.random() < 0.3, also=writer.kill)
            for i in cut_off:
                rig.net.heal(i)
            self.fate(rig)
            done = rig.volume.recover()
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            last = ordered.check(rig.backing)
            self.assertGreaterEqual(last, writer.durable(), "a promised operation is missing")
            self.assertLessEqual(last, writer.last["done"] + 1)
            lost.append(max(0, writer.last["done"] - last))
            promised += writer.times["dsync"] + writer.times["told"]
        self.assertGreater(promised, 0)
        self.assertGreater(sum(lost), 0, "no cut came before everything was durable: it proves nothing")
        self.report("prefixes of %d operations; %d promises kept; operations lost at the end: %s", last, promised, lost)

    def test_control_a_hole_is_found(self):
        rig = self.rig(m=2, acks=1, size_mb=256)
        rig.mount("commit=ordered", mode="replicated")
        writer = ordered.OrderedWriter(rig.path)
        writer.wait("done", 100)
        writer.kill()
        rig.mount_.umount()
        last = ordered.check(rig.backing)
        self.assertGreaterEqual(last, 100)
        # The next operation may remove the oldest, and without the newest it is an earlier prefix.
        kept = rig.backing_file("kept/%d" % sorted(map(int, os.listdir(rig.backing_file("kept"))))[-2])
        os.rename(kept, rig.backing_file("aside"))
        with self.assertRaises(Damage):
            ordered.check(rig.backing)
        os.rename(rig.backing_file("aside"), kept)
        self.assertEqual(ordered.check(rig.backing), last)
        with open(rig.backing_file("slots"), "r+b") as f:
            f.write(ordered_writer.slot(10**9))
        with self.assertRaises(Damage):
            ordered.check(rig.backing)


class Calls(Case):

    def silent(self, options):
        """Returns a mount whose replicas do not answer, with a file that is open on it."""
        rig = self.rig(m=2, acks=2, size_mb=256, init_options=SILENT_FOR_LONG)
        rig.mount(options, mode="replicated")
        file = os.open(rig.file("f"), os.O_RDWR | os.O_CREAT | os.O_SYNC, 0o644)
        self.addCleanup(os.close, file)
        salius.dsync(file)
        for replica in rig.replicas:
            replica.proc.stop()
        self.addCleanup(self.sound, rig)
        return rig, file

    @staticmethod
    def sound(rig):
        for replica in rig.replicas:
            replica.proc.cont()

    def test_synchronous_calls_return_while_replicas_are_silent(self):
        for options in ("commit=ordered", "fsync=osync"):
            with self.subTest(options):
                rig, file = self.silent(options)
                begin = time.monotonic()
                os.pwrite(file, b"data", 0)
                os.fsync(file)
                salius.osync(file)
                os.rename(rig.file("f"), rig.file("g"))
                self.assertLess(time.monotonic() - begin, AT_ONCE_S)
                marks = salius.watermarks(file)
                self.assertLess(marks.durable, marks.issued)
                event = os.eventfd(0, os.EFD_NONBLOCK)
                self.addCleanup(os.close, event)
                ticket = salius.notify(file, event)
                with self.assertRaises(TimeoutError):
                    salius.wait(file, ticket, 0.05)
                with self.assertRaises(BlockingIOError):
                    os.eventfd_read(event)
                self.sound(rig)
                salius.wait(file, ticket, 30)
                salius.dsync(file)
                self.assertEqual(os.eventfd_read(event), 1)
                self.assertGreaterEqual(salius.watermarks(file).durable, ticket)
                self.assertIn(rig.mount_.status()["contract"], ("ordered", "sync,fsync=osync"))

    def test_library_covers_stores_through_a_shared_map(self):
        rig, file = self.silent("commit=ordered")
        library = ctypes.CDLL(binary("libsalius.so"), use_errno=True)
        library.salius_notify.restype = ctypes.c_int64
        library.salius_wait.argtypes = (ctypes.c_int, ctypes.c_int64, ctypes.c_int64)
        with open(rig.file("mapped"), "w+b") as mapped:
            mapped.write(b"old!")
            mapped.flush()
            with mmap.mmap(mapped.fileno(), 4) as view:
                issued = salius.watermarks(mapped).issued
                view[:] = b"new!"
                event = os.eventfd(0, os.EFD_NONBLOCK)
                self.addCleanup(os.close, event)
                ticket = library.salius_notify(mapped.fileno(), event)
                self.assertGreater(ticket, issued, "the store is no record yet")
                self.assertEqual(library.salius_osync(mapped.fileno()), 0)
                self.assertEqual(library.salius_wait(mapped.fileno(), ticket, 10**6), -1)
                self.assertEqual(ctypes.get_errno(), errno.ETIMEDOUT)
                self.sound(rig)
                self.assertEqual(library.salius_dsync(mapped.fileno()), 0)
                self.assertEqual(library.salius_wait(mapped.fileno(), ticket, -1), 0)
                marks = (ctypes.c_uint64 * 4)()
                self.assertEqual(library.salius_watermarks(mapped.fileno(), marks), 0)
                self.assertGreaterEqual(marks[2], ticket)
                self.assertEqual(sorted(marks), list(marks))
        rig.wait_applied()
        with open(rig.backing_file("mapped"), "rb") as f:
            self.assertEqual(f.read(), b"new!")
        self.assertEqual(library.salius_osync(os.open("/dev/null", os.O_RDONLY)), -1)
        self.assertIn(ctypes.get_errno(), (errno.ENOTTY, errno.EINVAL))

    def test_command_and_errors(self):
        rig = self.rig(m=2, acks=1, size_mb=256)
        rig.mount("commit=ordered,osync-exempt=o_sync", mode="replicated")
        folder = os.open(rig.path, os.O_RDONLY)
        self.addCleanup(os.close, folder)
        for command in ("osync", "dsync"):
            done = rig.volume.run("salius", command, rig.path)
            self.assertEqual(done.returncode, 0, done.stderr)
            done = rig.volume.run("salius", command, rig.backing)
            self.assertEqual(done.returncode, 5, done.stderr)
            self.assertIn("no mounted volume", done.stderr)
        self.assertEqual(rig.mount_.status()["contract"], "ordered,osync-exempt=o_sync")
        with self.assertRaises(OSError) as refused:
            salius.notify(folder, folder)
        self.assertEqual(refused.exception.errno, errno.EINVAL)
        with self.assertRaises(OSError) as refused:
            salius.wait(folder, 10**12)
        self.assertEqual(refused.exception.errno, errno.EINVAL)


# Writes, asks for a notification, and waits.
C_PROGRAM = r"""
#include <fcntl.h>
#include <salius.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/eventfd.h>
#include <unistd.h>

int main(int argc, char **argv) {
  const int fd = open(argv[argc - 1], O_RDWR | O_CREAT, 0600);
  const int event = eventfd(0, 0);
  uint64_t times = 0;
  struct salius_watermarks marks;
  if (pwrite(fd, "data", 4, 0) != 4 || salius_osync(fd) != 0) return perror("write"), 1;
  const int64_t ticket = salius_notify(fd, event);
  if (ticket < 0 || salius_wait(fd, ticket, -1) != 0) return perror("wait"), 1;
  if (read(event, &times, sizeof(times)) != (ssize_t)sizeof(times) || times != 1) return 2;
  if (salius_dsync(fd) != 0 || salius_watermarks(fd, &marks) != 0) return perror("dsync"), 1;
  return marks.durable < (uint64_t)ticket ? 3 : 0;
}
"""
PYTHON_PROGRAM = """
import os, sys, salius
fd = os.open(sys.argv[1], os.O_RDWR)
os.pwrite(fd, b"more", 4)
salius.dsync(fd)
"""


class InstalledInterface(Case):

    def install(self, *options):
        """Runs deploy/install.sh with the built programs, for /usr below a directory of the test."""
        return sh(SCRIPT, "--prefix", "/usr", "--destdir", self.root, "--from", self.built, *options).stdout

    def test_programs_build_and_run_with_the_installed_files(self):
        self.root, self.built = map(scratch, ("installed", "built"))
        link_built(self.built)
        self.install()
        usr = os.path.join(self.root, "usr")
        flags = sh("env", "PKG_CONFIG_PATH=%s/lib/pkgconfig" % usr, "PKG_CONFIG_SYSROOT_DIR=%s" % self.root,
                   "pkg-config", "--cflags", "--libs", "salius").stdout.split()
        # pkg-config leaves out what it takes for the compiler's own directories.
        flags += ["-I%s/include" % usr, "-L%s/lib" % usr]
        rig = self.rig(m=2, acks=1, size_mb=256)
        rig.mount("commit=ordered", mode="replicated")
        for language in ("c", "c++"):
            program = os.path.join(current().dir, "program_" + language.replace("+", "x"))
            sh("g++" if language == "c++" else "gcc", "-Wall", "-Wextra", "-Werror", "-o", program, "-x", language, "-",
               "-x", "none", *flags, input=C_PROGRAM)
            sh("env", "LD_LIBRARY_PATH=%s/lib" % usr, program, rig.file("f"))
        sh("env", "PYTHONPATH=%s/lib/python3/dist-packages" % usr, sys.executable, "-c", PYTHON_PROGRAM, rig.file("f"))
        with open(rig.file("f"), "rb") as f:
            self.assertEqual(f.read(), b"datamore")
        self.install("--uninstall")
        left = [os.path.join(folder, name) for folder, _, names in os.walk(self.root) for name in names]
        self.assertEqual(left, [])
