"""Hostile datagrams: captures real frames from the wire, damages them, sends them with forged
sources.

Offsets are those of docs/wire-format.md. A mutation that does not test the checksum gets a correct
one, so that the receiver is not saved by the checksum alone.
"""
import socket
import struct

from harness.net import inside
from harness.run import wait_until

HEADER = 88
TYPE_AT, VOLUME_AT, EPOCH_AT, SESSION_AT, TRIM_AT, DURABLE_AT, ISSUED_AT, CRC_AT = 5, 16, 32, 40, 56, 64, 72, 84
RECORDS, FRAGMENT, ACK, PROBE = 1, 2, 3, 4
ACK_INCARNATION_AT, ACK_CONTIGUOUS_AT, ACK_CRC_AT = HEADER, HEADER + 16, HEADER + 52
# A sealed datagram: magic and version, and the offsets in its prefix.
SEALED = b"SLF2\x02"
KIND_AT, KEY_ID_AT, SENDER_AT, COUNTER_AT, PREFIX, TAG = 5, 8, 12, 16, 24, 16
REPLICA_PORT = 7400
MAX_PAYLOAD = 1472  # of an Ethernet frame of 1500 bytes; a raw socket does not split packets
_ETH_P_IP = 0x0800


def _table():
    table = []
    for byte in range(256):
        crc = byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
        table.append(crc)
    return table


_CRC = _table()


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ _CRC[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFFFFFF


class Datagram:
    """One captured UDP datagram: addresses as (ip, port), payload as bytes."""

    def __init__(self, source, target, payload):
        self.source, self.target, self.payload = source, target, payload

    def type(self):
        return self.payload[TYPE_AT] if len(self.payload) >= HEADER else 0


class Wire:
    """Listens on the cable of replica `i`; capture() returns the datagrams that passed."""

    def __init__(self, net, i):
        self.net, self.i = net, i
        self._own = set()  # datagrams sent from here, which the sniffer sees too
        with inside(net.replica(i)):
            # 3 is ETH_P_ALL.
            self._sniffer = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(3))
            self._sniffer.bind(("eth0", 3))
            self._sniffer.setblocking(False)
            self._sender = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW)
        with inside(net.primary):
            self._from_primary = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW)

    def capture(self, wanted, count, timeout_s=20):
        """Returns `count` datagrams of frame type `wanted`."""
        return self._capture(lambda datagram: datagram.type() == wanted, count, timeout_s, "frames of type %d" % wanted)

    def capture_sealed(self, kind, count, timeout_s=60):
        """Returns `count` sealed datagrams: acknowledgements of the replica (ACK), or datagrams to
        it."""
        replica = self.net.ip(self.i)

        def right(datagram):
            end = datagram.source if kind == ACK else datagram.target
            return datagram.payload[:5] == SEALED and end == (replica, REPLICA_PORT)
        return self._capture(right, count, timeout_s, "sealed datagrams")

    def capture_any(self, end, count, timeout_s=60):
        """Returns `count` datagrams from or to `end`."""
        return self._capture(lambda datagram: end in (datagram.source, datagram.target), count, timeout_s, "datagrams")

    def _capture(self, right, count, timeout_s, what):
        found = []

        def look():
            while len(found) < count:
                try:
                    packet = self._sniffer.recv(65536)
                except BlockingIOError:
                    return False
                datagram = parse(packet)
                if datagram and datagram.payload not in self._own and right(datagram):
                    found.append(datagram)
            return True
        wait_until(look, timeout_s, lambda: "%d of %d %s seen" % (len(found), count, what))
        return found

    def send(self, source, target, payload):
        """Sends with a forged source address, from the side where that source lives. Cuts a
        mutation that is longer than a packet."""
        payload = payload[:MAX_PAYLOAD]
        self._own.add(bytes(payload))
        sender = self._sender if source[0] == self.net.ip(self.i) else self._from_primary
        # The checksum 0 means none.
        udp = struct.pack("!HHHH", source[1], target[1], 8 + len(payload), 0) + payload
        header = struct.pack("!BBHHHBBH4s4s", 0x45, 0, 20 + len(udp), 0, 0, 64, socket.IPPROTO_UDP, 0,
                             socket.inet_aton(source[0]), socket.inet_aton(target[0]))
        sender.sendto(header + udp, (target[0], 0))

    def close(self):
        for s in (self._sniffer, self._sender, self._from_primary):
            s.close()


