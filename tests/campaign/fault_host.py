"""Faults of processes and hosts: stopped, killed, rebooted, short of memory, a clock that is set,
two mounts."""
import contextlib
import errno
import os
import re
import shutil
import socket
import time

from campaign.fault import Fault, OnReplicas, some_replicas, within
from harness.image import Image
from harness.memory_group import MemoryGroup
from harness.net import inside
from harness.replica import PORT
from harness.run import HarnessError
from harness.volume import ON_ANOTHER_HOST, Mount, MountRefused, Volume

RECOVER_IN_USE = 3


class StopReplica(OnReplicas):
    name = "replica SIGSTOP"
    what = "process"

    @classmethod
    def draw(cls, rng, shape):
        return cls(at=some_replicas(rng, shape))

    def inject(self, campaign):
        for i in self.params["at"]:
            campaign.rig.replicas[i].stop()

    def heal_one(self, campaign, i):
        campaign.rig.replicas[i].cont()


class KillReplica(OnReplicas):
    """Its memory stays; it comes back at the end, or at once."""

    name = "replica SIGKILL"
    what = "process"

    @classmethod
    def draw(cls, rng, shape):
        return cls(at=some_replicas(rng, shape))

    def ends(self):
        return set(self.params["at"])

    def inject(self, campaign):
        for i in self.params["at"]:
            campaign.rig.replicas[i].kill()

    def heal_one(self, campaign, i):
        campaign.rig.replicas[i].start()


class RebootReplica(OnReplicas):
    """The replica's host goes down and loses its memory; it comes back at the end."""

    name = "replica reboot"
    what = "process"

    @classmethod
    def draw(cls, rng, shape):
        return cls(at=some_replicas(rng, shape, 0.15))

    def loses(self):
        return set(self.params["at"])

    def inject(self, campaign):
        for i in self.params["at"]:
            campaign.rig.replicas[i].lose_memory()

    def heal_one(self, campaign, i):
        campaign.rig.replicas[i].start()


class MemoryLimit(OnReplicas):
    """The replica's host comes back after a reboot with a memory limit.

    `limit_mb`: the log does not fit in. The process is refused its memory or killed for it, and
    must never count as a holder of anything.

    `spare_kb`: the replica is up, and gets that much more than it has by then, which is its arena
    of 64 MiB and some 7 MiB. Serving takes:
    - 0.3 MiB when a session opens (with `serving` the session comes first, if possible)
    - 15 KiB for each of the `clients` that connect to its control port
    - 1 MiB when a recovery fetches
    - nothing for records

    When it is too much the kernel kills the process. Its arena outlives it, so that the host has
    lost its memory once, at the beginning. Counts how often the limit was met; the replica's fate
    is counted apart."""

    name = "replica memory limit"
    what = "process"
    did = 0
    SESSION_S = 5
    _started = False

    def __init__(self, **params):
        super().__init__(**params)
        self._clients = []

    @classmethod
    def missing(cls):
        try:
            MemoryGroup(64).close()
            return ""
        except HarnessError as error:
            return str(error)

    @classmethod
    def draw(cls, rng, shape):
        at = [rng.randrange(shape.m)]
        if rng.random() < 0.3:
            return cls(at=at, limit_mb=rng.choice([8, 24, 48]))
        return cls(at=at, spare_kb=rng.choice([0, 64, 256, 1024]), serving=rng.random() < 0.7,
                   clients=rng.choice([30, 100, 200]))

    def loses(self):
        return set(self.params["at"])

    def inject(self, campaign):
        replica = campaign.rig.replicas[self.params["at"][0]]
        replica.lose_memory()
        self._group = MemoryGroup(self.params.get("limit_mb", UNLIMITED_MB))
        replica.wrapper = self._group.wrapper
        try:
            replica.start()
            self._started = True
        except HarnessError as refused:
            if "limit_mb" not in self.params or replica.proc is None or replica.proc.alive():
                raise HarnessError("under a memory limit the replica neither serves nor ends: %s" % refused) from None
        if "spare_kb" in self.params:
            if self.params["serving"]:
                within(self.SESSION_S, lambda: self._served(replica))
            self._group.leave(self.params["spare_kb"])
            self._connect(campaign, replica)

    def _connect(self, campaign, replica):
        # The replica may be killed for it.
        with contextlib.suppress(OSError), inside(campaign.rig.net.replica(replica.index)):
            for _ in range(self.params["clients"]):
                self._clients.append(socket.create_connection((replica.ip, PORT), 1))
                self._clients[-1].sendall(_HTTP2)

    def heal_one(self, campaign, i):
        replica = campaign.rig.replicas[i]
        replica.wrapper = ()
        for client in self._clients:
            client.close()
        lives = replica.alive()
        replica.kill()
        self.did = self._group.met()
        if not self._started and "would kill this process" in replica.tail():
            self.did += 1  # it saw the limit before it met it
        self._group.close()
        campaign.count("memory limit: " + self._outcome(replica, lives))
        if not lives and not self.did:
            raise AssertionError("a replica has ended, and its memory limit was never met:\n" + replica.tail())
        replica.start()

    def _outcome(self, replica, lives):
        if not self._started:
            return "did not start"
        if lives:
            return "served under it" if self._served(replica) else "came up, no session came"
        return "killed in service" if self._served(replica) else "killed before it served"

    @staticmethod
    def _served(replica):
        """Returns whether a session was opened there since its start."""
        with open(replica.log, encoding="utf-8") as f:
            return re.search(r"session of volume \S+ open: ", f.read().rpartition("\n# ")[2]) is not None


