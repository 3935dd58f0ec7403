"""Runs a schedule against a real installation: injects and heals faults, kills the primary,
recovers, checks.

After each death of the primary:
- Recovery succeeds once everything is healed. Before that it succeeds or is refused, nothing else.
- No workload misses anything that was acknowledged to it.

After each episode, within a bound:
- The volume is in mode `replicated` again with every replica a member.
- Every workload gets further acknowledgements.
"""
import os
import random
import subprocess
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

from campaign import schedule, work
from campaign.fault_disk import FILLER
from harness.clock import Clock
from harness.proc import Proc
from harness.rig import SMALL_LOG, Rig
from harness.run import binary
from harness.volume import RECOVER_NOT_ENOUGH, Mount

SETTLE_S = 45  # until the volume is whole again, on a busy machine
STUCK_S = 45  # a writer without an acknowledgement for that long, with nothing broken, is stuck
RECOVER_IN_USE, RECOVER_DISK = 3, 6
LOST = "replica lost with the primary"


class Failed(AssertionError):
    """A condition that must hold did not."""


class Campaign:
    """A campaign, mounted and at work after construction.

    `own`: registers a clean-up. `say`: prints a line. `tau`: the volume's; a short one makes many
    checkpoints. `init`: further options of `salius init`. `names`: the volume's."""

    def __init__(self, shape, works, own, say, size_mb=512, tau="30s", init=SMALL_LOG, names="async"):
        self.shape, self.own, self.say, self.names = shape, own, say, names
        self.counts, self.notes = Counter(), []
        self.cuts = self.episode = 0
        self.restart_works = self.remove_filler = False
        self.recover_options = ()  # for the controls
        self.began = time.monotonic()
        self.threads = ThreadPoolExecutor(2)
        self.rig = Rig(shape.m, shape.f, shape.fs, size_mb, (*init, "--tau", tau, "--names", names), start=False)
        own(self.rig)
        self.clocks = {i: Clock() for i in range(shape.m)}
        self.clocks["primary"] = Clock()
        for i, replica in enumerate(self.rig.replicas):
            replica.env = self.clocks[i].env
            replica.start()
        self.works = work.make(works, own, names)
        for each in self.works:
            own(_Closing(each.kill))
        self.rig.mount_ = self.new_mount(self.rig.volume)
        self._start_works()

    # ---- for the faults

    def note(self, text):
        """Notes something of interest that is no failure; it is printed with its episode when the
        run fails."""
        self.notes.append("episode %d: %s" % (self.episode, text))

    def count(self, what):
        self.counts[what] += 1

    def new_mount(self, volume):
        return Mount(volume, "recover=auto", env=self.clocks["primary"].env)

    # ---- running

    def run(self, episodes, progress=lambda campaign: None):
        """Runs all episodes in order. Failed, Damage or HarnessError name the episode."""
        past = []
        for self.episode, episode in enumerate(episodes, self.episode + 1):
            past.append("%4d  %s" % (self.episode, episode.text()))
            try:
                self._run_one(episode)
            except Exception as error:
                raise Failed("episode %d: %s\n%s: %s\nnotes:\n  %s\nschedule so far:\n%s" % (
                    self.episode, episode.text(), type(error).__name__, error, "\n  ".join(self.notes[-12:]),
                    "\n".join(past[-40:]))) from error
            progress(self)

    def _run_one(self, episode):
        active, injected = [], []
        try:
            for fault, pause in zip(episode.faults, episode.pauses_ms):
                time.sleep(pause / 1e3)  # the schedule's own time, not a wait for anything
                active.append(fault)
                fault.inject(self)
                injected.append(fault)
            if any(f.moves for f in episode.faults):
                self._after_death()
                return
            time.sleep(episode.hold_ms / 1e3)
            if episode.ending == schedule.HEALING:
                self._heal_matching(active, lambda f: not f.late and not f.kills)
                time.sleep(episode.heal_pause_ms / 1e3)
            if episode.dies():
                self._death(episode, active)
                return
            if episode.ending == schedule.UMOUNT:
                self._umount(active)
                return
            self._heal(active, episode.heal_order, episode.heal_pause_ms)
            self._settle(any(f.refuses for f in episode.faults))
        finally:
            for fault in active:  # not empty only after a failure: leave nothing behind
                try:
                    fault.heal(self)
                except Exception as error:
                    self.note("healing %s: %s" % (fault.text(), error))
            for fault in injected:  # only now does each know whether it had an effect
                self.count(fault.name if fault.hit() else fault.name + ": hit nothing")

    def _heal(self, active, order=None, pause_ms=0):
        """Heals the faults, those of the network first: a replica that starts must be reachable to
        become ready."""
        rank = {id(f): n for f, n in zip(active, order or range(len(active)))}
        todo = sorted(active, key=lambda f: (not any(u.startswith(("net", "cable")) for u in f.uses(self.shape)),
                                             rank[id(f)]))
        for fault in todo:
            fault.heal(self)
            active.remove(fault)
            time.sleep(pause_ms / 1e3)

    def _heal_disk(self, active):
        """Heals the faults that would keep a dead daemon from ending, or the file system from being
        unmounted."""
        self._heal_matching(active, lambda f: not f.late and f.uses(self.shape) & {"disk", "mount"})

    def _heal_matching(self, active, which):
        chosen = [f for f in active if which(f)]
        self._heal(list(chosen))
        for fault in chosen:
            active.remove(fault)

    # ---- the volume becomes whole again

    def _settle(self, refused):
        self.rig.mount_.wait_whole(SETTLE_S, "everything is healed: ")
        if self.remove_filler:
            self._remove_filler()
        if refused:  # a writer that got an error may be about to end
            for each in self.works:
                each.acknowledges_or_ends(STUCK_S)
        for each in self.works:
            if self.restart_works or refused and not each.alive():
                each.kill()
                each.check(self.rig.path, True)
                each.start(self.rig.path)
        self.restart_works = False
        for each in self.works:
            each.progress(2, STUCK_S)

    def _remove_filler(self):
        self.remove_filler = False
        path = self.rig.file(FILLER)
        if os.path.exists(path):
            os.unlink(path)

    # ---- the primary dies

    def _death(self, episode, active):
        rig = self.rig
        self.count(episode.ending)
        if episode.disk_ahead and not any("disk" in f.uses(self.shape) for f in active):
            rig.sync_disk()
        if episode.ending == "daemon killed":
            rig.mount_.proc.signal(9)
            self._heal_disk(active)
            rig.mount_.proc.kill()
            self._kill_works()
            rig.mount_._detach()
            rig.mount_ = None
        else:
            self._power_cut(episode, active)
        for i in episode.after:
            # The reboot ends a process fault of this replica; healing it later starts the replica
            # again.
            rig.replicas[i].lose_memory()
            self.count(LOST)
        recovered = episode.try_early and self._recover_early(episode, active)
        self._heal(active)
        for replica in rig.replicas:
            if not replica.alive():
                replica.start()
        if not recovered:
            self._recover(episode)
        for fault in episode.faults:
            if fault.mounts:
                fault.mount(self)
        self._after_death()

    def _power_cut(self, episode, active):
        rig, self.cuts = self.rig, self.cuts + 1
        if not episode.shutdown_first:
            rig.mount_.proc.signal(9)
        # A frozen file system is shut down like any other, but its writers hang until it is thawed.
        self._shutdown()
        rig.mount_.proc.signal(9)
        self._heal_disk(active)
        rig.mount_.proc.kill()
        self._kill_works()
        rig.mount_._detach()
        rig.mount_ = None
        rig.image.umount()
        rig.image.mount()

    def _shutdown(self):
        try:
            self.rig.image.shutdown()
        except OSError as error:  # it was lost already
            self.note("shutdown of the file system: %s" % error)

    def _kill_works(self):
        for each in self.works:
            each.kill()

    def _recover_early(self, episode, active):
        """Tries a recovery under the faults: it is done, or refused for lack of members (or
        space)."""
        done = self.rig.volume.recover("--timeout", "1s")
        allowed = {0, RECOVER_NOT_ENOUGH} | ({RECOVER_DISK} if any(f.name == "disk full" for f in active) else set())
        if done.returncode not in allowed:
            raise Failed("recovery with the faults there: exit %d\n%s%s" % (
                done.returncode, done.stdout, done.stderr))
        self.count("early recovery " + ("done" if done.returncode == 0 else "refused"))
        return done.returncode == 0

    def _recover(self, episode):
        rig = self.rig
        if episode.recovery.startswith("killed"):
            self._kill_recovery(episode.kill_recovery_ms)
            if episode.recovery == "killed and cut":
                rig.image.power_cut()
        if episode.recovery == "stopped":
            self._stop_recovery(episode.kill_recovery_ms, episode.stop_recovery_ms)
        if episode.recovery == "replica killed":
            self._kill_replica_in_recovery(episode.kill_recovery_ms)
        if episode.recovery == "mount":
            return  # the mount recovers
        done = rig.volume.recover(*self.recover_options)
        if done.returncode != 0:
            raise Failed("recovery with everything healed: exit %d\n%s%s" % (
                done.returncode, done.stdout, done.stderr))
        for each in self.works:
            each.check(rig.backing, False)

    def _kill_recovery(self, after_ms):
        proc = Proc([binary("salius-recover"), self.rig.backing], self.rig.volume.log, netns=self.rig.net.primary)
        try:
            code = proc.popen.wait(after_ms / 1e3)
            self.count("recovery killed: too late (exit %d)" % code)
            if code != 0:
                raise Failed("recovery that was to be killed: exit %d\n%s" % (code, proc.tail()))
        except subprocess.TimeoutExpired:
            proc.kill()
            self.count("recovery killed")

    def _stop_recovery(self, after_ms, stop_ms):
        """Stops a recovery for a while, beside another one that is refused; it then ends well."""
        volume = self.rig.volume
        proc = Proc([binary("salius-recover"), self.rig.backing], volume.log, netns=self.rig.net.primary)
        time.sleep(after_ms / 1e3)
        proc.stop()
        late = not proc.alive()
        time.sleep(0 if late else stop_ms / 1e3)
        other = None if late else volume.recover().returncode
        proc.cont()
        code = proc.wait(60)
        if code != 0 or other not in (None, 0, RECOVER_IN_USE):
            raise Failed("recovery that was stopped: exit %d; one beside it: %s\n%s" % (code, other, proc.tail()))
        self.count("recovery stopped" + {None: ": too late", 0: " before it had the lock", RECOVER_IN_USE: ""}[other])

    def _kill_replica_in_recovery(self, after_ms):
        """Kills one replica's process while the recovery asks it, and starts it again. The rerun
        must succeed."""
        proc = Proc([binary("salius-recover"), self.rig.backing, "--timeout", "1s"], self.rig.volume.log,
                    netns=self.rig.net.primary)
        time.sleep(after_ms / 1e3)
        victim = self.rig.replicas[after_ms % self.shape.m]
        victim.kill()
        code = proc.wait(60)
        if code not in (0, RECOVER_NOT_ENOUGH):
            raise Failed("recovery while a replica died: exit %d\n%s" % (code, proc.tail()))
        self.count("recovery with a replica killed: exit %d" % code)
        victim.start()

    def _after_death(self):
        rig = self.rig
        if rig.mount_ is None:
            rig.mount_ = self.new_mount(rig.volume)
        rig.mount_.wait_mode("replicated", SETTLE_S)
        if self.remove_filler:
            self._remove_filler()  # an application that recovers needs room
        for each in self.works:
            each.check(rig.path, True)
            each.next_generation(rig.path)
        self._start_works()
        self._settle(False)

    def _umount(self, active):
        """Unmounts cleanly under the faults; afterwards the disk alone has everything."""
        self.count("umount")
        self._heal_disk(active)
        self._kill_works()
        rig = self.rig
        rig.mount_.umount()
        rig.mount_ = None
        for each in self.works:
            each.check(rig.backing, False)
        self._heal(active)
        self._after_death()

    # ---- starts

    def _start_works(self):
        self.rig.mount_.wait_mode("replicated", SETTLE_S)
        for each in self.works:
            each.start(self.rig.path)
        self.restart_works = False

    # ---- the end

    def check_alive(self):
        """Checks through the mount that everything acknowledged is there; the workloads begin new
        generations."""
        self._kill_works()
        for each in self.works:
            each.check(self.rig.path, True)
            each.next_generation(self.rig.path)
        self._start_works()

    def finish(self):
        """Unmounts cleanly and checks everything again, on the plain directory and by the file
        system's own check."""
        rig = self.rig
        self._kill_works()
        for each in self.works:
            each.check(rig.path, True)
        self._kill_works()
        rig.mount_.umount()
        rig.mount_ = None
        for each in self.works:
            each.check(rig.backing, False)
        rig.image.check()

    def faults(self):
        return sum(by_kind(self.counts).values())

    def summary(self):
        acked = ", ".join("%s %d" % (w.name.rstrip("-"), w.acked()) for w in self.works)
        return "m=%d f=%d %s names=%s: %d faults in %d episodes, %d power cuts, acknowledged: %s; %.0f s" % (
            self.shape.m, self.shape.f, self.shape.fs, self.names, self.faults(), self.episode, self.cuts, acked,
            time.monotonic() - self.began)


def by_kind(counts):
    """Returns how many faults of each kind `counts` has, 0 for those that never came."""
    kinds = [k.name for k in schedule.KINDS] + [*schedule.DEATHS, LOST]
    return {name: counts.get(name, 0) for name in kinds}


def never_hit(counts, kinds, shape):
    """Returns the names of the kinds that are possible, on this machine and for such an
    installation, and have hit nothing."""
    return [k.name for k in kinds if not counts.get(k.name) and not k.missing() and k.draw(random.Random(0), shape)]


class _Closing:
    def __init__(self, close):
        self.close = close
