"""The basis of a benchmark: replicas, a volume, its mount, FUSE programs beside it, and a slow
disk. It runs in a network namespace of its own, so that ports are always free; loopback costs the
same there."""
import contextlib
import ctypes
import json
import os
import shutil

from bench import disk
from bench.networks import Loopback, answers
from bench.tools import tool
from harness.image import mounts
from harness.model_disk import AtOnce
from harness.proc import Proc, tail
from harness.run import REPO, HarnessError, NotInTime, binary, current, sh, wait_until
from harness.volume import Mount, Volume

_CLONE_NEWNET = 0x40000000


def enter_network():
    """Gives this process and its children a network of their own, with loopback only."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(_CLONE_NEWNET) != 0:
        raise HarnessError("unshare: " + os.strerror(ctypes.get_errno()))
    sh("ip", "link", "set", "lo", "up")


def place(name):
    """Makes a directory in the run's work directory."""
    path = os.path.join(current().dir, name)
    os.mkdir(path)
    return path


def pinned(cpu):
    """Returns words before a command that keep it on one CPU; none for None."""
    return [] if cpu is None else ["taskset", "-c", str(cpu)]


class Replicas:
    """A salius-replica process on every host of `network`, up after construction."""

    _serial = 0

    def __init__(self, network, memory, cpu=None, options=(), keys=None):
        """`keys`: the authority of the replicas' certificates; None: they have none."""
        if isinstance(network, int):
            network = Loopback(network)
        self.network = network
        self.addresses = [network.address(i) for i in range(network.count)]
        Replicas._serial += 1
        self.shms = ["/dev/shm/%s-bench%d-%s" % (current().id, Replicas._serial, address) for address in self.addresses]
        self.procs = [None] * network.count
        self._keys = [["--keys", keys.issue("replica/r%d" % i, "--hosts", address.rpartition(":")[0])] if keys else []
                      for i, address in enumerate(self.addresses)]
        self._wrapper, self._options = pinned(cpu), ["--memory", memory, "--insecure", "--peer-share", "100", *options]
        try:
            for i, shm in enumerate(self.shms):
                os.makedirs(shm, exist_ok=True)
                self.start(i)
        except BaseException:
            self.close()
            raise

    def start(self, i):
        """Starts replica i and returns when it answers. It finds the memory that a killed
        predecessor left."""
        log = os.path.join(current().dir, "replica%d.log" % i)
        self.procs[i] = Proc(self._wrapper + [binary("salius-replica"), "--listen", self.addresses[i], "--shm-dir",
                                              self.shms[i], "--state-dir", self.shms[i] + "-state", *self._keys[i], *self._options], log, netns=self.network.namespace(i))
        wait_until(lambda: self._up(self.procs[i], i), 60, lambda: "replica is not up:\n" + tail(log))

    def _up(self, proc, i):
        if not proc.alive():
            raise HarnessError("a replica ended with %s:\n%s" % (proc.popen.returncode, proc.tail()))
        return answers(self.network, i)

    def pids(self):
        return [proc.pid for proc in self.procs]

    def close(self):
        for proc in self.procs:
            if proc:
                proc.kill()
        for shm in self.shms:
            shutil.rmtree(shm, ignore_errors=True)
            shutil.rmtree(shm + "-state", ignore_errors=True)


class Serving:
    """A FUSE program of //tests/bench, `argv` without its mount point, mounted after
    construction."""

    def __init__(self, name, argv, cpu=None, netns=None):
        self.path = place(name)
        log = os.path.join(current().dir, name + ".log")
        self.proc = Proc(pinned(cpu) + argv + [self.path], log, netns=netns)
        try:
            wait_until(lambda: self._mounted(), 20, lambda: "%s does not mount:\n%s" % (name, tail(log)))
        except BaseException:
            self.close()
            raise

    def _mounted(self):
        if not self.proc.alive():
            raise HarnessError("it ended with %s:\n%s" % (self.proc.popen.returncode, self.proc.tail()))
        return self.path in mounts()

    def end(self):
        """Unmounts it, and returns the last lines that the program printed then, joined; what it has
        printed so far if it does not end."""
        sh("umount", self.path, check=False)
        with contextlib.suppress(NotInTime):
            wait_until(lambda: not self.proc.alive(), 20, "it does not end")
        return "; ".join(self.proc.tail().splitlines()[-2:])

    def close(self):
        sh("umount", "-l", self.path, check=False)
        self.proc.kill()


class MountedVolume:
    """A new volume in `backing`, mounted and in mode replicated. `keys`: the primary's file of keys;
    None: it has none."""

    def __init__(self, backing, replicas, acks, *init_options, cpu=None, mount_options="", keys=None):
        self.volume = Volume(backing, netns=replicas.network.primary, keys=keys)
        self.volume.init(replicas.addresses, acks, *init_options)
        self.mount = Mount(self.volume, ",".join(filter(None, ["recover=auto", mount_options])), wrapper=pinned(cpu))
        try:
            self.mount.wait_mode("replicated", 60)
        except BaseException:
            self.close()
            raise
        self.path = self.mount.path

    def close(self):
        self.mount.close()


class SlowDisk:
    """ext4 on a loop device over the file of a model disk (disk_model_fs; `options` are its). Mounted
    at `path`. `figures`: the disk's own (bench/disk.py), `figures_ms` for each. `served`: after close(),
    what the model says of its own service: whether the machine's load made its requests longer.

    While at_once() is in force, requests take no time: for what comes before and after a
    measurement."""

    _serial = 0

    def __init__(self, *options, size_mb=4096, figures_ms=1000):
        SlowDisk._serial += 1
        name = "slow%d" % SlowDisk._serial
        self.loop = self.path = self.disk = None
        self.served = ""
        self.file = os.path.join(current().dir, name + ".img")
        self.at_once = AtOnce(self.file + ".at-once")
        try:
            with open(self.file, "xb") as f:
                f.truncate(size_mb << 20)
            self.disk = Serving(name + "-disk", [tool("disk_model/disk_model_fs"), "--at-once", self.at_once.path, *options, self.file])
            self.loop = sh("losetup", "--find", "--show", "--direct-io=on", os.path.join(self.disk.path, "disk")).stdout.strip()
            self.figures = disk.measure(self.loop, figures_ms)
            with self.at_once():
                sh("mkfs.ext4", "-q", "-E", "lazy_itable_init=0,lazy_journal_init=0", self.loop)
            path = place(name)
            sh("mount", self.loop, path)
            self.path = path
        except BaseException:
            self.close()
            raise

    def forget(self):
        """Drops everything of the file system from memory; nothing may use it."""
        sh("umount", self.path, timeout=600)
        sh("mount", self.loop, self.path)

    def close(self):
        if self.path:
            with self.at_once():
                sh("umount", self.path)
        if self.loop:
            sh("losetup", "-d", self.loop)
        if self.disk:
            self.served = self.disk.end()
            self.disk.close()
        if os.path.exists(self.file):
            os.unlink(self.file)


def salius_bench(path, *options, cpu=None, timeout_s=600):
    """Runs `salius bench`; returns {target: {label, median, rounds}}."""
    pin = [] if cpu is None else ["--pin", cpu]
    done = sh(binary("salius"), "bench", path, "--json", *pin, *options, timeout=timeout_s)
    return {target["name"]: target for target in json.loads(done.stdout)["targets"]}
