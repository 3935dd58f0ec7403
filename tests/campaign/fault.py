"""The common base of every fault of the campaign, and the faults of the network."""
from harness.relay import Relay
from harness.run import HarnessError, wait_until


class Fault:
    """One kind of fault. Everything random about it is in `params`, drawn from the seed by draw(),
    so that a schedule can be printed, and drawn again.

    - `uses`: the resources it occupies; two faults of one episode never use the same.
    - `loses`: the replicas whose memory it destroys. An episode that ends with the primary's death
      keeps their number below f, as the guarantee I1 allows. In another the primary is alive, and
      takes the log to its disk.
    - `kills`: the volume is meant to fail, or may. The episode ends with a power cut of the primary
      and recovery.
    - `solo`: alone in its episode.
    - `moves`: it has ended the primary's session and recovered the volume.
    - `mounts`: it brings the volume back after the episode's end: mount() leaves it recovered and
      mounted.
    - `early`: dealt among the first, so that every campaign has it.
    - `late`: cannot be healed while the primary is dead, but when its disk is mounted again.
    - `refuses`: programs may get errors meanwhile. Without it an error is a failed run.
    - `did`: the number of its known effects, complete when it was healed. Only kinds that may have
      no effect set it.

    The inject() of all other kinds waits for the effect or fails. A process is stopped or dead, a
    host's memory is lost, or living processes read a clock that is set. Or a second mount or
    recovery was refused, or a frozen primary was fenced."""

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
        """Returns why this machine cannot do it; empty when it can."""
        return ""

    @classmethod
    def draw(cls, rng, shape):
        """Returns a fault for an installation of `shape` (m, f, fs), or None when it is impossible
        there."""
        return cls()

    def uses(self, shape):
        return set()

    def loses(self):
        return set()

    def ends(self):
        """Returns the replicas whose process it ends."""
        return self.loses()

    def inject(self, campaign):
        raise NotImplementedError

    def heal(self, campaign):
        pass

    def mount(self, campaign):
        """Mounts the volume, if the fault `mounts`: everything else is healed, the primary is dead,
        and its volume is not recovered yet."""
        raise NotImplementedError

    def hit(self):
        """Returns whether it had an effect, asked after it was healed. The campaign does not count
        one without."""
        return self.did is None or self.did > 0

    def text(self):
        return "%s(%s)" % (self.name, ", ".join("%s=%s" % p for p in sorted(self.params.items())))


def some_replicas(rng, shape, all_share=0.25):
    """Returns one replica, or by chance all of them."""
    return list(range(shape.m)) if rng.random() < all_share else [rng.randrange(shape.m)]


def within(seconds, condition):
    """Returns whether the condition becomes true in that time."""
    try:
        return wait_until(condition, seconds, "", 0.05)
    except HarnessError:
        return condition()  # the condition may raise an error of its own


class OnReplicas(Fault):
    """A fault of params["at"], a list of replicas, which occupies `what` of each."""

    what = ""

    def uses(self, shape):
        return {"%s %d" % (self.what, i) for i in self.params["at"]}

    def heal(self, campaign):
        for i in self.params["at"]:
            self.heal_one(campaign, i)


class OnTheWay(OnReplicas):
    """A fault of packets to and from replicas: it had an effect when it met one."""

    what = "net"
    did = 0
    of_all = sum  # combines its effects at each of its replicas

    def heal(self, campaign):
        self.did += self.of_all([self.heal_one(campaign, i) for i in self.params["at"]])

    def heal_one(self, campaign, i):
        """Heals it there; returns how many packets it met."""
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
    of_all = min  # if one lost nothing, not all were cut off

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
    """Counts the packets that the primary sends meanwhile; the replica's own packets are
    invisible."""

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
    """Everything passes a relay that delays, reorders and duplicates; every packet through it is
    late."""

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
