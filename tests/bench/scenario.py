"""One point of the matrix: the writes, the writers, the replicas and the network. All its subjects
are measured in one interleaved run: Salius, and every floor below it."""
import contextlib
import dataclasses
import os
import resource
import shutil
import threading

from bench.driver import Driver
from bench.networks import GROUP, EchoServers, Loopback, Veth
from bench.rounds import Subject
from bench.setup import MountedVolume, Replicas, Serving, pinned, place
from bench.tools import tool
from harness.keys import Keys
from harness.run import HarnessError, wait_until

NETWORKS = {"loopback": Loopback, "veth1500": lambda n: Veth(n, 1500), "veth9000": lambda n: Veth(n, 9000)}
LOG_GROWTH_MIB = 512   # for the records that a measurement itself writes
OTHER_MIB = 4          # of a replica's memory for each other volume
FILL_S = 300
FLOOR_THREADS = 4  # more give no gain on two CPUs
KEPT_SIZES = ("64KiB", "256KiB", "1MiB")  # where copies and checksums dominate the cost of a write
SIZES = ("512B", "4KiB", "16KiB", "64KiB", "256KiB", "1MiB")


@dataclasses.dataclass(frozen=True)
class Scenario:
    size: str = "4KiB"
    writers: int = 1
    m: int = 2
    acks: int = 2
    multicast: bool = False
    pattern: str = "overwrite"  # append; fsync:K; plain; read
    network: str = "loopback"
    packed: bool = True
    other_volumes: int = 0  # volumes of others on every replica
    busy: bool = False      # they write all the time
    open_files: int = 0     # beside the written ones
    log_mib: int = 0        # of records already in the log

    def label(self):
        """Returns the differences from the plain case."""
        plain = Scenario()
        said = {"writers": "%d writers" % self.writers, "m": "m=%d" % self.m, "acks": "f=%d" % self.acks,
                "multicast": "multicast", "packed": "packed" if self.packed else "free", "busy": "busy",
                "other_volumes": "%d other volumes" % self.other_volumes, "open_files": "%d open files" % self.open_files,
                "log_mib": "%d MiB of log" % self.log_mib}
        words = [said.get(f.name, str(getattr(self, f.name))) for f in dataclasses.fields(self)
                 if f.name == "packed" or getattr(self, f.name) != getattr(plain, f.name)]
        return ", ".join(words)

    def pattern_options(self):
        if self.pattern.startswith("fsync:"):
            return ["--fsync-every", self.pattern.split(":")[1]]
        return {"overwrite": [], "append": ["--append"], "plain": ["--plain"], "read": ["--read"]}[self.pattern]


class MemoryDirectory:
    """A directory on tmpfs."""

    def __init__(self, name):
        self.path = os.path.join("/dev/shm", name)
        os.mkdir(self.path)

    def close(self):
        shutil.rmtree(self.path, ignore_errors=True)


class Busy:
    """A driver that works until the end."""

    ROUND_S = 1.0

    def __init__(self, driver):
        self._driver, self._end, self._error = driver, threading.Event(), None
        self._thread = threading.Thread(target=self._work)
        self._thread.start()

    def _work(self):
        try:
            while not self._end.is_set():
                self._driver.round(self.ROUND_S)
        except HarnessError as error:
            self._error = error

    def check(self):
        """Raises if it has stopped working."""
        if self._error is not None:
            raise self._error

    def close(self):
        self._end.set()
        self._thread.join()


