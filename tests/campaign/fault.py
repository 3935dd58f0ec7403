"""What every fault of the campaign has in common, and the faults of the network."""
from harness.relay import Relay
from harness.run import HarnessError, wait_until


class Fault:
    """One kind of fault. Everything random about it is in `params`, drawn from the seed by draw(), so that a
    schedule can be printed, and drawn again.

    `uses`: what it occupies; two faults of one episode never use the same.
    `loses`: the replicas whose memory it takes. An episode that ends with the primary's death keeps the number of them
    below f, which is what the guarantee I1 allows; else the primary is alive, and takes the log to its disk.
    `kills`: the volume is meant to fail, or may: the episode ends with a power cut of the primary and recovery.
    `solo`: alone in its episode. `moves`: it has ended the primary's session and recovered the volume by itself.
    `mounts`: it is how the volume comes back after the episode's end: mount() leaves it recovered and mounted.
    `early`: among the first that are dealt, so that every campaign has it.
    `late`: cannot be healed while the primary is dead, but when its disk is mounted again.
    `refuses`: programs may get errors meanwhile. Without it an error is a failed run.
    `did`: how much it is known to have done to somebody, complete when it was healed, of a kind where that may be
    nothing. None of the others, whose inject() waits for the effect or fails: a process stands still or is dead, a
    host's memory is gone, a clock that living processes read is set, a mount or a recovery beside another was refused,
    a frozen primary was fenced."""

    name = ""
    solo = False
    moves = False
    mounts = False
    early = False
    late = False
    kills = False
    refuses = False
    did = None

    def __init__(self, **params):
        self.params = params

    @classmethod
    def missing(cls):
        """Why this machine cannot do it; empty when it can."""
        return ""

    @classmethod
    def draw(cls, rng, shape):
        """A fault for an installation of `shape` (m, f, fs), or None when it cannot be there."""
        return cls()

    def uses(self, shape):
        return set()

    def loses(self):
        return set()

    def ends(self):
        """The replicas whose process it ends."""
        return self.loses()

    def inject(self, campaign):
        raise NotImplementedError

    def heal(self, campaign):
        pass

    def mount(self, campaign):
        """Of one that `mounts`: everything else is healed, the primary dead, its volume not recovered yet."""
        raise NotImplementedError

    def hit(self):
        """Whether it really did something to somebody, asked after it was healed; what did not is no fault that the
        campaign counts."""
        return self.did is None or self.did > 0

    def text(self):
        return "%s(%s)" % (self.name, ", ".join("%s=%s" % p for p in sorted(self.params.items())))


def some_replicas(rng, shape, all_share=0.25):
    """One replica, or by chance all of them."""
    return list(range(shape.m)) if rng.random() < all_share else [rng.randrange(shape.m)]


def within(seconds, condition):
    """Whether it comes true in that time."""
    try:
        return wait_until(condition, seconds, "", 0.05)
    except HarnessError:
        return condition()  # which may have an error of its own to tell


class OnReplicas(Fault):
    """A fault of params["at"], a list of replicas, which occupies `what` of each."""

    what = ""

    def uses(self, shape):
        return {"%s %d" % (self.what, i) for i in self.params["at"]}

    def heal(self, campaign):
        for i in self.params["at"]:
            self.heal_one(campaign, i)


class OnTheWay(OnReplicas):
    """A fault of packets to and from replicas: it did something when it met one."""

    what = "net"
    did = 0
    of_all = sum  # what it did, from what it did at each of its replicas

    def heal(self, campaign):
        self.did += self.of_all([self.heal_one(campaign, i) for i in self.params["at"]])

    def heal_one(self, campaign, i):
        """Returns how many packets it met there."""
        return campaign.rig.net.heal(i)


class CutOffOne(OnTheWay):
    name = "cut off one"

    @classmethod
    def draw(cls, rng, shape):
        return cls(at=[rng.randrange(shape.m)], udp_only=rng.random() < 0.5)

    def inject(self, campaign):
        for i in self.params["at"]:
            campaign.rig.net.drop(i, udp_only=self.params["udp_only"])


class CutOffAll(CutOffOne):
    name = "cut off all"
    of_all = min  # when one lost nothing, not all were cut off

    @classmethod
    def draw(cls, rng, shape):
        return cls(at=list(range(shape.m)), udp_only=rng.random() < 0.5)


class OneWay(OnTheWay):
    """Records arrive and acknowledgements do not, or the other way round."""

    name = "one-way loss"

    @classmethod
    def draw(cls, rng, shape):
        return cls(at=some_replicas(rng, shape), incoming=rng.random() < 0.5, udp_only=rng.random() < 0.5)

    def inject(self, campaign):
        incoming = self.params["incoming"]
        for i in self.params["at"]:
            campaign.rig.net.drop(i, self.params["udp_only"], incoming=incoming, outgoing=not incoming)


class Loss(OnTheWay):
    name = "packet loss"

    @classmethod
    def draw(cls, rng, shape):
        return cls(at=some_replicas(rng, shape, 0.5), share=rng.randint(1, 20) / 100)

    def inject(self, campaign):
        for i in self.params["at"]:
            campaign.rig.net.lose(i, self.params["share"])


class Cable(OnTheWay):
    """Counted are the packets that the primary sends meanwhile; what the replica sends nobody sees."""

    name = "cable pulled"
    what = "cable"

    @classmethod
    def draw(cls, rng, shape):
        return cls(at=some_replicas(rng, shape))

    def inject(self, campaign):
        for i in self.params["at"]:
            campaign.rig.net.link(i, up=False)

    def heal_one(self, campaign, i):
        return campaign.rig.net.link(i, up=True)


class Relayed(OnTheWay):
    """Everything through a relay that delays, reorders and duplicates; all that comes through it is late."""

    name = "duplicated and delayed"
    what = "cable"

    @classmethod
    def draw(cls, rng, shape):
        return cls(at=some_replicas(rng, shape, 0.4), delay_ms=rng.choice([0, 1, 5, 20, 60]),
                   jitter_ms=rng.choice([0.5, 2, 10, 40]), duplicate=rng.choice([0.05, 0.3, 1]),
                   seed=rng.getrandbits(30))

    def inject(self, campaign):
        p = self.params
        self._relays = {}
        for i in p["at"]:
            self._relays[i] = Relay(campaign.rig.net, i, p["delay_ms"], p["jitter_ms"], p["duplicate"], p["seed"] + i)

    def heal_one(self, campaign, i):
        relay = self._relays.pop(i, None)  # None: it did not start
        if relay is None:
            return 0
        relay.close()
        return relay.counts["delayed"]


KINDS = [CutOffOne, CutOffAll, OneWay, Loss, Cable, Relayed]
