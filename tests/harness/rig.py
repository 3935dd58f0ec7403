"""A whole installation: image, network, replicas, a volume, and a power cut of its primary."""
import contextlib
import ctypes
import os
import shutil

from harness.direct_run import DirectRun
from harness.image import Image
from harness.net import Net
from harness.replica import PORT, Replica
from harness.run import HarnessError
from harness.volume import Mount, Volume

# A quarter of the default: preallocation and locking take most of a test's time.
SMALL_LOG = ("--log-max", "16MiB")
# For tests that an unwanted change of mode, or a checkpoint, would spoil: with these values a pause
# of a busy machine is no partition. A test that waits for a missed replica waits ten times as long
# as this.
PATIENT = (*SMALL_LOG, "--delta", "2s")
LESS_PATIENT = (*SMALL_LOG, "--delta", "500ms")

_libc = ctypes.CDLL(None, use_errno=True)


class Rig:
    """m replicas (started), a fresh file system, and a volume that `salius init` made with f = acks
    and `init_options`. The volume knows the replicas by `names`, or else by their addresses. The
    backing directory is image.path/data. The constructor does not mount it. close() removes
    everything.

    With `direct` it is a direct volume: "mounted" while a salius-run holds it, and programs use it
    under self.wrapper. `user`: its owner, root if there is none.

    With `keys`, an authority (harness/keys.py), replicas and primary have keys of it: replica/rN
    and client/primary."""

    def __init__(self, m, acks, fs="ext4", size_mb=512, init_options=SMALL_LOG, memory="64MiB", start=True,
                 mkfs_options=(), mount_options="", image=None, names=None, direct=False, user=None,
                 keys=None):
        self.m, self.acks, self.direct = m, acks, direct
        self.net = self.image = self.mount_ = None
        self.replicas = []
        try:
            self.net = Net(m)
            self.replicas = [Replica(self.net, i, memory) for i in range(m)]
            for replica, name in zip(self.replicas, names or ()):
                replica.address = "%s:%d" % (name, PORT)
            if keys:
                for replica in self.replicas:
                    replica.keys = keys.replica(replica)
            if start:
                for replica in self.replicas:
                    replica.start()
            self.image = image or Image("image", fs, size_mb, mkfs_options, mount_options)
            self.backing = os.path.join(self.image.path, "data")
            os.mkdir(self.backing)
            if user:
                shutil.chown(self.backing, user, user)
            self.volume = Volume(self.backing, self.net.primary, user,
                                 keys.issue("client/primary") if keys else None)
            self.volume.init([r.address for r in self.replicas], acks, *(("--direct",) if direct else ()), *init_options)
        except BaseException:
            self.close()
            raise

    # ---- mounting

    def mount(self, options="recover=auto", mode=None, **kwargs):
        """Mounts; with `mode` waits until the volume is in it."""
        self.mount_ = DirectRun(self.volume, **kwargs) if self.direct else Mount(self.volume, options, **kwargs)
        if mode:
            self.mount_.wait_mode(mode)
        return self.mount_

    @property
    def path(self):
        return self.backing if self.direct else self.volume.mountpoint

    @property
    def wrapper(self):
        """Returns the words before a program's own with which it uses the volume."""
        return self.mount_.wrapper if self.direct else []

    def file(self, name):
        return os.path.join(self.path, name)

    @property
    def salius_dir(self):
        return os.path.join(self.backing, ".salius")

    def backing_file(self, name):
        return os.path.join(self.backing, name)

    # ---- faults

    def disk_ahead(self, rng):
        """Lets the disk get ahead in a way that a kernel may choose: writes back nothing, the data
        of some files, or everything."""
        choice = rng.choice(["nothing", "some files", "everything"])
        if choice == "everything":
            self.sync_disk()
        elif choice == "some files":
            for folder, dirs, files in os.walk(self.backing):
                if ".salius" in dirs:
                    dirs.remove(".salius")
                for name in files:
                    if rng.random() < 0.4:
                        self._sync_file(os.path.join(folder, name))
        return choice

    def sync_dir(self, name="."):
        """fsyncs a directory of the mount: its names, and everything before them, are durable."""
        fd = os.open(self.file(name), os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def wait_applied(self):
        """Waits until everything issued so far is in the backing directory."""
        issued = self.mount_.status()["issued"]
        self.mount_.wait_status(lambda s: s["applied"] >= issued, 20, "everything applied")

    def sync_disk(self):
        """Puts everything applied so far on the disk, without the volume's knowledge."""
        fd = os.open(self.backing, os.O_RDONLY)
        try:
            if _libc.syncfs(fd) != 0:
                raise OSError(ctypes.get_errno(), "syncfs")
        finally:
            os.close(fd)

    @staticmethod
    def _sync_file(path):
        try:
            fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        except OSError:
            return  # removed already
        try:
            os.fsync(fd)
        except OSError:
            pass  # not a file that syncs
        finally:
            os.close(fd)

    def power_cut(self, shutdown_first=False, also=lambda: None):
        """Kills the primary's host: SIGKILL of the mount daemon (of the coordinator of a direct
        volume) and shutdown of the file system (in the other order with `shutdown_first`), then
        `also` (which kills the programs). The host
        then starts again with the image mounted and nothing else running.

        The programs of a direct volume are sent SIGKILL first (Image.kill_users). On XFS they are
        dead first: fsync(2) of a directory reports success after the shutdown there, though its
        names are lost."""
        if self.direct:
            self.image.kill_users()
        if self.direct and self.image.fs == "xfs":
            also()
            shutdown_first, also = False, lambda: None
        if shutdown_first:
            if self.image.fs == "btrfs":
                raise HarnessError("on btrfs what comes after the shutdown would be acknowledged, and lost with it")
            self.image.shutdown()
        self.mount_.proc.kill()
        if not shutdown_first:
            self.image.shutdown()
        also()
        self.mount_._detach()
        self.mount_ = None
        self.image.umount()
        self.image.mount()

    def close(self):
        """Closes every part, even when one does not end; raises the first error after that."""
        with contextlib.ExitStack() as stack:
            for part in [self.net, self.image, *self.replicas, self.mount_]:
                if part:
                    stack.callback(part.close)
