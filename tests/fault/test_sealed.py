"""Sealed datagrams: what others send has no effect, keys change without a pause, and a replica that
was restarted gets its key again."""
import os

from fault.test_replicas import report_of
from harness import frames
from harness.keys import Keys
from harness.rig import PATIENT
from harness.run import wait_until
from harness.wired import WiredCase

NEEDLE = b"a text that must not show on the wire "


class Sealed(WiredCase):

    def at_work(self, **how):
        return super().at_work(keys=Keys(), **how)

    def refused_at_replica(self, rig, index=0):
        """Returns the datagrams that the replica has refused, by reason."""
        name = "salius_replica_refused_datagrams_total{reason="
        return {key[len(name) + 1:-2]: value for key, value in rig.replicas[index].metrics().items() if key.startswith(name)}

    def refused_at_primary(self, rig):
        return rig.mount_.status()["sealing"]["refused"]

    def unchanged(self, rig, since):
        """Checks that the volume never left its mode, and lost no member."""
        status = rig.mount_.status()
        self.assertEqual((status["mode"], status["mode_since_unix_ms"]), ("replicated", since), status)
        self.assertTrue(all(r["member"] for r in status["replicas"]), status)
        self.assertLessEqual(status["durable"], status["issued"])


class Hostile(Sealed):

    def bombard(self, kind, refused):
        """Sends every mutation of real datagrams of `kind` while the volume works. Each is refused
        where it arrives. Then cuts the power with one replica lost."""
        rig, wire, writer = self.at_work()
        since = rig.mount_.status()["mode_since_unix_ms"]
        sent = {}
        for _ in range(self.count(20, 200)):
            datagram = wire.capture_sealed(kind, 1)[0]
            for what, data in frames.sealed_mutations(self.rng, datagram):
                wire.send(datagram.source, datagram.target, data)
                sent[what] = sent.get(what, 0) + 1
            writer.more(1)
        # Datagrams without bytes are no datagrams of ours; a truncation may have none.
        least = sum(sent.values()) - sent["truncated"] - sent["noise"]
        wait_until(lambda: sum(refused(rig).values()) >= least, 60, lambda: "%s sent, %s refused" % (sent, refused(rig)))
        for reason in ("replayed", "wrong_tag", "no_key", "unsealed", "malformed"):
            self.assertGreater(refused(rig)[reason], 0, reason)
        writer.more(30)
        self.unchanged(rig, since)
        self.report("sent %s, refused %s", sent, refused(rig))
        self.recovered(rig, writer, lost=1)

    def test_hostile_acknowledgements_are_refused_at_the_primary(self):
        self.bombard(frames.ACK, self.refused_at_primary)

    def test_hostile_records_are_refused_at_a_replica(self):
        self.bombard(frames.RECORDS, self.refused_at_replica)

    def test_replayed_datagrams_in_another_order_are_refused(self):
        rig, wire, writer = self.at_work()
        since = rig.mount_.status()["mode_since_unix_ms"]
        captured = []
        for _ in range(30):
            captured += wire.capture_sealed(frames.RECORDS, 1)
            writer.more(1)
        # Each of them has arrived: a later one was acknowledged.
        before = self.refused_at_replica(rig)["replayed"]
        self.rng.shuffle(captured)
        for datagram in captured:
            wire.send(datagram.source, datagram.target, datagram.payload)
        wait_until(lambda: self.refused_at_replica(rig)["replayed"] >= before + len(captured), 60,
                   lambda: "refused: %s" % self.refused_at_replica(rig))
        writer.more(30)
        self.unchanged(rig, since)
        self.recovered(rig, writer, lost=2)

    def test_flood_of_garbage_costs_no_member(self):
        rig, wire, writer = self.at_work()
        since = rig.mount_.status()["mode_since_unix_ms"]
        datagram = wire.capture_sealed(frames.RECORDS, 1)[0]
        ack = wire.capture_sealed(frames.ACK, 1)[0]
        for _ in range(self.count(30, 300)):
            for _ in range(100):
                wire.send(datagram.source, datagram.target, self.rng.randbytes(1000))
                wire.send(ack.source, ack.target, self.rng.randbytes(200))
            writer.more(1)
        writer.more(30)
        self.unchanged(rig, since)
        self.assertGreater(self.refused_at_replica(rig)["malformed"], 0)
        self.assertGreater(self.refused_at_primary(rig)["malformed"], 0)
        self.recovered(rig, writer, lost=0)

    def test_forged_notices_cost_no_member(self):
        """They ask for a new handshake: the replica gives the same answer again."""
        rig, wire, writer = self.at_work()
        since = rig.mount_.status()["mode_since_unix_ms"]
        for _ in range(50):
            datagram = wire.capture_sealed(frames.RECORDS, 1)[0]
            notice = bytearray(datagram.payload[:frames.PREFIX])
            notice[frames.KIND_AT] = 1
            wire.send(datagram.target, datagram.source, bytes(notice))
            writer.more(1)
        self.unchanged(rig, since)
        self.recovered(rig, writer, lost=1)


