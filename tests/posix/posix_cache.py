"""The kernel's page cache beside the backing files: direct writes beside cached readers and maps.
Also holes, blocks and times of files that are stored into through a map."""
import mmap
import os
import signal
import subprocess
import threading
import time

from aio import Aio, Uring, aligned
from harness.run import sh
from posix_case import FALLOC_KEEP_SIZE, FALLOC_PUNCH_HOLE, FALLOC_ZERO_RANGE, MountCase, fallocate

CREATE = os.O_CREAT | os.O_RDWR
PAGE = 4096
PAGES = 160

READER = """
import mmap, os, sys
path, how = sys.argv[1:]
fd = os.open(path, os.O_RDONLY)
size = os.fstat(fd).st_size
view = mmap.mmap(fd, size, mmap.MAP_SHARED, mmap.PROT_READ) if how == "map" else None
print("ready", flush=True)
while True:
    for at in range(0, size, 4096):
        if view is not None:
            view[at]
            if at % 65536 == 0:
                view.madvise(mmap.MADV_DONTNEED)
        else:
            os.pread(fd, 4096, at)
"""


STORER = """
import mmap, os, sys
path, flags, size = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
fd = os.open(path, flags, 0o644)
os.ftruncate(fd, size)
view = mmap.mmap(fd, size)
os.close(fd)
for line in sys.stdin:
    at, _, data = line.rstrip().partition(" ")
    view[int(at):int(at) + len(data)] = data.encode()
    print("stored", flush=True)
"""


