"""Controls: a campaign in which a promise is broken must fail, and only faults with an effect
count."""
import contextlib
import os
import random
import socket
import time
from concurrent.futures import ThreadPoolExecutor

from campaign import engine, fault, fault_disk, fault_host, schedule
from campaign.engine import Campaign, Failed
from campaign.schedule import Episode, Shape
from campaign.work import make
from harness import ops, sqlite
from harness.case import Case
from harness.image import Image
from harness.net import PRIMARY_IP, Net, inside
from harness.run import current, wait_until
from harness.volume import MountRefused


def power_cut(shape, faults=(), **changes):
    """Returns an episode that ends with a power cut and an ordinary recovery."""
    episode = Episode(random.Random(1), shape, list(faults), True)
    settings = {"ending": "power cut", "recovery": "program", "try_early": False, "disk_ahead": False, "after": [],
                "hold_ms": 500}
    for name, value in {**settings, **changes}.items():
        setattr(episode, name, value)
    return episode


class Unhealed(fault.CutOffAll):
    def heal(self, campaign):
        pass


class OnReplicasAlone(Campaign):
    """Cuts the power when every replica is a member and some records are on no disk. A cut in mode
    local, or with the records in the stable log too, may lose nothing."""

    def _power_cut(self, episode, active):
        self.rig.mount_.wait_status(
            lambda s: s["mode"] == "replicated" and all(r["member"] for r in s["replicas"]) and
            s["stable_log_used_bytes"] == 0 and s["uncheckpointed_bytes"] > 0, 60, "records that only the replicas hold")
        super()._power_cut(episode, active)


