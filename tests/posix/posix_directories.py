"""Large directories through the mount, and the offsets of their listings."""
import ctypes
import errno
import multiprocessing
import os
import random
import signal
import struct
import subprocess
import time

from harness import run
from harness.relay import Relay
from harness.rig import PATIENT
from harness.run import sh, wait_until
from posix_case import MountCase, check

_libc = ctypes.CDLL(None, use_errno=True)


class LargeDirectory(MountCase):

    rig_options = dict(m=2, acks=1, size_mb=1024, mkfs_options=("-N", "250000"))
    count = 100_000

    def test_hundred_thousand_entries_are_listed_once_each(self):
        base = os.path.join(self.rig.backing, os.path.basename(self.dir))
        # Made outside the mount, which has seen only the empty directory: the test is about
        # reading.
        self.settle()
        os.mkdir(os.path.join(base, "big"))
        for i in range(self.count):
            os.close(os.open(os.path.join(base, "big", "entry-%06d" % i), os.O_CREAT | os.O_WRONLY, 0o644))
        big = self.path("big")
        names = os.listdir(big)
        self.assertEqual(len(names), self.count)
        self.assertEqual(len(set(names)), self.count)
        # With attributes: readdirplus.
        with os.scandir(big) as entries:
            sizes = [entry.stat(follow_symlinks=False).st_size for entry in entries]
        self.assertEqual(sizes, [0] * self.count)
        # Names removed during the listing: none of the others is missed or doubled.
        seen = []
        with os.scandir(big) as entries:
            for number, entry in enumerate(entries):
                seen.append(entry.name)
                if number % 100 == 0:
                    os.unlink(entry.path)
        self.assertEqual(sorted(seen), sorted(names))
        left = set(os.listdir(big))
        self.assertEqual(len(left), self.count - len(range(0, self.count, 100)))

    def test_thousands_of_names_made_and_removed_through_the_mount(self):
        for i in range(3000):
            os.close(os.open(self.path("f%d" % i), os.O_CREAT | os.O_WRONLY, 0o644))
        self.assertEqual(len(os.listdir(self.dir)), 3000)
        for i in range(3000):
            os.unlink(self.path("f%d" % i))
        self.assertEqual(os.listdir(self.dir), [])


LIST_OLD_WAY = r"""
typedef unsigned long ulong;
static int call(int number, int a, int b, int c) {
  int result;
  __asm__ volatile("int $0x80" : "=a"(result) : "a"(number), "b"(a), "c"(b), "d"(c) : "memory");
  return result;
}
/* Lists the open directory 3 by getdents64(2), and refuses, as a C library without large-file support does, an offset
   that does not fit; exits with 0 and the number of entries on descriptor 1. */
void _start(void) {
  static char buffer[32768];
  static char text[16];
  int count = 0, bytes, at, end = 15;
  while ((bytes = call(220, 3, (int)buffer, sizeof(buffer))) > 0) {
    for (at = 0; at < bytes; at += *(unsigned short *)(buffer + at + 16), ++count) {
      if (*(int *)(buffer + at + 12) != 0 || *(int *)(buffer + at + 8) < 0) call(1, 75, 0, 0);
    }
  }
  if (bytes < 0) call(1, -bytes, 0, 0);
  do text[--end] = '0' + count % 10; while ((count /= 10) > 0);
  call(4, 1, (int)(text + end), 15 - end);
  call(1, 0, 0, 0);
}
"""


class ListingCase(MountCase):
    """Reads a directory with getdents64(2)."""

    def offsets(self, fd, size=32768):
        """Returns (offset, name) of the entries from one getdents64(2)."""
        buffer = ctypes.create_string_buffer(size)
        got = check(_libc.syscall(217, fd, buffer, size))
        entries, at = [], 0
        while at < got:
            _, offset, length, _ = struct.unpack_from("<QqHB", buffer, at)
            entries.append((offset, buffer.raw[at + 19:at + length].split(b"\0")[0].decode()))
            at += length
        return entries

    def all_of(self, fd, size=32768):
        """Returns the entries from the position of `fd` to the end."""
        entries = []
        while True:
            more = self.offsets(fd, size)
            if not more:
                return entries
            entries += more


