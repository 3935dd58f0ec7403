"""Records every write and flush of a file system to its disk: qemu-storage-daemon's `blklogwrites`.

    file system -> loop device -> FUSE export of qemu-storage-daemon -> blklogwrites -> image file
                                                                            \\-> log

The log has the format of the kernel's dm-log-writes: a superblock, then for each request a sector
and its data. The sector uses 32 bytes: first sector, number of sectors, flags, length. The export
serves one request at a time, so the log's order is the order in which requests ended. The loop
device has no FUA: the kernel sends write and flush instead, and only a flush orders writes.
"""
import os
import shutil
import struct

from crash.site import Sparse
from harness.proc import Proc
from harness.run import HarnessError, current, wait_until

_MAGIC = 0x6A736677736872
_SECTOR = 512
_FLUSH, _FUA, _DISCARD = 1, 2, 4
# The log is sparse: only written bytes take memory.
_LOG_BYTES = 2 << 30
BLOCK = 4096  # of the file system; a write reaches the disk block by block


class BlockLog:
    """Stands between `image` and its file from now on. self.base is the image before the first
    request."""

    _serial = 0

    def __init__(self, image):
        if not shutil.which("qemu-storage-daemon"):
            raise HarnessError("qemu-storage-daemon is not installed: deploy/packages.sh")
        BlockLog._serial += 1
        stem = "/dev/shm/%s-log%d" % (current().id, BlockLog._serial)
        self.image, self._log, self._export = image, stem + ".log", stem + ".export"
        self._daemon = None
        for path, size in ((self._log, _LOG_BYTES), (self._export, 0)):
            with open(path, "xb") as f:
                f.truncate(size)
        image.umount()
        image.detach()
        self.base = Sparse(image.file)
        self._daemon = Proc([
            "qemu-storage-daemon",
            "--blockdev", "driver=file,node-name=disk,filename=" + image.file,
            "--blockdev", "driver=file,node-name=log,filename=" + self._log,
            "--blockdev", "driver=blklogwrites,node-name=logged,file=disk,log=log,log-sector-size=%d" % _SECTOR,
            "--export", "type=fuse,id=export,node-name=logged,writable=on,mountpoint=" + self._export],
            os.path.join(current().dir, "qemu%d.log" % BlockLog._serial))
        wait_until(self._serves, 20, lambda: "no export; log:\n" + self._daemon.tail())
        image.attach(self._export)
        image.mount()

    def _serves(self):
        if not self._daemon.alive():
            raise HarnessError("qemu-storage-daemon ended; log:\n" + self._daemon.tail())
        return os.stat(self._export).st_size == self.base.size

    def requests(self):
        """Returns [(offset, data)] of all requests so far, in order; a flush is (None, None)."""
        found = []
        with open(self._log, "rb") as f:
            magic, version = struct.unpack("<QQ", f.read(16))
            if (magic, version) != (_MAGIC, 1):
                raise HarnessError("not a log of writes: %x %d" % (magic, version))
            f.seek(_SECTOR)
            while True:
                sector, count, flags, _ = struct.unpack("<QQQQ", f.read(_SECTOR)[:32])
                if flags == 0 and count == 0:
                    return found
                if flags & ~(_FLUSH | _FUA):
                    raise HarnessError("request with flags %x" % flags)
                if count:
                    found.append((sector * _SECTOR, f.read(count * _SECTOR)))
                if flags & (_FLUSH | _FUA):
                    found.append((None, None))

    def position(self):
        """Returns the number of requests so far."""
        return len(self.requests())

    def close(self):
        """Closes the image, then the log. Idempotent."""
        self.image.close()
        if self._daemon:
            self._daemon.terminate()
            self._daemon = None
        for path in (self._log, self._export):
            if os.path.exists(path):
                os.unlink(path)


class Disk:
    """A state of the disk: the base and the blocks written since. A Player makes it; write() works
    as in Sparse."""

    def __init__(self, base, blocks):
        self._base, self._blocks = base, blocks

    def write(self, path):
        self._base.write(path)
        with open(path, "r+b") as f:
            for offset, data in self._blocks.items():
                f.seek(offset)
                f.write(data)


class Player:
    """The requests of a log, and the disks that they can leave."""

    def __init__(self, base, requests):
        self.base, self.requests = base, requests
        self.flushes = [i for i, (offset, _) in enumerate(requests) if offset is None]

    def last_flush(self, position):
        """Returns the index after the last flush among the first `position` requests; 0 without
        one."""
        return max((i + 1 for i in self.flushes if i < position), default=0)

    def pieces(self, first, end):
        """Returns the writes of requests [first, end) block by block: [(offset, data)]."""
        found = []
        for offset, data in self.requests[first:end]:
            if offset is None:
                continue
            if offset % BLOCK or len(data) % BLOCK:
                raise HarnessError("a write of %d bytes at %d is not made of blocks" % (len(data), offset))
            found += [(offset + i, data[i:i + BLOCK]) for i in range(0, len(data), BLOCK)]
        return found

    def disk(self, position, later=()):
        """Returns the disk after the first `position` requests, and then the pieces in `later`."""
        blocks = dict(self.pieces(0, position))
        blocks.update(later)
        return Disk(self.base, blocks)
