"""The control call of a primary of a version before keys, as bytes: gRPC on a connection without TLS,
with the fields of OpenSessionRequest (proto/control.proto) that such a version knows."""
import socket
import struct

_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_DATA, _HEADERS, _SETTINGS = 0, 1, 4
_END_STREAM, _END_HEADERS = 1, 4
_WAIT_S = 60


def _frame(kind, flags, stream, payload=b""):
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload


def _headers(pairs):
    """Encodes headers as literals that no table keeps (RFC 7541, section 6.2.2)."""
    return b"".join(b"\0" + bytes([len(name)]) + name + bytes([len(value)]) + value for name, value in pairs)


def _varint(number):
    out = b""
    while number >= 128:
        out, number = out + bytes([number % 128 + 128]), number // 128
    return out + bytes([number])


def _request(volume, epoch, session, base, acks, delta_us, tau_ms, k, memory_bytes):
    """Returns an OpenSessionRequest with the fields 1 to 9."""
    numbers = (epoch, session, base, acks, delta_us, tau_ms, k, memory_bytes)
    fields = b"".join(bytes([(i + 2) << 3]) + _varint(number) for i, number in enumerate(numbers))
    return bytes([1 << 3 | 2, len(volume)]) + volume + fields


def open_session(host, port, volume):
    """Calls OpenSession as that version did. Returns all bytes that the server sent before it ended the
    stream or the connection."""
    message = _request(volume, 1, 77, 1, 1, 1_000_000, 30_000, 4, 1 << 20)
    call = _headers(((b":method", b"POST"), (b":scheme", b"http"), (b":path", b"/salius.control.Replica/OpenSession"),
                     (b":authority", b"replica"), (b"content-type", b"application/grpc"), (b"te", b"trailers")))
    answer = b""
    with socket.create_connection((host, port), timeout=_WAIT_S) as connection:
        connection.sendall(_PREFACE + _frame(_SETTINGS, 0, 0) + _frame(_HEADERS, _END_HEADERS, 1, call) +
                           _frame(_DATA, _END_STREAM, 1, b"\0" + struct.pack(">I", len(message)) + message))
        while not _ended(answer):
            some = connection.recv(65536)
            if not some:
                break
            answer += some
    return answer


def _ended(answer):
    """Whether the bytes contain a whole frame that ends stream 1."""
    at = 0
    while at + 9 <= len(answer):
        length = int.from_bytes(answer[at:at + 3], "big")
        kind, flags, stream = answer[at + 3], answer[at + 4], int.from_bytes(answer[at + 5:at + 9], "big")
        at += 9 + length
        if kind in (_DATA, _HEADERS) and flags & _END_STREAM and stream == 1:
            return at <= len(answer)
    return False