UNLIMITED_MB = 1 << 20
# The first bytes of a gRPC client: the connection's preface and empty settings, RFC 9113.
_HTTP2 = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])


class ClockSet(Fault):
    """Sets one host's wall clock, and later sets it right."""

    name = "clock set"

    @classmethod
    def draw(cls, rng, shape):
        return cls(host=rng.choice(["primary"] * 2 + list(range(shape.m))),
                   seconds=rng.choice([-86400, -3600, -30, -1, 1, 30, 3600, 86400 * 400]))

    def uses(self, shape):
        return {"clock %s" % self.params["host"]}

    def inject(self, campaign):
        campaign.clocks[self.params["host"]].set(self.params["seconds"])

    def heal(self, campaign):
        campaign.clocks[self.params["host"]].set(0)


class KillWriters(Fault):
    """SIGKILL of the programs: the volume continues, and holds everything acknowledged to them."""

    name = "programs SIGKILL"

    def uses(self, shape):
        # A program cannot be killed while a stopped daemon or disk owes it an answer.
        return {"programs", "mount", "disk"}

    def inject(self, campaign):
        for work in campaign.works:
            work.kill()

    def heal(self, campaign):
        campaign.restart_works = True


class StopWriters(Fault):
    """SIGSTOP of the programs, databases' servers too, in the middle of their work; later they
    continue. They receive acknowledgements of that time late."""

    name = "programs SIGSTOP"

    def uses(self, shape):
        # A program does not stop while a stopped daemon or disk owes it an answer.
        return {"programs", "mount", "disk"}

    def inject(self, campaign):
        campaign.own(self)
        for work in campaign.works:
            work.stop()
        self._works = list(campaign.works)

    def heal(self, campaign):
        self.close()

    def close(self):
        for work in self._works:
            work.cont()
        self._works = []

    _works = ()


class SecondMount(Fault):
    """Another mount of the same backing directory while the first works: it is refused, and names
    the holder."""

    name = "second mount"

    def uses(self, shape):
        return {"mount"}

    def inject(self, campaign):
        rig = campaign.rig
        second = Volume(rig.backing, rig.net.primary)
        try:
            Mount(second).close()
        except MountRefused as refused:
            if not re.search(r"in use by process %d\b" % rig.mount_.pid, refused.log):
                raise AssertionError("the refused mount does not name the holder: " + refused.log) from None
            os.rmdir(second.mountpoint)
            return
        raise AssertionError("two mounts of one volume at the same time")


