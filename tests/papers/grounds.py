"""Where the works of the papers run: directories, and the words that go before a command there."""
import contextlib
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass

from bench.networks import Delayed, Loopback, Veth
from bench.setup import MountedVolume, Replicas, SlowDisk, place
from harness.run import HarnessError, binary, sh

PROGRAMS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "programs.py")
# A volume in mode local is another ground. With this link delay bound a pause of a busy machine is
# no partition.
PATIENT = ("--delta", "2s")
TIMEOUT_S = 1800


def eatmydata():
    """Returns words that have a command's fsync return at once."""
    found = shutil.which("eatmydata")
    if found is None:
        raise HarnessError("eatmydata is not installed (apt-get install eatmydata)")
    return [found]


@dataclass
class Ground:
    """A directory. `words`: before each command there. `check`: raises when something else than
    meant was measured."""
    name: str
    path: str
    words: tuple = ()
    check: object = None
    volume: object = None
    output: str = ""  # of the last command

    def directory(self, name):
        """Makes a new directory there."""
        path = os.path.join(self.path, name)
        os.mkdir(path)
        return path

    def run(self, command, cwd="/", shell=False):
        """Runs a command of programs.py; returns the seconds that it says. With `shell` the command is
        one of the shell, and its seconds end when date(1)'s output has been seen."""
        words = ["sh", "-c", "date +%%s%%N; %s || exit; date +%%s%%N" % command] if shell else [
            sys.executable, PROGRAMS, *map(str, command)]
        done = subprocess.run([*self.words, *words], cwd=cwd, capture_output=True, text=True, timeout=TIMEOUT_S,
                              env={**os.environ, "HOME": "/nonexistent", "GIT_CONFIG_NOSYSTEM": "1"}, check=False)
        if done.returncode != 0:
            raise HarnessError("%s: %s: exit %d\n%s%s" % (self.name, " ".join(words), done.returncode, done.stdout[-2000:],
                                                          done.stderr[-2000:]))
        if self.check:
            self.check()
        self.output = done.stdout
        if shell:
            times = re.findall(r"^[0-9]{19}$", done.stdout, re.M)
            return (int(times[-1]) - int(times[0])) / 1e9
        return float(re.search(r"^seconds ([0-9.]+)$", done.stdout, re.M).group(1))


class Grounds:
    """Makes grounds; closes all of them at the end."""

    def __init__(self, count=2, acks=2, delay_ms=0, mtu=0, memory="512MiB", disk=(), disk_ms=1000):
        """`delay_ms`: of every packet between the primary and a replica. `mtu`: of cables between them,
        without a delay. `disk`: options of a model disk below everything, measured for `disk_ms` each
        time; none: the disk of the machine."""
        self._stack = contextlib.ExitStack()
        self._acks, self._made = acks, 0
        try:
            self.disk = self._own(SlowDisk(*disk, figures_ms=disk_ms)) if disk else None
            network = self._own(Delayed(count, delay_ms) if delay_ms else Veth(count, mtu) if mtu else Loopback(count))
            self.replicas = self._own(Replicas(network, memory))
        except BaseException:
            self.close()
            raise

    def _own(self, thing):
        return self._stack.enter_context(contextlib.closing(thing))

    def _place(self, name):
        self._made += 1
        name = "%s-%d" % (re.sub("[^a-z0-9]+", "-", name), self._made)
        if self.disk is None:
            return place(name)
        path = os.path.join(self.disk.path, name)
        os.mkdir(path)
        return path

    def bare(self, name, words=()):
        return Ground(name, self._place(name), tuple(words))

    def mount(self, name, options="", words=()):
        """A new volume, mounted with `options`."""
        volume = self._own(MountedVolume(self._place(name), self.replicas, self._acks, *PATIENT, mount_options=options))

        def check():
            status = volume.mount.status()
            if status["mode"] != "replicated":
                raise HarnessError("%s: the volume is in mode %s (%s)" % (name, status["mode"], status["mode_detail"]))
        return Ground(name, volume.path, tuple(words), check, volume)

    def direct(self, name, *options):
        """A new direct volume; each command has a salius-run of its own."""
        path = self._place(name)
        sh(binary("salius"), "init", "--direct", path, "--replicas", ",".join(self.replicas.addresses), "--acks",
           self._acks, *PATIENT)
        return Ground(name, path, (binary("salius-run"), "--insecure", "--direct", path, *options, "--"))

    def close(self):
        self._stack.close()