class Listings(ListingCase):
    """Offsets of a directory's entries, which 32-bit programs must be able to hold."""

    def filled(self, count):
        for i in range(count):
            os.close(os.open(self.path("entry%06d" % i), os.O_CREAT | os.O_WRONLY))
        fd = os.open(self.dir, os.O_RDONLY | os.O_DIRECTORY)
        self.addCleanup(os.close, fd)
        return fd

    def test_offsets_fit_31_bits_and_lead_to_the_next_entries(self):
        count = 3000
        fd = self.filled(count)
        self.settle()  # names that are not applied yet come last
        entries = self.all_of(fd)
        self.assertEqual(len({name for _, name in entries}), count + 2)
        self.assertEqual(len({offset for offset, _ in entries}), count + 2)
        self.assertLess(max(offset for offset, _ in entries), 1 << 31)
        for at in (2500, 7, 1, 2998, 1200):
            os.lseek(fd, entries[at][0], os.SEEK_SET)
            self.assertEqual(self.offsets(fd, 300)[0], entries[at + 1])
        os.lseek(fd, 0, os.SEEK_SET)
        self.assertEqual(self.all_of(fd, 512), entries)

    def test_offsets_stay_valid_while_entries_change(self):
        fd = self.filled(1000)
        self.settle()  # offsets of names that are not applied yet do not outlive a rewind
        entries = self.all_of(fd)
        for i in range(0, 1000, 3):
            os.unlink(self.path("entry%06d" % i))
        for i in range(200):
            os.close(os.open(self.path("new%06d" % i), os.O_CREAT | os.O_WRONLY))
        left = set(os.listdir(self.dir))
        os.lseek(fd, 0, os.SEEK_SET)
        self.assertEqual({name for _, name in self.all_of(fd)} - {".", ".."}, left)
        for at in (10, 500, 900):
            os.lseek(fd, entries[at][0], os.SEEK_SET)
            seen = {name for _, name in self.all_of(fd)}
            expected = {name for _, name in entries[at + 1:]} & left
            self.assertEqual(expected - seen, set())
            self.assertEqual(seen & {name for _, name in entries[:at + 1]}, set())

    def test_offset_is_valid_in_another_open_of_an_unchanged_directory(self):
        fd = self.filled(300)
        self.settle()
        entries = self.all_of(fd)
        other = os.open(self.dir, os.O_RDONLY | os.O_DIRECTORY)
        self.addCleanup(os.close, other)
        os.lseek(other, entries[100][0], os.SEEK_SET)
        self.assertEqual(self.all_of(other), entries[101:])

    def test_32_bit_program_sees_every_entry(self):
        program = os.path.join(run.current().dir, "list-old-way")
        with open(program + ".c", "w") as f:
            f.write(LIST_OLD_WAY)
        sh("gcc", "-m32", "-static", "-nostdlib", "-fno-pie", "-no-pie", "-O1", "-o", program, program + ".c")
        fd = self.filled(500)
        try:
            done = subprocess.run(["sh", "-c", 'exec 3<"$1"; exec "$0"', program, self.dir], capture_output=True, text=True)
        except OSError as error:
            self.assertEqual(error.errno, errno.ENOEXEC)
            done = None
        if done is None or done.returncode in (126, -signal.SIGSEGV):
            self.skipTest("this kernel runs no 32-bit programs")
        self.assertEqual((done.returncode, done.stdout), (0, "502"), done.stderr)
        self.assertEqual(len(self.all_of(fd)), 502)


class ListingsOfPendingNames(ListingCase):
    """The replicas are a delay away, and mode replicated lasts. So a name is pending for at least
    the time of its record's way there and back."""

    DELAY_MS = 20
    LISTINGS = 60
    BOUND_S = 120

    rig_options = dict(m=2, acks=1, size_mb=1024, init_options=(*PATIENT, "--names", "async"))

    def make_and_remove(self, made, removed):
        """Makes names for ever, and removes each after 1000 others were made. The names from
        `removed` to `made` - 1 are there. The name after them may be there, and the one before
        them."""
        number = 0
        while True:
            os.mknod(self.path("tmp"))
            os.rename(self.path("tmp"), self.path("name%06d" % number))
            made.value = number = number + 1
            if number > 1000:
                removed.value = number - 1000
                os.unlink(self.path("name%06d" % (number - 1001)))

    def issued(self):
        return self.metric("salius_volume_issued_seq")

    def applied(self):
        return self.metric("salius_volume_applied_seq")

    def list_across_applies(self, fd, alive):
        """Lists the whole directory. After the first entries it waits until a part of the names, or
        all, are applied that were pending when the listing began. Returns (the names, whether any
        was pending)."""
        size = random.choice((200, 1000, 32768))
        issued = self.issued()
        os.lseek(fd, 0, os.SEEK_SET)
        entries = self.offsets(fd, size)
        applied = self.applied()
        if applied < issued:
            target = random.randint(int(applied) + 1, int(issued))
            wait_until(lambda: self.applied() >= target, 60, lambda: "%d is not applied; the maker is %s" % (
                target, "alive" if alive() else "dead"))
        return [name for _, name in entries + self.all_of(fd, size)], applied < issued

    def test_names_applied_during_a_listing_are_listed_once(self):
        """Listings of one open directory begin again and again. Each shows every name once that is
        there from its begin to its end."""
        for i in range(len(self.rig.replicas)):
            relay = Relay(self.rig.net, i, self.DELAY_MS, 0, 0, i)
            self.addCleanup(relay.close)
        fd = os.open(self.dir, os.O_RDONLY | os.O_DIRECTORY)
        self.addCleanup(os.close, fd)
        made, removed = (multiprocessing.RawValue(ctypes.c_uint32) for _ in range(2))
        maker = multiprocessing.get_context("fork").Process(target=self.make_and_remove, args=(made, removed))
        maker.start()
        self.addCleanup(maker.join)
        self.addCleanup(maker.kill)
        wait_until(lambda: made.value > 1100, 60, "names are not made")
        across, listings, end = 0, 0, time.monotonic() + self.BOUND_S
        while across < self.LISTINGS and time.monotonic() < end:
            before = made.value
            names, pending = self.list_across_applies(fd, maker.is_alive)
            numbers = [int(name[4:]) for name in names if name.startswith("name")]
            self.assertEqual(len(numbers), len(set(numbers)))
            there = set(range(removed.value, before))
            self.assertEqual(there - set(numbers), set())
            across, listings = across + (pending and bool(there)), listings + 1
        self.assertEqual(across, self.LISTINGS, "in %d listings; mode %s, the maker is %s" % (
            listings, self.mount.mode(), "alive" if maker.is_alive() else "dead"))