class MountRace(Fault):
    """The primary has died, and two mounts of its volume begin at the same time, both ready to
    recover. Exactly one has it afterwards."""

    name = "mounts race"
    kills = True
    mounts = True
    early = True
    did = 0

    def uses(self, shape):
        return {"recovery"}

    def inject(self, campaign):
        pass  # it starts when the primary has died

    def mount(self, campaign):
        rig, won, lost, began, ended = campaign.rig, [], [], [], []

        def attempt(volume):
            began.append(time.monotonic())
            try:
                won.append(campaign.new_mount(volume))
            except MountRefused as refused:
                lost.append(refused)
            ended.append(time.monotonic())
        # The threads outlive the race: a child of the harness dies with the thread that started it.
        list(campaign.threads.map(attempt, [rig.volume, Volume(rig.backing, rig.net.primary)]))
        for mount in won:
            campaign.own(mount)
        if len(won) != 1 or len(lost) != 1:
            raise AssertionError("two mounts raced: %d won, %d were refused %s" % (len(won), len(lost), lost))
        self.did = int(max(began) < min(ended))  # both ran at the same time
        rig.mount_, rig.volume = won[0], won[0].volume


class FreezePrimary(Fault):
    """Stops the daemon for a while; a recovery tried meanwhile is refused, because the daemon holds
    the lock."""

    name = "primary SIGSTOP"

    def uses(self, shape):
        return {"mount"}

    def inject(self, campaign):
        campaign.rig.mount_.stop()
        done = campaign.rig.volume.recover("--timeout", "1s")
        if done.returncode != RECOVER_IN_USE:
            raise AssertionError("recovery beside a frozen primary: exit %d\n%s%s" % (
                done.returncode, done.stdout, done.stderr))

    def heal(self, campaign):
        campaign.rig.mount_.cont()


class FencePrimary(Fault):
    """The fence alone: while the primary is stopped, its volume is recovered from a copy of its
    disk, where no lock is in the way. Continued, it must acknowledge nothing that the copy lacks.
    From then on the copy is the volume."""

    name = "primary fenced"
    solo = True
    refuses = True
    moves = True  # ends the primary's session

    def inject(self, campaign):
        rig = campaign.rig
        # In mode local neither acknowledgements nor the copy's recovery need a replica.
        rig.mount_.wait_mode("replicated")
        rig.mount_.stop()
        copy = Image(rig.image.name.partition("-standby")[0] + "-standby", rig.image.fs, mount_options=rig.image.mount_options,
                     source=rig.image.file)
        try:
            standby = Volume(os.path.join(copy.path, "data"), rig.net.primary)
            done = standby.recover(wrapper=ON_ANOTHER_HOST)
            if done.returncode != 0:
                raise AssertionError("recovery from the copy: exit %d\n%s%s" % (
                    done.returncode, done.stdout, done.stderr))
            rig.mount_.cont()
            status = rig.mount_.wait_mode("failed", 60)
            if "fenced" not in status["failure"]:
                raise AssertionError("failed, but not because it is fenced: %s" % status)
            self._late_write(rig)
        except BaseException:
            copy.close()
            raise
        for work in campaign.works:
            work.kill()
        rig.mount_.close()
        shutil.rmtree(rig.volume.mountpoint, ignore_errors=True)
        rig.image.close()
        rig.mount_, rig.image, rig.backing, rig.volume = None, copy, standby.backing, standby

    @staticmethod
    def _late_write(rig):
        try:
            with open(rig.file("late"), "wb", buffering=0) as f:
                f.write(b"late")
                os.fsync(f.fileno())
        except OSError as error:
            if error.errno not in (errno.EIO, errno.EROFS, errno.ENOTCONN):
                raise
            return
        raise AssertionError("a fenced primary acknowledged a write")


KINDS = [StopReplica, KillReplica, RebootReplica, MemoryLimit, ClockSet, KillWriters, StopWriters, SecondMount,
         MountRace, FreezePrimary, FencePrimary]
