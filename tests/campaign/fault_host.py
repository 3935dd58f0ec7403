"""Faults of processes and hosts: stopped, killed, rebooted, short of memory, a clock that is set, two mounts."""
import errno
import os
import shutil
import time

from campaign.fault import Fault, OnReplicas, some_replicas
from harness.image import Image
from harness.run import HarnessError, current
from harness.volume import Mount, MountRefused, Volume

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
    """The replica's host goes down with its memory, and comes back at the end."""

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
    """The replica's host comes back after a reboot with a memory limit that its log does not fit in: the process is
    refused its memory or killed for it, and must never count as a holder of anything."""

    name = "replica memory limit"
    what = "process"

    @classmethod
    def missing(cls):
        try:
            MemoryGroup(64).close()
            return ""
        except HarnessError as error:
            return str(error)

    @classmethod
    def draw(cls, rng, shape):
        return cls(at=[rng.randrange(shape.m)], limit_mb=rng.choice([8, 24, 48]))

    def loses(self):
        return set(self.params["at"])

    def inject(self, campaign):
        replica = campaign.rig.replicas[self.params["at"][0]]
        replica.lose_memory()
        self._group = MemoryGroup(self.params["limit_mb"])
        replica.wrapper = self._group.wrapper
        try:
            replica.start()
        except HarnessError as refused:
            campaign.note("limit %d MB: the replica did not start" % self.params["limit_mb"])
            if replica.proc is None or replica.proc.alive():
                raise HarnessError("under a memory limit the replica neither serves nor ends: %s" % refused) from None

    def heal_one(self, campaign, i):
        replica = campaign.rig.replicas[i]
        replica.wrapper = ()
        replica.lose_memory()
        self._group.close()
        replica.start()


class MemoryGroup:
    """A control group with a memory limit, v1 or v2. HarnessError when this machine has neither."""

    def __init__(self, limit_mb):
        for top, name in (("/sys/fs/cgroup/memory", "memory.limit_in_bytes"), ("/sys/fs/cgroup", "memory.max")):
            self.path = os.path.join(top, current().id)
            try:
                os.makedirs(self.path, exist_ok=True)
                with open(os.path.join(self.path, name), "w") as f:
                    f.write(str(limit_mb << 20))
                break
            except OSError:
                if os.path.isdir(self.path):
                    os.rmdir(self.path)
        else:
            raise HarnessError("no memory control group can be made here")
        self.wrapper = ("sh", "-c", 'echo $$ >"$0/cgroup.procs" && exec "$@"', self.path)

    def close(self):
        os.rmdir(self.path)


class ClockSet(Fault):
    """One host's wall clock is set, and later set right again."""

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
    """SIGKILL of the programs: the volume goes on, and holds what they were told."""

    name = "programs SIGKILL"

    def uses(self, shape):
        # A program cannot be killed while a daemon or disk that stands still owes it an answer.
        return {"programs", "mount", "disk"}

    def inject(self, campaign):
        for work in campaign.works:
            work.kill()

    def heal(self, campaign):
        campaign.restart_works = True


class StopWriters(Fault):
    """SIGSTOP of the programs, databases' servers too, in the middle of whatever they do; then they go on. What they
    were told meanwhile they learn late."""

    name = "programs SIGSTOP"

    def uses(self, shape):
        # A program does not stop while a daemon or disk that stands still owes it an answer.
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
    """Another mount of the same backing directory while the first works: refused, and the holder named."""

    name = "second mount"

    def uses(self, shape):
        return {"mount"}

    def inject(self, campaign):
        rig = campaign.rig
        second = Volume(rig.backing, rig.net.primary)
        try:
            Mount(second).close()
        except MountRefused as refused:
            if str(rig.mount_.pid) not in refused.log:
                raise AssertionError("the refused mount does not name the holder: " + refused.log) from None
            os.rmdir(second.mountpoint)
            return
        raise AssertionError("two mounts of one volume at the same time")


class MountRace(Fault):
    """The primary has died, and two mounts of its volume begin at the same time, both ready to recover: exactly one has
    it afterwards."""

    name = "mounts race"
    kills = True
    mounts = True
    early = True
    did = 0

    def uses(self, shape):
        return {"recovery"}

    def inject(self, campaign):
        pass  # it comes when the primary has died

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
        self.did = int(max(began) < min(ended))  # both were there at the same time
        rig.mount_, rig.volume = won[0], won[0].volume


class FreezePrimary(Fault):
    """The daemon stands still for a while; a recovery tried meanwhile is refused, because it holds the lock."""

    name = "primary SIGSTOP"

    def uses(self, shape):
        return {"mount"}

    def inject(self, campaign):
        campaign.rig.mount_.stop()
        done = campaign.rig.volume.recover("--timeout", "1")
        if done.returncode != RECOVER_IN_USE:
            raise AssertionError("recovery beside a frozen primary: exit %d\n%s%s" % (
                done.returncode, done.stdout, done.stderr))

    def heal(self, campaign):
        campaign.rig.mount_.cont()


class FencePrimary(Fault):
    """The fence on its own: while the primary stands still, its volume is recovered from a copy of its disk, where no
    lock is in the way. Thawed, it must acknowledge nothing that the copy does not have; the copy is the volume
    from then on."""

    name = "primary fenced"
    solo = True
    refuses = True
    moves = True  # ends the primary's session by itself

    def inject(self, campaign):
        rig = campaign.rig
        rig.mount_.stop()
        copy = Image(rig.image.name.partition("-standby")[0] + "-standby", rig.image.fs, mount_options=rig.image.mount_options,
                     source=rig.image.file)
        try:
            standby = Volume(os.path.join(copy.path, "data"), rig.net.primary)
            done = standby.recover()
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
