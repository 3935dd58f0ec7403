"""A small installation whose disk and replica memory can be kept and put back, many times a minute.

The image lies on a tmpfs, where a sync costs nothing. A power cut is still the file system's
shutdown, so unsynced data is lost. A snapshot is bytes: of the image, and of every replica's shm
directory.
"""
import os

from harness.image import Image
from harness.rig import Rig
from harness.run import wait_until

_CHUNK = 1 << 20
DISK_MB = 32
XFS_MB = 320  # mkfs.xfs refuses less than 300
# The smallest volume, so that a case copies only some megabytes.
SMALL = ("--log-max", "1MiB")
BALLAST = ("--ballast", "1MiB")


def places(replica):
    """Returns the places where a replica keeps its records and its promises."""
    return {"memory": replica.shm, "promises": replica.state}


class Sparse:
    """The bytes of a file, without its holes."""

    def __init__(self, path):
        self.parts = []
        fd = os.open(path, os.O_RDONLY)
        try:
            self.size = os.fstat(fd).st_size
            end = 0
            while end < self.size:
                try:
                    start = os.lseek(fd, end, os.SEEK_DATA)
                except OSError:  # ENXIO: a hole up to the end
                    break
                end = min(os.lseek(fd, start, os.SEEK_HOLE), start + _CHUNK)
                self.parts.append((start, os.pread(fd, end - start, start)))
        finally:
            os.close(fd)

    def write(self, path):
        """Writes them in place: a loop device may be on the file."""
        fd = os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)
        try:
            os.ftruncate(fd, 0)
            os.ftruncate(fd, self.size)
            for offset, data in self.parts:
                os.pwrite(fd, data, offset)
        finally:
            os.close(fd)


def small_image(name, fs="ext4"):
    """Returns a file system on a small sparse file on a tmpfs."""
    size_mb, options = (DISK_MB, ("-b", "4096")) if fs == "ext4" else (XFS_MB, ())
    return Image(name, fs, size_mb, options, directory="/dev/shm")


class Site(Rig):
    """A Rig on such an image. `tau` and `more`: options as salius init takes them. `style`: of the
    writers (ops.py)."""

    def __init__(self, m=3, acks=2, tau="30s", more=(), direct=False, style="mixed", fs="ext4"):
        self.style = style
        super().__init__(m, acks, init_options=(*SMALL, *(() if direct else BALLAST), "--tau", tau, *more), memory="4MiB",
                         image=small_image("crash", fs), direct=direct)

    def write_to_replicas_alone(self, write):
        """Calls write() until its data is neither checkpointed nor in the stable log. (On a busy
        machine the volume is sometimes in mode local.)"""
        def done():
            before = self.mount_.status()
            write()
            after = self.mount_.status()
            return after["mode"] == "replicated" and all(
                before[what] == after[what] for what in ("checkpoint", "stable_log_used_bytes"))
        wait_until(done, 60, "there is always a checkpoint or the stable log")

    def keep_disk(self):
        """Returns the content of the unmounted image."""
        return Sparse(self.image.file)

    def keep_memory(self):
        """Returns the memory of all replicas, which must be stopped, with the promises on their
        disks: [{(place, file): bytes}]. It may be put back at another site, whose paths differ."""
        return [{(place, name): Sparse(os.path.join(path, name))
                 for place, path in places(r).items() for name in os.listdir(path)} for r in self.replicas]

    def put_disk(self, disk, mount=True):
        self.image.umount()
        disk.write(self.image.file)
        if mount:
            self.image.mount()

    def put_memory(self, memory, lost=None):
        """Restores every replica's host and starts its process again. The one with index `lost` has
        its promises, which are on its disk, but no memory."""
        for index, (replica, files) in enumerate(zip(self.replicas, memory)):
            replica.lose_memory()
            replica.lose_promises()
            os.makedirs(replica.shm)
            os.makedirs(replica.state, mode=0o700)
            for (place, name), data in files.items():
                if index == lost and place == "memory":
                    continue
                data.write(os.path.join(places(replica)[place], name))
            replica.launch()
        for replica in self.replicas:
            replica.wait_ready()