class BrokenPromisesAreCaught(Case):

    def campaign(self, shape=Shape(2, 1, "ext4"), works=("ops",), kind=Campaign, **kwargs):
        campaign = kind(shape, works, self.own, self.report, **kwargs)
        for work in campaign.works:
            work.progress(100, 60)
        return campaign

    def fails(self, campaign, episode, what):
        with self.assertRaises(Failed) as caught:
            campaign.run([episode])
        self.assertRegex(str(caught.exception), what)

    def test_memory_of_f_members_lost_with_the_primary_is_refused(self):
        shape = Shape(3, 2, "ext4")
        self.fails(self.campaign(shape, kind=OnReplicasAlone), power_cut(shape, after=[0, 2]),
                   "recovery with everything healed: exit 4")

    def test_memory_of_all_members_lost_and_recovery_forced_is_a_loss_that_the_ledger_shows(self):
        for works in (["ops"], ["wal"]):
            shape = Shape(2, 1, "ext4")
            campaign = self.campaign(shape, works, OnReplicasAlone)
            campaign.recover_options = ("--force",)
            self.fails(campaign, power_cut(shape, after=[0, 1]), "Damage")

    def test_acknowledgements_ahead_of_the_truth_are_a_loss_that_the_ledger_shows(self):
        class Lying(Campaign):
            def _power_cut(self, episode, active):
                super()._power_cut(episode, active)
                for work in self.works:
                    last = max(work.ledger.acked())
                    for number in range(last + 1, last + 9):
                        work.ledger.ack(number)
        for works in (["ops"], ["wal"]):
            campaign = self.campaign(works=works, kind=Lying)
            self.fails(campaign, power_cut(campaign.shape), "Damage")

    def test_a_partition_that_is_not_healed_is_a_volume_that_does_not_come_back(self):
        campaign = self.campaign()
        self.patch("SETTLE_S", 5)
        episode = power_cut(campaign.shape, [Unhealed(at=[0, 1], udp_only=False)], ending=schedule.HEAL)
        self.fails(campaign, episode, "everything is healed: mode replicated")

    def test_hanging_writer_is_stuck_and_dead_writer_is_reported(self):
        self.patch("STUCK_S", 3)
        campaign = self.campaign()
        episode = power_cut(campaign.shape, ending=schedule.HEAL)
        campaign.works[0].writer.proc.stop()
        self.fails(campaign, episode, "is stuck")
        campaign.works[0].writer.proc.kill()
        self.fails(campaign, episode, "an error that no fault explains")

    def test_volume_that_continues_after_a_failed_write_of_its_files_is_a_failure(self):
        class OnlySeeminglyWell(Campaign):
            def new_mount(self, volume):
                mount = super().new_mount(volume)
                mount.mode = lambda: "replicated"
                return mount
        self.addCleanup(setattr, fault_disk, "FAIL_S", fault_disk.FAIL_S)
        fault_disk.FAIL_S = 2
        for calls in ("own", "sync", "write"):
            campaign = self.campaign(kind=OnlySeeminglyWell, tau="2s")
            errors = fault_disk.DiskErrors(calls=calls, when="1", error="EIO")
            self.fails(campaign, power_cut(campaign.shape, [errors]), "the disk refused this, and the volume continues: .*EIO")
            self.assertTrue(errors.hit())

    def test_an_error_of_the_disk_fails_the_volume_whichever_of_its_files_it_was(self):
        for calls in ("own", "write"):
            for error in ("EIO", "ENOSPC"):
                campaign = self.campaign()
                campaign.run([power_cut(campaign.shape, [fault_disk.DiskErrors(calls=calls, when="1", error=error)])])
                self.assertEqual(campaign.counts["disk errors: volume failed"], 1, campaign.counts)
                campaign.finish()

    def test_error_in_two_strace_lines_is_one_call_with_its_path(self):
        path = os.path.join(current().dir, "two-lines.calls")
        with open(path, "w") as f:
            f.write("7 pwritev2(8</b/.salius/state>, [{...}], 1, 0, RWF_DSYNC <unfinished ...>\n"
                    "9 fsync(5</b/x>) = 0\n"
                    "7 <... pwritev2 resumed>) = -1 EIO (Input/output error) (INJECTED)\n"
                    "9 fsync(5</b/y>) = -1 EIO (Input/output error) (INJECTED)\n")
        self.assertEqual([fault_disk.path_of(hit) for hit in fault_disk.injected(path)], ["/b/.salius/state", "/b/y"])

    def patch(self, name, value):
        self.addCleanup(setattr, engine, name, getattr(engine, name))
        setattr(engine, name, value)

    def test_the_same_seed_draws_the_same_schedule(self):
        shape = Shape(3, 2, "ext4")

        def texts(seed):
            return [e.text() for e in schedule.draw(random.Random(seed), shape, 60)]
        self.assertEqual(texts(7), texts(7))
        self.assertNotEqual(texts(7), texts(8))

    def test_no_schedule_takes_the_memory_of_f_replicas_together_with_the_primary(self):
        deaths = 0
        for seed in range(200):
            shape = random.Random(seed).choice([Shape(3, 2, "ext4"), Shape(2, 1, "xfs"), Shape(3, 3, "ext4")])
            for episode in schedule.draw(random.Random(seed), shape, 60):
                if episode.dies() or any(f.moves for f in episode.faults):
                    deaths += 1
                    self.assertLess(len(episode.lost() | set(episode.after)), shape.f, episode.text())
        self.report("%d deaths of the primary in 200 schedules", deaths)

    def test_a_kind_that_this_machine_cannot_do_is_not_drawn(self):
        class Impossible(fault.CutOffOne):
            name = "impossible"

            @classmethod
            def missing(cls):
                return "not here"
        drawn = list(schedule.draw(random.Random(1), Shape(3, 2, "ext4"), 60, [fault.Loss, Impossible]))
        self.assertEqual({f.name for episode in drawn for f in episode.faults}, {fault.Loss.name})
        self.assertGreaterEqual(sum(map(schedule.count, drawn)), 60)

    def test_a_fault_that_hits_nothing_is_not_counted(self):
        class Nothing(fault.CutOffOne):
            def hit(self):
                return False
        campaign = self.campaign()
        cut_off = {"at": [0], "udp_only": False}
        campaign.run([power_cut(campaign.shape, [Nothing(**cut_off)], ending=schedule.HEAL)])
        self.assertEqual((campaign.faults(), campaign.counts["cut off one: hit nothing"]), (0, 1))
        campaign.run([power_cut(campaign.shape, [fault.CutOffOne(**cut_off)], ending=schedule.HEAL)])
        self.assertEqual(campaign.faults(), 1)
        os.mkdir(campaign.rig.file(fault_disk.FILLER))  # a filler that cannot be filled
        unfilled = fault_disk.DiskFull(inside=True)
        unfilled.inject(campaign)
        self.assertFalse(unfilled.hit())

    def test_a_fault_on_the_way_to_replicas_is_counted_when_it_met_a_packet(self):
        class OnlyNet:
            rig = self
        net = self.net = self.own(Net(2))
        with inside(net.primary):
            primary = self.own(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
        replicas = []
        for i in range(2):
            with inside(net.replica(i)):
                replicas.append(self.own(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)))
            replicas[i].bind((net.ip(i), 7777))
        primary.bind((PRIMARY_IP, 7777))

        def to(*wanted, back=False):
            for i in wanted:
                for _ in range(100):
                    # The replica gets an error for datagrams dropped at its own end.
                    with contextlib.suppress(OSError):
                        if back:
                            replicas[i].sendto(b"x", primary.getsockname())
                        else:
                            primary.sendto(b"x", replicas[i].getsockname())

        def through_the_relay():
            replicas[0].settimeout(0.5)  # a port that is new to the bridge may not forward at once
            end = time.monotonic() + 10
            while time.monotonic() < end:
                primary.sendto(b"through", replicas[0].getsockname())
                with contextlib.suppress(TimeoutError):
                    while replicas[0].recv(10) != b"through":
                        pass
                    return
            self.fail("nothing comes through the relay")
        relayed = {"at": [0], "delay_ms": 1, "jitter_ms": 0.5, "duplicate": 1, "seed": 1}
        one, both, incoming = {"udp_only": True, "at": [0]}, {"udp_only": False, "at": [0, 1]}, {"incoming": True}
        for kind, params, hits, misses in (
                (fault.CutOffOne, one, lambda: to(0), lambda: to(1)),
                (fault.CutOffAll, both, lambda: to(0, 1), lambda: to(1)),
                (fault.OneWay, {**one, **incoming}, lambda: to(0), lambda: to(0, back=True)),
                (fault.OneWay, {**both, "incoming": False}, lambda: to(1, back=True), lambda: to(0, 1)),
                (fault.Loss, {"at": [0, 1], "share": 0.2}, lambda: to(1), lambda: None),
                (fault.Cable, {"at": [0]}, lambda: to(0), lambda: to(1)),
                (fault.Relayed, relayed, through_the_relay, lambda: to(1))):
            for act, does in ((hits, True), (misses, False)):
                card = kind(**params)
                card.inject(OnlyNet)
                act()
                card.heal(OnlyNet)
                self.assertEqual(card.hit(), does, card.text())

    def test_a_disk_that_hangs_or_is_gone_is_counted_when_the_daemon_met_that(self):
        def failed(mount):
            """Returns whether it failed and its log, which is written in the background, says
            so."""
            return mount.mode() == "failed" and "volume failed: " in mount.proc.tail()
        for kind, met in ((fault_disk.DiskStuck, lambda mount: mount.proc.threads("D")), (fault_disk.DiskGone, failed),
                          (fault_disk.DiskReadOnly, failed)):
            campaign = self.campaign()
            card = kind()
            card.inject(campaign)
            wait_until(lambda: met(campaign.rig.mount_), 20, "the daemon has written")
            card.heal(campaign)
            self.assertTrue(card.hit(), card.name)
        rig = self.rig(m=1, acks=1, start=False)  # a disk without users
        nobody = type("Nobody", (), {"rig": rig, "own": self.own})
        rig.mount_ = None
        for card in (fault_disk.DiskStuck(), fault_disk.DiskReadOnly(), fault_disk.DiskGone()):
            with open(rig.volume.log, "a"):
                pass
            card.inject(nobody)
            card.heal(nobody)
            self.assertFalse(card.hit(), card.name)

    def test_replica_killed_by_a_memory_limit_keeps_its_memory(self):
        shape = Shape(3, 2, "ext4")
        campaign = self.campaign(shape)
        replica = campaign.rig.replicas[0]
        limit = fault_host.MemoryLimit(at=[0], spare_kb=0, serving=True, clients=200)
        limit.SESSION_S = 60
        limit.inject(campaign)
        wait_until(lambda: not replica.alive(), 30, "the replica lives on")
        limit.heal(campaign)
        self.assertTrue(limit.hit())
        # Its log is written in the background.
        wait_until(lambda: "attached to arena" in replica.tail(), 10, replica.tail)
        small = fault_host.MemoryLimit(at=[0], limit_mb=24)
        wide = fault_host.MemoryLimit(at=[0], spare_kb=64 << 10, serving=True, clients=20)
        wide.SESSION_S = 60
        campaign.run([power_cut(shape, [small], ending=schedule.HEAL), power_cut(shape, [wide], try_early=True)])
        self.assertEqual((small.hit(), wide.hit()), (True, False))
        outcomes = {what: n for what, n in campaign.counts.items() if what.startswith("memory limit: ")}
        self.assertEqual(outcomes, {"memory limit: killed in service": 1, "memory limit: did not start": 1,
                                    "memory limit: served under it": 1})
        campaign.finish()

    def test_kind_that_never_hit_is_named(self):
        class Impossible(fault.CutOffOne):
            name = "impossible"

            @classmethod
            def missing(cls):
                return "not here"
        kinds = [fault.Loss, fault_disk.DiskReadOnly, Impossible]
        counts = {"packet loss: hit nothing": 3, "disk read-only": 1}
        self.assertEqual(engine.never_hit(counts, kinds, Shape(3, 2, "ext4")), ["packet loss"])
        self.assertEqual(engine.never_hit({"packet loss": 1}, kinds, Shape(3, 2, "ext4")), ["disk read-only"])
        # Only ext4 does that.
        self.assertEqual(engine.never_hit({"packet loss": 1}, kinds, Shape(2, 1, "xfs")), [])

    def test_every_kind_of_fault_comes_within_a_few_seeds(self):
        seen = set()
        for seed in range(3):
            for episode in schedule.draw(random.Random(seed), Shape(3, 2, "ext4"), 40):
                seen |= {f.name for f in episode.faults}
        self.assertEqual(seen, {k.name for k in schedule.KINDS if not k.missing()})

    def test_two_mounts_race_in_every_schedule(self):
        shapes = [(Shape(3, 2, "ext4"), 18), (Shape(3, 3, "ext4"), 18), (Shape(1, 1, "xfs"), 12), (Shape(3, 2, "ext4"), 12)]
        for seed in range(100):
            for shape, faults in shapes:
                races = [e for e in schedule.draw(random.Random(seed), shape, faults)
                         if any(isinstance(f, fault_host.MountRace) for f in e.faults)]
                self.assertGreaterEqual(len(races), 1, (seed, shape))
                self.assertTrue(all(e.dies() and e.recovery == "mount" and not e.try_early for e in races))

    def test_a_race_is_counted_when_two_mounts_really_were_there_together(self):
        class OneAfterTheOther(fault_host.MountRace):
            """The second begins when the first has the volume."""

            def mount(self, campaign):
                two, campaign.threads = campaign.threads, ThreadPoolExecutor(1)
                self.pool = campaign.threads
                super().mount(campaign)
                campaign.threads = two
        campaign = self.campaign()
        campaign.run([power_cut(campaign.shape, [fault_host.MountRace()], recovery="mount")])
        # The race and the power cut.
        self.assertEqual((campaign.faults(), engine.by_kind(campaign.counts)["mounts race"]), (2, 1))
        later = OneAfterTheOther()
        campaign.run([power_cut(campaign.shape, [later], recovery="mount")])
        self.assertEqual((campaign.faults(), campaign.counts["mounts race: hit nothing"]), (3, 1))
        campaign.finish()

    def test_two_mounts_that_both_win_are_a_failure(self):
        class Both(Campaign):
            """A refused mount looks as if it had the volume."""

            def new_mount(self, volume):
                try:
                    return super().new_mount(volume)
                except MountRefused:
                    return _Closed(volume)
        campaign = self.campaign(kind=Both)
        self.fails(campaign, power_cut(campaign.shape, [fault_host.MountRace()], recovery="mount"), "two mounts raced: 2 won")


