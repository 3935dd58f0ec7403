"""Hostile datagrams against live sockets of the primary and of a replica: no effect, ever."""
import os

from harness import frames
from harness.run import wait_until
from harness.wired import WiredCase


class HostileDatagrams(WiredCase):

    def bombard(self, kind):
        """Sends every mutation of real frames of `kind` while the volume works, then cuts the power
        with one replica lost. A mutation that was believed shows as missing data."""
        rig, wire, writer = self.at_work(m=3, acks=2)
        mount = rig.mount_
        epoch = mount.status()["epoch"]
        sent = {}
        for _ in range(self.count(30, 300)):
            datagram = wire.capture(kind, 1)[0]
            self.assertEqual(frames.sealed(datagram.payload), datagram.payload, "checksums are not those of the product")
            for what, data in frames.mutations(self.rng, datagram, os.urandom(16)):
                wire.send(datagram.source, datagram.target, data)
                sent[what] = sent.get(what, 0) + 1
            writer.more(1)
        writer.more(30)
        status = mount.status()
        self.assertEqual((status["mode"], status["epoch"]), ("replicated", epoch), status)
        self.assertTrue(all(r["member"] for r in status["replicas"]), status)
        self.assertLessEqual(status["durable"], status["issued"])
        self.report("sent %s", sent)
        self.recovered(rig, writer, lost=1)

    def test_damaged_replayed_and_foreign_acks_move_nothing_at_the_primary(self):
        self.bombard(frames.ACK)

    def test_damaged_replayed_and_foreign_records_move_nothing_at_a_replica(self):
        self.bombard(frames.RECORDS)

    def test_forged_ack_of_another_incarnation_does_not_count(self):
        """The ack says that the replica has lost its memory. The primary believes that much: it
        opens a new session there."""
        rig, wire, writer = self.at_work(m=3, acks=2)

        def sessions():
            with open(rig.replicas[0].log, encoding="utf-8") as f:
                return f.read().count(" open: epoch ")
        wait_until(lambda: sessions() == 1, 20, rig.replicas[0].tail)
        ack = wire.capture(frames.ACK, 1)[0]
        wire.send(ack.source, ack.target, frames.of_another_incarnation(frames.far_ahead(ack.payload)))
        wait_until(lambda: sessions() == 2, 20, rig.replicas[0].tail)
        status = rig.mount_.wait_whole()
        self.assertLess(status["replicas"][0]["contiguous"], 1 << 40)
        self.assertLessEqual(status["durable"], status["issued"])
        writer.more(30)
        self.recovered(rig, writer, lost=1)

    def test_a_forged_trim_of_another_session_drops_nothing(self):
        """A replica that believed it would have nothing to return at recovery."""
        rig, wire, writer = self.at_work(m=1, acks=1)
        frame = wire.capture(frames.RECORDS, 1)[0]
        for session in (1, 2, 3):
            forged = frames.patched(frame.payload, frames.TRIM_AT, 1 << 40)
            wire.send(frame.source, frame.target, frames.patched(forged, frames.SESSION_AT, session))
        writer.more(20)
        self.recovered(rig, writer)