def parse(packet):
    if len(packet) < 28 or packet[0] >> 4 != 4 or packet[9] != socket.IPPROTO_UDP:
        return None
    at = (packet[0] & 15) * 4
    source_port, target_port, length = struct.unpack_from("!HHH", packet, at)
    return Datagram((socket.inet_ntoa(packet[12:16]), source_port), (socket.inet_ntoa(packet[16:20]), target_port),
                    packet[at + 8:at + length])


def sealed(payload):
    """Returns `payload` with correct checksums of the header and, for an ack, of its body."""
    out = bytearray(payload)
    if out[TYPE_AT] == ACK:
        body = bytes(out[HEADER:ACK_CRC_AT]) + bytes(4) + bytes(out[ACK_CRC_AT + 4:])
        struct.pack_into("<I", out, ACK_CRC_AT, crc32c(body))
    struct.pack_into("<I", out, CRC_AT, crc32c(bytes(out[:CRC_AT])))
    return bytes(out)


def patched(payload, at, value):
    """Returns `payload` with the 8 bytes at `at` set to `value`, and correct checksums."""
    out = bytearray(payload)
    struct.pack_into("<Q", out, at, value)
    return sealed(out)


def mutations(rng, datagram, stranger):
    """Yields (name, bytes) of every kind of datagram that must have no effect. `stranger`: 16
    bytes, a foreign volume."""
    data = datagram.payload
    flipped = bytearray(data)
    for _ in range(rng.randint(1, 4)):
        flipped[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    foreign = bytearray(data)
    foreign[VOLUME_AT:VOLUME_AT + 16] = stranger
    epoch, session = struct.unpack_from("<QQ", data, EPOCH_AT)
    yield "corrupt", bytes(flipped) if bytes(flipped) != data else b""
    yield "truncated", data[:rng.randrange(len(data))]
    yield "grown", data + bytes(rng.randrange(1, 40))
    yield "noise", rng.randbytes(rng.randrange(0, 1400))
    yield "replayed", data
    yield "foreign volume", sealed(foreign)
    yield "older epoch", patched(data, EPOCH_AT, epoch - 1)
    yield "newer epoch", patched(data, EPOCH_AT, epoch + 1)
    yield "foreign session", patched(data, SESSION_AT, session ^ 0x1234)
    if datagram.type() == ACK:
        yield "ack of what was never sent", far_ahead(data)


def far_ahead(ack):
    """Returns an ack of records that were never sent."""
    return patched(ack, ACK_CONTIGUOUS_AT, 1 << 40)


def of_another_incarnation(ack):
    incarnation, = struct.unpack_from("<Q", ack, ACK_INCARNATION_AT)
    return patched(ack, ACK_INCARNATION_AT, incarnation ^ 1)


def sealed_mutations(rng, datagram):
    """Yields (name, bytes) of every kind of datagram that a sealed session must refuse, made from a
    real one."""
    data = datagram.payload
    counter, = struct.unpack_from("<Q", data, COUNTER_AT)

    def changed(*places):
        out = bytearray(data)
        for form, at, value in places:
            struct.pack_into(form, out, at, value)
        return bytes(out)

    def flipped(first, last):
        out = bytearray(data)
        out[rng.randrange(first, last)] ^= 1 << rng.randrange(8)
        return bytes(out)
    yield "replayed", data
    yield "flipped prefix", flipped(0, PREFIX)
    yield "flipped frame", flipped(PREFIX, len(data) - TAG)
    yield "flipped tag", flipped(len(data) - TAG, len(data))
    yield "truncated", data[:rng.randrange(len(data))]
    yield "grown", data + bytes(rng.randrange(1, 40))
    yield "later counter", changed(("<Q", COUNTER_AT, counter + rng.randrange(1, 1 << 20)))
    yield "another sender", changed(("<I", SENDER_AT, rng.randrange(1, 1 << 32)))
    yield "another key", changed(("<I", KEY_ID_AT, rng.randrange(1, 1 << 32)))
    yield "sealed with a wrong key", changed(("<Q", COUNTER_AT, counter + 1))[:PREFIX] + rng.randbytes(len(data) - PREFIX)
    yield "noise", rng.randbytes(rng.randrange(0, 1400))
    # A plain frame with right checksums: the records or the acknowledgement of a forger.
    plain = bytearray(HEADER)
    plain[:6] = b"SLF1\x01" + bytes([PROBE])
    plain[VOLUME_AT:] = rng.randbytes(HEADER - VOLUME_AT)
    plain[CRC_AT - 4:CRC_AT] = bytes(4)
    yield "plain", sealed(plain)
