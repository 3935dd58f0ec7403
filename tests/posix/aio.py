"""Asynchronous writes by the kernel's own calls io_submit(2) and io_uring_enter(2), without libaio
and liburing."""
import ctypes
import mmap
import os
import struct

from posix_case import check

_libc = ctypes.CDLL(None, use_errno=True)
SYS_IO_SETUP, SYS_IO_DESTROY, SYS_IO_GETEVENTS, SYS_IO_SUBMIT = 206, 207, 208, 209
SYS_IO_URING_SETUP, SYS_IO_URING_ENTER = 425, 426
IOCB_CMD_PWRITE = 1
IORING_OFF_SQES = 0x10000000
IORING_ENTER_GETEVENTS = 1
IORING_OP_WRITE = 23


def aligned(size):
    """Returns memory aligned for O_DIRECT, and its address."""
    memory = mmap.mmap(-1, size)
    return memory, ctypes.addressof(ctypes.c_char.from_buffer(memory))


class Aio:
    """A context of io_setup(2)."""

    def __init__(self, depth):
        self._depth, self._context = depth, ctypes.c_ulong(0)
        check(_libc.syscall(SYS_IO_SETUP, depth, ctypes.byref(self._context)))
        self._events = ctypes.create_string_buffer(32 * depth)

    def write(self, fd, pieces):
        """Writes `pieces`, each (address, bytes, offset), at once; returns when all have ended."""
        blocks = [ctypes.create_string_buffer(
            struct.pack("<QIIHhIQQqQII", 0, 0, 0, IOCB_CMD_PWRITE, 0, fd, address, length, offset, 0, 0, 0), 64)
            for address, length, offset in pieces]
        pointers = (ctypes.c_void_p * len(blocks))(*[ctypes.addressof(b) for b in blocks])
        submitted = check(_libc.syscall(SYS_IO_SUBMIT, self._context, len(blocks), pointers))
        assert submitted == len(blocks), submitted
        check(_libc.syscall(SYS_IO_GETEVENTS, self._context, len(blocks), len(blocks), self._events, None))
        for i, (_, length, _) in enumerate(pieces):
            result = struct.unpack_from("<QQqq", self._events.raw, 32 * i)[2]
            assert result == length, result

    def close(self):
        check(_libc.syscall(SYS_IO_DESTROY, self._context))


class Uring:
    """A ring of io_uring_setup(2)."""

    def __init__(self, depth):
        parameters = ctypes.create_string_buffer(120)
        self._fd = check(_libc.syscall(SYS_IO_URING_SETUP, depth, parameters))
        raw = struct.unpack("<10I", parameters.raw[:40])
        self._depth = raw[0]
        # In order: head, tail, mask, entries, flags, dropped, array.
        sq = struct.unpack("<8I", parameters.raw[40:72])
        cq = struct.unpack("<8I", parameters.raw[80:112])  # head tail mask entries overflow cqes
        self._tail, self._mask, self._array = sq[1], self._depth - 1, sq[6]
        self._cq_head, self._cq_tail, self._cq_entries, self._cqes = cq[0], cq[1], raw[1], cq[5]
        self._ring = mmap.mmap(self._fd, max(self._array + 4 * self._depth, self._cqes + 16 * self._cq_entries))
        self._sqes = mmap.mmap(self._fd, 64 * self._depth, offset=IORING_OFF_SQES)

    def _word(self, at):
        return struct.unpack_from("<I", self._ring, at)[0]

    def write(self, fd, pieces):
        """Writes as Aio.write does."""
        tail = self._word(self._tail)
        for i, (address, length, offset) in enumerate(pieces):
            slot = (tail + i) & self._mask
            struct.pack_into("<BBHiQQIIQ24x", self._sqes, 64 * slot, IORING_OP_WRITE, 0, 0, fd, offset, address, length,
                             0, length)
            struct.pack_into("<I", self._ring, self._array + 4 * slot, slot)
        struct.pack_into("<I", self._ring, self._tail, (tail + len(pieces)) & 0xffffffff)
        check(_libc.syscall(SYS_IO_URING_ENTER, self._fd, len(pieces), len(pieces), IORING_ENTER_GETEVENTS, None, 0))
        head = self._word(self._cq_head)
        assert (self._word(self._cq_tail) - head) & 0xffffffff == len(pieces)
        for i in range(len(pieces)):
            slot = (head + i) & (self._cq_entries - 1)
            wanted, result = struct.unpack_from("<Qi", self._ring, self._cqes + 16 * slot)
            assert result == wanted, (result, wanted)
        struct.pack_into("<I", self._ring, self._cq_head, (head + len(pieces)) & 0xffffffff)

    def close(self):
        self._ring.close()
        self._sqes.close()
        os.close(self._fd)
