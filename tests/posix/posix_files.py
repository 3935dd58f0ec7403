"""Files through the mount, beyond pjdfstest: writes with flags, space, holes, maps, sizes."""
import ctypes
import errno
import mmap
import os
import shutil
import subprocess
import threading

from harness.run import sh
from posix_case import (FALLOC_COLLAPSE, FALLOC_INSERT, FALLOC_KEEP_SIZE, FALLOC_PUNCH_HOLE, FALLOC_ZERO_RANGE,
                        RWF_NOAPPEND, MountCase, drop_caches, fallocate)

SYNC_WRITES = "salius_fuse_sync_writes_total"
CREATE = os.O_CREAT | os.O_RDWR


class SynchronousWrites(MountCase):

    def counted(self, function):
        before = self.metric(SYNC_WRITES)
        function()
        return self.metric(SYNC_WRITES) - before

    def test_o_sync_and_o_dsync_writes_are_one_request_that_waits(self):
        for flag in (os.O_SYNC, os.O_DSYNC):
            fd = self.open("file%d" % flag, CREATE | flag)
            fsyncs = self.metric("salius_fuse_fsync_seconds_count")
            self.assertEqual(self.counted(lambda: [os.write(fd, b"x" * 100) for _ in range(10)]), 10)
            self.assertEqual(self.metric("salius_fuse_fsync_seconds_count") - fsyncs, 0)

    def test_plain_writes_do_not_wait(self):
        fd = self.open("file", CREATE)
        self.assertEqual(self.counted(lambda: [os.write(fd, b"x" * 100) for _ in range(10)]), 0)

    def test_rwf_dsync_and_rwf_sync_wait_on_a_plain_handle(self):
        fd = self.open("file", CREATE)
        for flag in (os.RWF_DSYNC, os.RWF_SYNC):
            self.assertEqual(self.counted(lambda: os.pwritev(fd, [b"abc"], 0, flag)), 1)

    def test_file_stays_cached_while_a_plain_handle_is_open(self):
        plain = self.open("file", CREATE)
        sync = self.open("file", os.O_RDWR | os.O_SYNC)
        before = self.metric("salius_fuse_fsync_seconds_count")
        os.write(sync, b"cached")
        self.assertEqual(self.metric("salius_fuse_fsync_seconds_count") - before, 1)
        self.assertEqual(os.pread(plain, 10, 0), b"cached")

    def test_direct_phase_then_cached_phase_shows_the_new_bytes(self):
        self.write("file", b"old" * 5000)
        self.assertEqual(self.read("file"), b"old" * 5000)  # now in the page cache
        fd = os.open(self.path("file"), os.O_RDWR | os.O_SYNC)
        with mmap.mmap(fd, 15000, mmap.MAP_PRIVATE, mmap.PROT_READ) as view:
            # A map in the direct phase fills the page cache again.
            self.assertEqual(view[:3], b"old")
            os.pwrite(fd, b"new" * 5000, 0)
            self.assertEqual(os.pread(fd, 15000, 0), b"new" * 5000)
        os.close(fd)
        self.assertEqual(self.read("file"), b"new" * 5000)

    def test_many_threads_write_one_synchronous_file(self):
        fd = self.open("file", CREATE | os.O_DSYNC)

        def work(number):
            for i in range(50):
                os.pwrite(fd, bytes([number]) * 100, (number * 50 + i) * 100)
        threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(self.read("file"), b"".join(bytes([n]) * 5000 for n in range(8)))


