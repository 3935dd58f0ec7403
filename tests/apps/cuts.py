"""Power cuts of a volume in use, each under other circumstances, and the recovery after it."""
import collections
import os
import signal

from harness.volume import RECOVERY_STEPS

KILLED = (-signal.SIGKILL, 128 + signal.SIGKILL)


class Deck:
    """Deals cards in a random order. Every card comes once before any comes again."""

    def __init__(self, rng, cards):
        self._rng, self._cards, self._left = rng, list(cards), []

    def deal(self):
        if not self._left:
            self._left = self._rng.sample(self._cards, len(self._cards))
        return self._left.pop()


class Cuts:
    """Cuts the power of `rig`. By chance one or more of these come together:

    - The volume is in mode local, or on its way back to mode replicated.
    - The disk is ahead.
    - A replica restarts, or it loses its memory (with `lose_one`: f must be 2 or more).
    - Recovery is killed at one of its steps, alone or with the whole machine, and begun again.
    - salius-recover recovers, or the next use of the volume does.

    self.counts has how often each one came."""

    def __init__(self, test, rig, lose_one):
        self.test, self.rig, self.rng = test, rig, test.rng
        self.counts = collections.Counter()
        self._modes = Deck(self.rng, ["as it is"] * 4 + ["local", "healing"])
        self._fates = Deck(self.rng, ["nothing", "restart", "lost" if lose_one else "restart"])
        self._interruptions = Deck(self.rng, ["none"] * 3 + ["killed", "killed with the machine"])

    def cut(self, progress, kill):
        """Makes one power cut. `progress`: progress(n) returns when n more operations are
        acknowledged. `kill` ends the programs. Afterwards the volume is not in use, and may not be
        recovered."""
        rig, mode = self.rig, self._modes.deal()
        if self.rng.random() < 0.3:
            self._count("disk ahead: " + rig.disk_ahead(self.rng))
        if mode != "as it is":
            for i in range(rig.m):
                rig.net.drop(i)
            rig.mount_.wait_mode("local")
            progress(self.rng.randint(1, 30))
        if mode == "healing":
            for i in range(rig.m):
                rig.net.heal(i)
            progress(self.rng.randint(0, 10))
        self._count("cut %s in mode %s" % ("while it heals" if mode == "healing" else "", rig.mount_.mode()))
        rig.power_cut(shutdown_first=self.rng.random() < 0.3, also=kill)
        if mode == "local":
            for i in range(rig.m):
                rig.net.heal(i)
        self._replica_fate()
        self._recover()

    def _replica_fate(self):
        victim, fate = self.rng.choice(self.rig.replicas), self._fates.deal()
        if fate == "restart":
            victim.restart()
        elif fate == "lost":
            victim.reboot()
        self._count("a replica's memory: " + fate)

    def _recover(self):
        interruption = self._interruptions.deal()
        if interruption != "none":
            done = self.rig.volume.recover("--crash-at=" + self.rng.choice(RECOVERY_STEPS))
            if done.returncode in KILLED:
                self._count("recovery " + interruption)
            else:
                self._done(done)
            if interruption == "killed with the machine":
                self.rig.image.power_cut()
        if self.rng.random() < 0.5:
            self._done(self.rig.volume.recover())

    def _done(self, done):
        self.test.assertEqual(done.returncode, 0, "after %s\n%s%s" % (dict(self.counts), done.stdout, done.stderr))

    def _count(self, what):
        self.counts[" ".join(what.split())] += 1

    def text(self):
        return ", ".join("%s %d" % pair for pair in sorted(self.counts.items()))


def read_all(top):
    """Opens and reads every file of the backing directory `top`."""
    for folder, dirs, files in os.walk(top):
        if folder == top:
            dirs.remove(".salius")
        for name in files:
            with open(os.path.join(folder, name), "rb") as f:
                while f.read(1 << 20):
                    pass
