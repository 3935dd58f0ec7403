"""One point of the matrix: what is written, by how many, to how many replicas over what; and everything that is measured
there in one interleaved run: Salius, and every floor that it stands on."""
import contextlib
import dataclasses

from bench.driver import Driver
from bench.networks import GROUP, EchoServers, Loopback, Veth
from bench.rounds import Subject
from bench.setup import MountedVolume, Replicas, Serving, pinned, place, tool
from harness.run import HarnessError

NETWORKS = {"loopback": Loopback, "veth1500": lambda n: Veth(n, 1500), "veth9000": lambda n: Veth(n, 9000)}
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

    def label(self):
        """What differs from the plain case."""
        plain = Scenario()
        words = [str(getattr(self, f.name)) if f.name not in ("writers", "m", "acks", "multicast", "packed") else
                 {"writers": "%d writers" % self.writers, "m": "m=%d" % self.m, "acks": "f=%d" % self.acks,
                  "multicast": "multicast", "packed": "packed" if self.packed else "free"}[f.name]
                 for f in dataclasses.fields(self)
                 if f.name == "packed" or getattr(self, f.name) != getattr(plain, f.name)]
        return ", ".join(words)

    def pattern_options(self):
        if self.pattern.startswith("fsync:"):
            return ["--fsync-every", self.pattern.split(":")[1]]
        return {"overwrite": [], "append": ["--append"], "plain": ["--plain"], "read": ["--read"]}[self.pattern]


class Ground:
    """The scenario's processes, up when the constructor is done, and `subjects`."""

    def __init__(self, scenario, cpu):
        self.scenario = scenario
        self.cpu = cpu if scenario.packed else None
        self.subjects = []
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
        if s.pattern in ("plain", "read"):
            self._salius()
            self._passthrough()
            return
        self.echo = self._own(EchoServers(self.network, tool("echo_server"), pinned(self.cpu)))
        self._salius()
        self._mount_floor("mount floor", ["--servers", ",".join(self.echo.addresses), "--acks", str(s.acks)], self.echo.pids())
        self._mount_floor("fuse floor", ["--empty"], [])
        self._floor("in-process floor", True)
        self._floor("udp floor", False)
        self._subject("local disk", self._files(place("plain-" + self._tag())), {})

    def _tag(self):
        return "%d" % id(self)

    def _subject(self, name, args, groups, netns=None):
        driver = self._own(Driver(args, cpu=self.cpu, netns=netns))
        self.subjects.append(Subject(name, driver, groups))

    def _files(self, path):
        return ["files", path, "--size", self.scenario.size, "--writers", str(self.scenario.writers),
                *self.scenario.pattern_options()]

    def _salius(self):
        s = self.scenario
        loopback_group = s.multicast and self.network.primary is None
        replicas = self._own(Replicas(self.network, "192MiB", self.cpu,
                                      ["--multicast-interface", "lo"] if loopback_group else []))
        volume = self._own(MountedVolume(place("volume-" + self._tag()), replicas, s.acks,
                                         *(["--multicast", GROUP] if s.multicast else []), cpu=self.cpu))
        self.mount = volume.mount
        self._subject("salius", self._files(volume.path), {"primary": [volume.mount.pid], "replica": replicas.pids()})

    def _mount_floor(self, name, options, servers):
        serving = self._own(Serving("%s-%s" % (name.replace(" ", "-"), self._tag()),
                                    [tool("mount_floor"), *options, place("backing-%s-%s" % (name[:4], self._tag()))],
                                    self.cpu, self.network.primary))
        self._subject(name, self._files(serving.path), {"primary": [serving.proc.pid], "replica": servers})

    def _passthrough(self):
        serving = self._own(Serving("passthrough-" + self._tag(),
                                    [tool("mount_floor"), "--cached", place("backing-" + self._tag())],
                                    self.cpu))
        self._subject("passthrough", self._files(serving.path), {"primary": [serving.proc.pid]})
        self._subject("local disk", self._files(place("plain-" + self._tag())), {})

    def _floor(self, name, backing):
        s = self.scenario
        options = ["--backing", place("floor-" + self._tag())] if backing else []
        self._subject(name, ["floor", *self.echo.addresses, "--acks", str(s.acks), "--size", s.size,
                             "--writers", str(s.writers), *options],
                      {"replica": self.echo.pids()}, self.network.primary)

    def check(self):
        """What was measured was replication."""
        status = self.mount.status()
        if status["mode"] != "replicated":
            raise HarnessError("%s: the volume ended in mode %s (%s)" % (
                self.scenario.label(), status["mode"], status["mode_detail"]))

    def close(self):
        self._stack.close()