class Append(MountCase):

    def append_all(self, fds):
        def work(fd, letter):
            for _ in range(200):
                os.write(fd, letter * 50)
        threads = [threading.Thread(target=work, args=(fd, b"%c" % (65 + i))) for i, fd in enumerate(fds)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        data = self.read("file")
        self.assertEqual(len(data), len(fds) * 200 * 50)
        pieces = [data[i:i + 50] for i in range(0, len(data), 50)]
        for i in range(len(fds)):
            self.assertEqual(pieces.count(b"%c" % (65 + i) * 50), 200)

    def test_appends_of_many_handles_never_overlap(self):
        self.append_all([self.open("file", CREATE | os.O_APPEND) for _ in range(4)])

    def test_synchronous_appends_of_many_handles_never_overlap(self):
        self.append_all([self.open("file", CREATE | os.O_APPEND | os.O_DSYNC) for _ in range(4)])

    def test_rwf_append_ignores_the_offset(self):
        for extra in (0, os.O_SYNC):
            fd = self.open("file%d" % extra, CREATE | extra)
            os.write(fd, b"0123456789")
            os.pwritev(fd, [b"end"], 2, os.RWF_APPEND)
            self.assertEqual(os.pread(fd, 100, 0), b"0123456789end")

    def test_pwrite_noappend_is_honoured_on_an_append_handle(self):
        for extra in (0, os.O_SYNC):
            fd = self.open("file%d" % extra, CREATE | os.O_APPEND | extra)
            os.write(fd, b"0123456789")
            try:
                os.pwritev(fd, [b"xy"], 2, RWF_NOAPPEND)
            except OSError as error:
                if error.errno == errno.EOPNOTSUPP:
                    self.skipTest("RWF_NOAPPEND needs Linux 6.9")
                raise
            self.assertEqual(os.pread(fd, 100, 0), b"01xy456789")

    def test_append_after_truncate_goes_to_the_new_end(self):
        for extra in (0, os.O_SYNC):
            fd = self.open("file%d" % extra, CREATE | os.O_APPEND | extra)
            os.write(fd, b"x" * 5000)
            os.truncate(self.path("file%d" % extra), 10)
            os.write(fd, b"end")
            self.assertEqual(os.pread(fd, 100, 0), b"x" * 10 + b"end")


class Space(MountCase):

    def test_punch_hole_zeroes_frees_and_keeps_the_size(self):
        fd = self.open("file", CREATE)
        os.write(fd, b"x" * (1 << 20))
        os.fsync(fd)
        fallocate(fd, FALLOC_PUNCH_HOLE | FALLOC_KEEP_SIZE, 65536, 131072)
        self.assertEqual(os.pread(fd, 1 << 20, 0), b"x" * 65536 + b"\0" * 131072 + b"x" * ((1 << 20) - 196608))
        self.settle()
        st = os.fstat(fd)
        self.assertEqual(st.st_size, 1 << 20)
        self.assertEqual(st.st_blocks * 512, (1 << 20) - 131072)
        self.assertEqual(os.pread(fd, 131072, 65536), b"\0" * 131072)

    def test_seek_hole_and_data_see_holes_also_before_anything_is_applied(self):
        fd = self.open("file", CREATE)
        os.pwrite(fd, b"x" * 65536, 0)
        os.pwrite(fd, b"x" * 65536, 1 << 20)
        for _ in range(2):
            self.assertEqual(os.lseek(fd, 0, os.SEEK_DATA), 0)
            self.assertEqual(os.lseek(fd, 0, os.SEEK_HOLE), 65536)
            self.assertEqual(os.lseek(fd, 65536, os.SEEK_DATA), 1 << 20)
            self.assertEqual(os.lseek(fd, 1 << 20, os.SEEK_HOLE), (1 << 20) + 65536)
            self.assertErrno(errno.ENXIO, os.lseek, fd, (1 << 20) + 65536, os.SEEK_DATA)
            self.settle()

    def test_fallocate_extends_zero_range_zeroes(self):
        fd = self.open("file", CREATE)
        fallocate(fd, 0, 0, 100000)
        self.assertEqual(os.fstat(fd).st_size, 100000)
        fallocate(fd, FALLOC_KEEP_SIZE, 0, 200000)
        self.assertEqual(os.fstat(fd).st_size, 100000)
        os.pwrite(fd, b"x" * 100000, 0)
        fallocate(fd, FALLOC_ZERO_RANGE, 1000, 5000)
        self.assertEqual(os.pread(fd, 7000, 0), b"x" * 1000 + b"\0" * 5000 + b"x" * 1000)

    def test_collapse_and_insert_range_are_refused(self):
        fd = self.open("file", CREATE)
        os.write(fd, b"x" * 65536)
        for mode in (FALLOC_COLLAPSE, FALLOC_INSERT):
            self.assertErrno(errno.EOPNOTSUPP, fallocate, fd, mode, 4096, 4096)
        self.assertEqual(os.fstat(fd).st_size, 65536)

    def test_copy_file_range_within_and_between_files(self):
        data = os.urandom(3 << 20)
        source = os.open(self.write("source", data), os.O_RDWR)
        target = self.open("target", CREATE)
        copied = 0
        while copied < len(data):
            n = os.copy_file_range(source, target, len(data) - copied, copied, copied)
            self.assertGreater(n, 0)
            copied += n
        self.assertEqual(self.read("target"), data)
        self.assertEqual(os.copy_file_range(source, source, 1000, 0, 100000), 1000)
        os.close(source)
        self.assertEqual(self.read("source"), data[:100000] + data[:1000] + data[101000:])

    def test_offsets_beyond_four_gibibytes(self):
        fd = self.open("file", CREATE)
        places = [(1 << 32) - 3, (5 << 30) + 7, (1 << 40) + 1]
        for place in places:
            os.pwrite(fd, b"mark%d" % place, place)
        os.fsync(fd)
        self.settle()
        for place in places:
            self.assertEqual(os.pread(fd, len(b"mark%d" % place), place), b"mark%d" % place)
        self.assertEqual(os.fstat(fd).st_size, places[-1] + len(b"mark%d" % places[-1]))
        os.ftruncate(fd, (4 << 30) + 1)
        self.assertEqual(os.fstat(fd).st_size, (4 << 30) + 1)
        self.assertEqual(os.pread(fd, 10, (5 << 30) + 7), b"")

    def test_write_beyond_the_largest_file_is_efbig(self):
        fd = self.open("file", CREATE)
        self.assertErrno(errno.EFBIG, os.pwrite, fd, b"x", (1 << 63) - 10)
        self.assertErrno(errno.EFBIG, os.ftruncate, fd, (1 << 63) - 10)

    def test_o_direct_with_unaligned_buffers_offsets_and_lengths(self):
        fd = self.open("file", CREATE | os.O_DIRECT)
        os.write(fd, b"odd length")
        os.pwrite(fd, b"offset", 4097)
        self.assertEqual(os.pread(fd, 3, 4), b"len")
        self.assertEqual(os.pread(fd, 100, 4097), b"offset")

    def test_one_large_write_and_read(self):
        data = os.urandom((5 << 20) + 12345)
        for flags in (0, os.O_SYNC):
            fd = self.open("file%d" % flags, CREATE | flags)
            self.assertEqual(os.write(fd, data), len(data))
            self.assertEqual(os.pread(fd, len(data) + 10, 0), data)


class Maps(MountCase):

    def shared_map(self, flags):
        fd = self.open("file%d" % flags, CREATE | flags)
        os.ftruncate(fd, 100000)
        with mmap.mmap(fd, 100000) as view:
            view[5000:5005] = b"hello"
            view.flush()
            self.assertEqual(os.pread(fd, 5, 5000), b"hello")
            os.pwrite(fd, b"world", 70000)
            self.assertEqual(view[70000:70005], b"world")
        os.close(fd)
        drop_caches()
        self.assertEqual(self.read("file%d" % flags)[4999:5006], b"\0hello\0")

    def test_shared_writable_map_and_msync(self):
        self.shared_map(0)

    def test_shared_writable_map_of_a_file_opened_synchronous(self):
        self.shared_map(os.O_SYNC)

    def test_msync_of_a_map_is_durable(self):
        fd = self.open("file", CREATE)
        os.ftruncate(fd, 8192)
        before = self.metric("salius_fuse_fsync_seconds_count")
        with mmap.mmap(fd, 8192) as view:
            view[0:4] = b"data"
            view.flush()
        self.assertGreaterEqual(self.metric("salius_fuse_fsync_seconds_count"), before + 1)

    def test_programs_run_from_the_mount(self):
        for flags in (0, os.O_SYNC):
            name = self.path("true%d" % flags)
            fd = os.open(name, CREATE | flags, 0o755)
            with open("/bin/true", "rb") as f:
                os.write(fd, f.read())
            os.close(fd)
            self.assertEqual(sh(name).returncode, 0)


class OpenFiles(MountCase):

    def test_truncating_open_of_a_running_program_is_refused(self):
        program = self.path("sleep")
        shutil.copy("/bin/sleep", program)
        size = os.path.getsize("/bin/sleep")
        running = subprocess.Popen([program, "60"])
        self.addCleanup(running.wait)
        self.addCleanup(running.kill)
        for flags in (os.O_WRONLY, os.O_RDWR, os.O_RDONLY | os.O_TRUNC, os.O_WRONLY | os.O_TRUNC):
            with self.assertRaises(OSError) as refused:
                os.open(program, flags)
            self.assertEqual(refused.exception.errno, errno.ETXTBSY)
            self.assertEqual(os.path.getsize(program), size)
        self.assertIsNone(running.poll())

    def test_unlinked_open_file_lives_until_it_is_closed(self):
        fd = self.open("file", CREATE)
        os.write(fd, b"before")
        os.unlink(self.path("file"))
        self.assertEqual(os.fstat(fd).st_nlink, 0)
        os.write(fd, b" after")
        os.fsync(fd)
        self.settle()
        self.assertEqual(os.pread(fd, 100, 0), b"before after")
        os.fchmod(fd, 0o600)
        os.ftruncate(fd, 3)
        self.assertEqual(os.fstat(fd).st_size, 3)
        self.assertEqual(os.listdir(self.dir), [])

    def test_file_replaced_by_rename_lives_until_it_is_closed(self):
        fd = self.open("file", CREATE)
        os.write(fd, b"old")
        self.write("new", b"new")
        os.rename(self.path("new"), self.path("file"))
        self.assertEqual(os.pread(fd, 10, 0), b"old")
        self.assertEqual(os.fstat(fd).st_nlink, 0)
        self.assertEqual(self.read("file"), b"new")

    def test_o_trunc_empties_for_all_handles(self):
        first = self.open("file", CREATE)
        os.write(first, b"x" * 10000)
        self.open("file", os.O_RDWR | os.O_TRUNC)
        self.assertEqual(os.fstat(first).st_size, 0)
        self.assertEqual(os.pread(first, 10, 0), b"")

    def test_reading_handle_cannot_write(self):
        self.write("file", b"x")
        fd = self.open("file", os.O_RDONLY)
        self.assertErrno(errno.EBADF, os.write, fd, b"y")

    def test_times_of_a_write_survive_the_cache_and_the_apply(self):
        self.write("file", b"data")
        before = os.stat(self.path("file"))
        self.settle()
        after = os.stat(self.path("file"))
        self.assertEqual((before.st_mtime_ns, before.st_size, before.st_ino),
                         (after.st_mtime_ns, after.st_size, after.st_ino))


class FileHandle(ctypes.Structure):
    _fields_ = [("bytes", ctypes.c_uint), ("type", ctypes.c_int), ("handle", ctypes.c_ubyte * 128)]


class FileHandles(MountCase):

    def test_handle_of_a_forgotten_file_never_opens_another(self):
        """An NFS server keeps handles; a node that the kernel has forgotten leaves its memory to
        the next one."""
        count = 300
        for i in range(count):
            self.write("a%d" % i, b"a%d" % i)
            self.write("b%d" % i, b"b%d" % i)
        self.settle()
        libc = ctypes.CDLL(None, use_errno=True)
        handles = []
        for i in range(count):
            handle, mount_id = FileHandle(bytes=128), ctypes.c_int()
            name = self.path("a%d" % i).encode()
            if libc.name_to_handle_at(-100, name, ctypes.byref(handle), ctypes.byref(mount_id), 0) != 0:
                # Linux 6.9: the mount says that it has none.
                self.assertEqual(ctypes.get_errno(), errno.EOPNOTSUPP)
                self.assertEqual(handles, [])
                return
            handles.append(handle)
        self.settle()  # the kernel forgets all of them
        others = [open(self.path("b%d" % i), "rb") for i in range(count)]
        root = os.open(self.dir, os.O_RDONLY)
        for i, handle in enumerate(handles):
            fd = libc.open_by_handle_at(root, ctypes.byref(handle), os.O_RDONLY)
            if fd < 0:
                self.assertEqual(ctypes.get_errno(), errno.ESTALE)
                continue
            self.assertEqual(os.read(fd, 100), b"a%d" % i)
            os.close(fd)
        os.close(root)
        for file in others:
            file.close()