class Secret(Sealed):

    def test_no_data_or_name_is_readable_on_the_wire(self):
        rig, wire, writer = self.at_work(m=1, acks=1)
        writer.kill()
        volume = rig.mount_.status()["volume"].replace("-", "")
        for i in range(20):
            with open(rig.file("a secret name %d" % i), "wb") as f:
                f.write(NEEDLE * 20)
                f.flush()
                os.fsync(f.fileno())
        for datagram in wire.capture_sealed(frames.RECORDS, 20) + wire.capture_sealed(frames.ACK, 20):
            for secret in (NEEDLE[:16], b"secret name", bytes.fromhex(volume)):
                self.assertNotIn(secret, datagram.payload)


class Keep(Sealed):

    def test_key_changes_every_second_under_load(self):
        rig, _, writer = self.at_work(options="recover=auto,key-rotation=1")
        since = rig.mount_.status()["mode_since_unix_ms"]
        changes = self.count(5, 60)

        def changed():
            writer.more(5)
            return rig.mount_.status()["sealing"]["key_changes"] >= changes
        wait_until(changed, 60 + 10 * changes, lambda: str(rig.mount_.status()))
        self.unchanged(rig, since)
        self.recovered(rig, writer, lost=1)

    def test_restarted_replica_gets_its_key_again_and_stays_a_member(self):
        rig, _, writer = self.at_work(init_options=(*PATIENT[:-1], "20s"))
        since = rig.mount_.status()["mode_since_unix_ms"]
        for index in (0, 1):
            replica = rig.replicas[index]
            incarnation = report_of(rig.mount_.status(), replica)["incarnation"]
            replica.restart()

            def caught_up():
                writer.more(2)
                report = report_of(rig.mount_.status(), replica)
                return report["connected"] and report["lag_records"] < 10 and report["contiguous"] > report["base"]
            wait_until(caught_up, 60, lambda: str(rig.mount_.status()))
            self.assertEqual(report_of(rig.mount_.status(), replica)["incarnation"], incarnation)
            self.assertGreater(self.refused_at_replica(rig, index)["no_key"], 0)
            self.unchanged(rig, since)
        self.recovered(rig, writer, lost=2)

    def test_replica_that_lost_its_memory_and_its_keys_is_lost(self):
        rig, _, writer = self.at_work()
        before = report_of(rig.mount_.status(), rig.replicas[0])["incarnation"]
        rig.replicas[0].lose_memory()
        rig.replicas[0].restart()
        writer.more(5)
        wait_until(lambda: report_of(rig.mount_.status(), rig.replicas[0])["incarnation"] != before, 60,
                   lambda: str(rig.mount_.status()))
        rig.mount_.wait_whole(60)
        self.recovered(rig, writer, lost=1)