class _Closed:
    def __init__(self, volume):
        self.volume = volume

    def close(self):
        pass


class PretendedSyncsAreCaught(Case):
    """The campaign's own workloads and checks on bare ext4, without Salius, where the outcome is
    known."""

    def cut(self, wrapper=()):
        """Makes one power cut, of workloads that began with real syncs. Returns the damage:
        {workload: the check's text}."""
        image = self.own(Image("bare"))
        works = make(["ops", "wal"], self.own)

        def kill():
            for each in works:
                each.kill()

        def run(count):
            for each in works:
                each.start(image.path)
            for each in works:
                each.progress(count, 60)
        self.addCleanup(kill)
        run(20)
        kill()
        for each in works:
            each.check(image.path, True)
            each.wrapper = wrapper
        run(100)
        image.power_cut(kill)
        damage = {}
        for each in works:
            try:
                each.check(image.path, True)
            except (ops.Damage, sqlite.Damage) as error:
                damage[each.name] = str(error)
        self.report("%s acknowledged; damaged: %s", [each.acked() for each in works], damage or "nothing")
        return damage

    def test_real_syncs_lose_nothing_on_the_bare_image(self):
        for _ in range(self.count(2, 10)):
            self.assertEqual(self.cut(), {})

    def test_eatmydata_is_caught_losing_acknowledgements_of_each_workload(self):
        for _ in range(self.count(2, 10)):
            self.assertEqual(sorted(self.cut(self.eatmydata())), ["ops", "sqlite-wal-"])