class Ground:
    """The scenario's processes, up after construction, and `subjects`: Salius, mounted with
    `mount_options`, and then its floors if they are wanted. With `sealed` among the options all
    programs have keys."""

    MEMORY_MIB = 192  # of a replica, for the mounted volume
    _serial = 0

    def __init__(self, scenario, cpu, mount_options="", floors=True):
        Ground._serial += 1
        self._floors = floors
        words = mount_options.split(",")
        self._keys = Keys() if "sealed" in words else None
        self._mount_options = ",".join(word for word in words if word != "sealed")
        self._tag = str(Ground._serial)
        self.scenario = scenario
        self.cpu = cpu if scenario.packed else None
        self.subjects, self._busy = [], []
        self._stack = contextlib.ExitStack()
        try:
            self._build()
        except BaseException:
            self.close()
            raise

    def _own(self, thing):
        return self._stack.enter_context(contextlib.closing(thing))

    def _build(self):
        s = self.scenario
        self.network = self._own(NETWORKS[s.network](s.m))
        self._salius()
        if not self._floors:
            return
        if s.pattern in ("plain", "read"):
            self._passthrough()
            return
        self.echo = self._own(EchoServers(self.network, tool("echo_server"), pinned(self.cpu)))
        self._mount_floor("mount floor", ["--servers", ",".join(self.echo.addresses), "--acks", str(s.acks)], self.echo.pids())
        self._mount_floor("fuse floor", ["--empty"], [])
        self._floor("in-process floor", self.echo, True)
        self._floor("udp floor", self.echo, False)
        if s.size in KEPT_SIZES:
            keep = ["--keep", "64MiB"]  # as much as a log has
            keepers = self._own(EchoServers(self.network, tool("echo_server"), pinned(self.cpu), keep))
            self._floor("kept floor", keepers, True, keep)
        self._subject("local disk", self._files(place("plain-" + self._tag)), {})

    def own_driver(self, args, netns=None):
        """Returns a driver placed as the scenario says, until the end."""
        return self._own(Driver(args, cpu=self.cpu, netns=netns))

    def _subject(self, name, args, groups, netns=None):
        self.subjects.append(Subject(name, self.own_driver(args, netns), groups))

    def _files(self, path):
        return ["files", path, "--size", self.scenario.size, "--writers", str(self.scenario.writers),
                *self.scenario.pattern_options()]

    def _salius(self):
        s = self.scenario
        loopback_group = s.multicast and self.network.primary is None
        # A checkpoint begins at half of it.
        log_mib = 2 * (s.log_mib + LOG_GROWTH_MIB) if s.log_mib else 0
        replicas = self.replicas = self._own(Replicas(self.network, "%dMiB" % (self.MEMORY_MIB + log_mib * 5 // 4 + s.other_volumes * OTHER_MIB),
                                      self.cpu, ["--multicast-interface", "lo"] if loopback_group else [],
                                      self._keys))
        options = ["--multicast", GROUP] if s.multicast else []
        if s.busy:
            # With hundreds of busy volumes a wait for the CPU takes longer than a healthy network.
            options += ["--delta", "10s"]
        if log_mib:
            options += ["--log-max", "%dMiB" % log_mib, "--stable-log", "%dMiB" % (log_mib * 5 // 4 + 2), "--tau", "600s"]
        backing = place("volume-" + self._tag)
        files = [os.path.join(backing, "open%d" % i) for i in range(s.open_files)]
        for path in files:
            open(path, "xb").close()
        volume = self._own(MountedVolume(backing, replicas, s.acks, *options, cpu=self.cpu,
                                         mount_options=self._mount_options,
                                         keys=self._keys.issue("client/primary") if self._keys else None))
        self.mount = volume.mount
        self._open([os.path.join(volume.path, os.path.basename(path)) for path in files])
        if s.other_volumes:
            self._others(replicas)
        if s.log_mib:
            self._fill(volume.path)
        self._subject("salius", self._files(volume.path), {"primary": [volume.mount.pid], "replica": replicas.pids()})

    def _open(self, paths):
        """Opens all of them, until the end."""
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        enough = len(paths) + 4096
        if soft < enough:
            try:
                resource.setrlimit(resource.RLIMIT_NOFILE, (enough, max(hard, enough)))
            except ValueError:
                raise HarnessError("%d open files need more descriptors than the %d that a process may have here" % (
                    len(paths), hard)) from None
        for path in paths:
            self._stack.callback(os.close, os.open(path, os.O_RDWR))

    def _others(self, replicas):
        """Opens sessions of other volumes with every replica."""
        for i, address in enumerate(replicas.addresses):
            # In memory: many hosts have many disks; here the notes of all would wait for one.
            folder = self._own(MemoryDirectory("others-%s-%d" % (self._tag, i))).path
            others = self._own(Driver(["volumes", folder, address, "--writers", str(self.scenario.other_volumes)],
                                      cpu=self.cpu, netns=self.network.primary))
            if self.scenario.busy:
                self._busy.append(self._own(Busy(others)))

    def _fill(self, path):
        """Writes until the log has its wanted size."""
        with contextlib.closing(Driver(["files", path, "--size", "64KiB"], netns=self.network.primary)) as writer:
            def full():
                writer.round(0.1)
                return self.mount.status()["uncheckpointed_bytes"] >= self.scenario.log_mib << 20
            wait_until(full, FILL_S, "the log does not fill: is there a checkpoint?")

    def _mount_floor(self, name, options, servers):
        threads = str(min(self.scenario.writers, FLOOR_THREADS))
        serving = self._own(Serving("%s-%s" % (name.replace(" ", "-"), self._tag),
                                    [tool("mount_floor"), *options, "--threads", threads, place("backing-%s-%s" % (name[:4], self._tag))],
                                    self.cpu, self.network.primary))
        self._subject(name, self._files(serving.path), {"primary": [serving.proc.pid], "replica": servers})

    def _passthrough(self):
        serving = self._own(Serving("passthrough-" + self._tag,
                                    [tool("mount_floor"), "--cached", place("backing-" + self._tag)],
                                    self.cpu))
        self._subject("passthrough", self._files(serving.path), {"primary": [serving.proc.pid]})
        self._subject("local disk", self._files(place("plain-" + self._tag)), {})

    def _floor(self, name, echo, backing, options=()):
        s = self.scenario
        if backing:
            options = [*options, "--backing", place("%s-%s" % (name.replace(" ", "-"), self._tag))]
        self._subject(name, ["floor", *echo.addresses, "--acks", str(s.acks), "--size", s.size,
                             "--writers", str(s.writers), *options],
                      {"replica": echo.pids()}, self.network.primary)

    def check(self):
        """Checks that replication was measured, and that every other load was at work."""
        for busy in self._busy:
            busy.check()
        status = self.mount.status()
        if status["mode"] != "replicated":
            raise HarnessError("%s: the volume ended in mode %s (%s)" % (
                self.scenario.label(), status["mode"], status["mode_detail"]))

    def close(self):
        self._stack.close()