class Storer:
    """A process with a shared map of a file. No other process, not even by a fork, writes its pages
    back."""

    def __init__(self, path, flags, size):
        self.popen = subprocess.Popen(["/usr/bin/python3", "-c", STORER, path, str(flags), str(size)],
                                      stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def store(self, at, data):
        self.popen.stdin.write("%d %s\n" % (at, data))
        self.popen.stdin.flush()
        assert self.popen.stdout.readline() == "stored\n"

    def close(self):
        self.popen.stdin.close()
        self.popen.wait()
        self.popen.stdout.close()


class DirectWrites(MountCase):
    """A direct write replaces the page cache's content of its range before it ends."""

    def threads_write(self, fd, pieces):
        """Writes with pwrite(2) by four threads."""
        def some(mine):
            for memory, at, offset in mine:
                assert os.pwrite(fd, memoryview(memory)[at:at + PAGE], offset) == PAGE
        threads = [threading.Thread(target=some, args=(pieces[i::4],)) for i in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def write_beside(self, how, writer, flags=os.O_RDWR | os.O_DIRECT, first=os.O_RDONLY, rounds=40):
        """Writes a whole file directly, one page each, in rounds, while a process reads it. After
        each round no reader sees old data."""
        path = self.write("file", b"\0" * PAGES * PAGE)
        keep = os.open(path, first)  # decides whether the file is cached
        fd = os.open(path, flags)
        reader = subprocess.Popen(["/usr/bin/python3", "-c", READER, path, how], stdout=subprocess.PIPE)
        memory, address = aligned(PAGES * PAGE)
        engine = {"aio": lambda: Aio(PAGES), "uring": lambda: Uring(256), "threads": lambda: None}[writer]()
        view = mmap.mmap(keep, PAGES * PAGE, mmap.MAP_SHARED, mmap.PROT_READ)
        try:
            reader.stdout.readline()
            for number in range(1, rounds + 1):
                fill = bytes([number])
                memory[:] = fill * len(memory)
                if engine is not None:
                    engine.write(fd, [(address + at, PAGE, at) for at in range(0, len(memory), PAGE)])
                else:
                    self.threads_write(fd, [(memory, at, at) for at in range(0, len(memory), PAGE)])
                reader.send_signal(signal.SIGSTOP)
                self.check_all(path, keep, view, fill, number)
                reader.send_signal(signal.SIGCONT)
        finally:
            reader.kill()
            reader.wait()
            reader.stdout.close()
            if engine is not None:
                engine.close()
            os.close(fd)
            os.close(keep)
            view.close()

    def check_all(self, path, keep, view, fill, number):
        def old(data):
            return sum(data[at:at + 1] != fill for at in range(0, len(data), PAGE))
        self.assertEqual(old(os.pread(keep, PAGES * PAGE, 0)), 0, "old pages by the open handle, round %d" % number)
        self.assertEqual(old(view), 0, "old pages in a map, round %d" % number)
        with open(path, "rb") as f:
            self.assertEqual(old(f.read()), 0, "old pages by a new handle, round %d" % number)
        if number % 4 != 0:
            return
        # The write-back of a store through a map must not contain the data from before the direct
        # write.
        fd = os.open(path, os.O_RDWR)
        with mmap.mmap(fd, PAGES * PAGE) as store:
            for at in range(100, PAGES * PAGE, PAGE):
                store[at] = 0xEE
            store.flush()
        os.close(fd)
        with open(path, "rb") as f:
            data = f.read()
        expected = (fill * 100 + b"\xEE" + fill * (PAGE - 101)) * PAGES
        self.assertEqual(data == expected, True, "a store through a map brought old bytes back, round %d" % number)

    def test_aio_write_beside_buffered_reader_leaves_no_old_page(self):
        self.write_beside("read", "aio")

    def test_aio_write_beside_mapped_reader_leaves_no_old_page(self):
        self.write_beside("map", "aio")

    def test_io_uring_write_beside_buffered_reader_leaves_no_old_page(self):
        self.write_beside("read", "uring")

    def test_io_uring_write_beside_mapped_reader_leaves_no_old_page(self):
        self.write_beside("map", "uring")

    def test_threads_beside_buffered_reader_leave_no_old_page(self):
        self.write_beside("read", "threads")

    def test_threads_beside_mapped_reader_of_a_direct_file_leave_no_old_page(self):
        self.write_beside("map", "threads", first=os.O_RDONLY | os.O_DIRECT)

    def test_synchronous_threads_beside_mapped_reader_leave_no_old_page(self):
        self.write_beside("map", "threads", flags=os.O_RDWR | os.O_SYNC, first=os.O_RDONLY | os.O_SYNC)

    def test_aio_beside_mapped_reader_of_a_direct_file_leaves_no_old_page(self):
        self.write_beside("map", "aio", flags=os.O_RDWR | os.O_DIRECT | os.O_DSYNC, first=os.O_RDONLY | os.O_DIRECT)

    def test_one_worker_answers_direct_writes_beside_a_reader(self):
        """The worker that took the write must be free to answer the reads that the drop of pages
        waits for."""
        rig = self.rig
        rig.mount_.umount()
        type(self).mount = rig.mount(self.mount_options + ",threads=1", mode="replicated")
        try:
            self.write_beside("read", "aio", rounds=5)
            self.write_beside("map", "threads", first=os.O_RDONLY | os.O_DIRECT, rounds=5)
        finally:
            rig.mount_.umount()
            type(self).mount = rig.mount(self.mount_options, mode="replicated")


class StoredMaps(MountCase):
    """A shared map that is stored into and kept: the kernel's pages are newer than the file."""

    SIZE = 8 << 20
    PLACE = 3 << 20

    def stored(self, name, data="precious", flags=CREATE):
        """Returns a map that is still in place; one page of its sparse file was stored into."""
        storer = Storer(self.path(name), flags, self.SIZE)
        self.addCleanup(storer.close)
        storer.store(self.PLACE, data)
        return storer

    def assertHolds(self, path, data=b"precious"):
        with open(path, "rb") as f:
            self.assertEqual(os.fstat(f.fileno()).st_size, self.SIZE)
            f.seek(self.PLACE)
            self.assertEqual(f.read(len(data)), data)

    def test_copies_hold_what_was_stored(self):
        for number, flags in enumerate((CREATE, CREATE | os.O_SYNC, CREATE | os.O_DIRECT)):
            storer = self.stored("disk%d" % number, flags=flags)
            # The second time pages may have been written back, others stored.
            for round_ in range(2):
                storer.store(self.PLACE, "round %02d" % round_)
                source = self.path("disk%d" % number)
                copies = {"cp": ("cp",), "always": ("cp", "--sparse=always"), "install": ("install",),
                          "reflink": ("cp", "--reflink=auto")}
                for name, command in copies.items():
                    sh(*command, source, self.path("copy-" + name))
                    self.assertHolds(self.path("copy-" + name), b"round %02d" % round_)
                sh("tar", "-C", self.dir, "-S", "-cf", self.path("archive"), "disk%d" % number)
                os.makedirs(self.path("out"), exist_ok=True)
                sh("tar", "-C", self.path("out"), "-xf", self.path("archive"))
                self.assertHolds(self.path("out/disk%d" % number), b"round %02d" % round_)

    def test_copy_holds_a_store_made_after_the_holes_were_asked_for(self):
        storer = self.stored("disk")
        fd = self.open("disk", os.O_RDONLY)
        self.assertLessEqual(os.lseek(fd, 0, os.SEEK_DATA), self.PLACE)
        storer.store(self.SIZE - 5, "x")
        self.assertLessEqual(os.lseek(fd, self.PLACE + 2 * PAGE, os.SEEK_DATA), self.SIZE - 5)

    def test_mapped_and_stored_file_is_all_data(self):
        self.stored("disk")
        fd = self.open("disk", os.O_RDONLY)
        self.assertEqual(os.lseek(fd, 0, os.SEEK_DATA), 0)
        self.assertEqual(os.lseek(fd, 5000, os.SEEK_DATA), 5000)
        self.assertEqual(os.lseek(fd, 0, os.SEEK_HOLE), self.SIZE)
        self.assertErrno(6, os.lseek, fd, self.SIZE, os.SEEK_DATA)  # ENXIO
        self.assertErrno(6, os.lseek, fd, self.SIZE, os.SEEK_HOLE)

    def test_mapped_and_stored_file_does_not_look_sparse(self):
        self.stored("disk")
        fd = self.open("disk", os.O_RDONLY)
        self.assertGreaterEqual(os.stat(self.path("disk")).st_blocks * 512, self.SIZE)
        self.assertGreaterEqual(os.fstat(fd).st_blocks * 512, self.SIZE)

    def test_file_sparse_before_it_was_opened_and_stored_into_does_not_look_empty(self):
        with open(self.path("disk"), "wb") as f:
            f.truncate(self.SIZE)
        self.assertEqual(os.stat(self.path("disk")).st_blocks, 0)  # now in the kernel's cache
        self.stored("disk")
        self.assertGreaterEqual(os.stat(self.path("disk")).st_blocks, 8)
        sh("tar", "-C", self.dir, "-S", "-cf", self.path("archive"), "disk")
        os.makedirs(self.path("out"))
        sh("tar", "-C", self.path("out"), "-xf", self.path("archive"))
        self.assertHolds(self.path("out/disk"))

    def test_holes_of_files_without_a_stored_map_are_seen(self):
        fd = self.open("disk", CREATE)
        os.pwrite(fd, b"x" * PAGE, 1 << 20)
        os.ftruncate(fd, self.SIZE)
        self.assertEqual(os.lseek(fd, 0, os.SEEK_DATA), 1 << 20)
        self.assertEqual(os.lseek(fd, 1 << 20, os.SEEK_HOLE), (1 << 20) + PAGE)
        self.assertLess(os.fstat(fd).st_blocks * 512, 1 << 20)
        with mmap.mmap(fd, self.SIZE) as view:  # read, not stored into
            self.assertEqual(view[1 << 20], ord("x"))
            self.assertEqual(view[0], 0)
            self.assertEqual(os.lseek(fd, 0, os.SEEK_DATA), 1 << 20)
        self.assertLess(os.fstat(fd).st_blocks * 512, 1 << 20)

    def test_holes_are_seen_again_when_the_file_was_closed(self):
        storer = self.stored("disk")
        with open(self.path("disk"), "rb") as f:
            self.assertEqual(os.lseek(f.fileno(), 0, os.SEEK_DATA), 0)
        storer.popen.stdin.close()
        storer.popen.wait()
        with open(self.path("disk"), "rb") as f:
            def hole():
                return os.lseek(f.fileno(), 0, os.SEEK_DATA) == self.PLACE
            # The daemon hears of the last close after it has returned.
            self.until(hole, "the hole before the data")

    def test_copy_file_range_copies_what_was_stored(self):
        self.stored("disk")
        fd = self.open("disk", os.O_RDONLY)
        out = self.open("out", CREATE)
        os.ftruncate(out, self.SIZE)
        self.assertEqual(os.copy_file_range(fd, out, PAGE, self.PLACE, 0), PAGE)
        self.assertEqual(os.pread(out, 8, 0), b"precious")

    def test_holes_punched_and_ranges_zeroed_beside_a_stored_map_show_in_it(self):
        """Data dropped with the range is lost, and data stored beside it stays."""
        for flags in (CREATE, CREATE | os.O_SYNC):
            name = "file%d" % flags
            fd = self.open(name, flags)
            os.write(fd, b"x" * 4 * PAGE)
            with mmap.mmap(fd, 4 * PAGE) as view:
                for page in range(4):
                    view[page * PAGE + 5] = ord("s")
                fallocate(fd, FALLOC_PUNCH_HOLE | FALLOC_KEEP_SIZE, PAGE, PAGE)
                fallocate(fd, FALLOC_ZERO_RANGE, 2 * PAGE, PAGE)
                stored = b"x" * 5 + b"s" + b"x" * (PAGE - 6)
                self.assertEqual(view[:], stored + bytes(2 * PAGE) + stored)
                os.ftruncate(fd, 3 * PAGE + 6)
                os.ftruncate(fd, 4 * PAGE)
                self.assertEqual(view[3 * PAGE:], b"x" * 5 + b"s" + bytes(PAGE - 6))
            os.close(fd)
            self.settle()
            self.assertEqual(self.read(name), stored + bytes(2 * PAGE) + b"x" * 5 + b"s" + bytes(PAGE - 6))

    def until(self, condition, what):
        end = time.monotonic() + 20
        while not condition():
            self.assertLess(time.monotonic(), end, what)

    def test_time_that_was_set_outlives_stores_made_before(self):
        for flags in (CREATE, CREATE | os.O_SYNC):
            name = "file%d" % flags
            fd = self.open(name, flags)
            os.write(fd, b"x" * 2 * PAGE)
            view = mmap.mmap(fd, 2 * PAGE)
            view[10] = 1
            os.utime(fd, ns=(10**18, 10**18))
            view.close()
            os.close(fd)
            self.settle()
            self.assertEqual(os.stat(self.path(name)).st_mtime_ns, 10**18)
            self.assertEqual(self.read(name)[10], 1)

    def test_store_after_a_time_was_set_moves_it(self):
        fd = self.open("file", CREATE)
        os.write(fd, b"x" * 2 * PAGE)
        view = mmap.mmap(fd, 2 * PAGE)
        view[10] = 1
        os.utime(fd, ns=(10**18, 10**18))
        view[11] = 1
        view.flush()
        self.assertGreater(os.fstat(fd).st_mtime_ns, 10**18)
        view.close()

    def test_store_through_a_map_takes_no_suid_away(self):
        """As on other file systems: a write does, a store does not."""
        def in_user():
            fd = os.open(self.path("file"), os.O_RDWR)
            with mmap.mmap(fd, PAGE) as view:
                view[0] = 1
                view.flush()
            os.close(fd)
        self.write("file", b"x" * PAGE)
        os.chown(self.path("file"), 65534, 65534)
        os.chmod(self.path("file"), 0o4755)
        os.chmod(self.dir, 0o777)
        self.assertEqual(self.as_nobody(in_user), 0)
        self.assertEqual(os.stat(self.path("file")).st_mode & 0o7777, 0o4755)
