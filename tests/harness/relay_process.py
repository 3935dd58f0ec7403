"""Copies Ethernet frames between two interfaces, late, out of order and some of them twice.

usage: relay_process.py INTERFACE INTERFACE DELAY_MS JITTER_MS DUPLICATE SEED

Each frame waits DELAY_MS plus an exponential time of mean JITTER_MS. With probability DUPLICATE
there are two copies, each with a wait of its own. The program prints "ready" and runs until its
standard input ends. Then it prints what it did to datagrams, as JSON. Stand-alone: it runs inside a
namespace.

Frames are read and written with the kernel's virtio header. A veth's frames have neither their
checksum nor, for TCP, their segmentation done; the header tells the other side what remains to do.
"""
import heapq
import itertools
import json
import os
import random
import select
import socket
import sys
import time

_SOL_PACKET, _PACKET_VNET_HDR = 263, 15
_ETH_P_ALL = 3
_OUTGOING = 4  # the packet type of packets that this host sent: our own frames
_MOST_WAITING = 20000  # a relay that falls behind drops, like any switch
_ETHERNET = 10  # where it begins, after the virtio header
_IPV4, _UDP = b"\x08\x00", 17


def interface(name):
    s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(_ETH_P_ALL))
    s.setsockopt(_SOL_PACKET, _PACKET_VNET_HDR, 1)
    s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8 << 20)
    s.bind((name, _ETH_P_ALL))
    s.setblocking(False)
    return s


def is_datagram(frame):
    return frame[_ETHERNET + 12:_ETHERNET + 14] == _IPV4 and frame[_ETHERNET + 23] == _UDP


class Counts:
    """Counts of the datagrams that were passed on."""

    def __init__(self):
        self.delayed = self.reordered = self.duplicated = 0
        self._last = {}  # by outgoing end: the latest arrival among the datagrams passed on

    def passed(self, end, number, copy):
        """Counts one datagram. `number` is its position of arrival; `copy`: it is the second
        copy."""
        self.duplicated += copy
        self.delayed += not copy
        self.reordered += number < self._last.get(end, -1)
        self._last[end] = max(number, self._last.get(end, -1))

    def text(self):
        return json.dumps({"delayed": self.delayed, "reordered": self.reordered, "duplicated": self.duplicated})


def main():
    ends = [interface(name) for name in sys.argv[1:3]]
    delay, jitter = float(sys.argv[3]) / 1e3, float(sys.argv[4]) / 1e3
    duplicate, rng = float(sys.argv[5]), random.Random(int(sys.argv[6]))
    waiting, order, counts = [], itertools.count(), Counts()

    def wait():
        return time.monotonic() + delay + (rng.expovariate(1 / jitter) if jitter else 0)

    os.write(1, b"ready\n")
    while True:
        rest = max(0, waiting[0][0] - time.monotonic()) if waiting else None
        ready = select.select([0, *ends], [], [], rest)[0]
        if 0 in ready:
            break
        for end in ready:
            while True:
                try:
                    frame, address = end.recvfrom(70000)
                except OSError:  # no more frames, or the interface is down for now
                    break
                if address[2] == _OUTGOING or len(waiting) > _MOST_WAITING:
                    continue
                other = ends[1 - ends.index(end)]
                number, copies = next(order), 2 if rng.random() < duplicate else 1
                for copy, due in enumerate(sorted(wait() for _ in range(copies))):
                    heapq.heappush(waiting, (due, number, copy, other, frame))
        while waiting and waiting[0][0] <= time.monotonic():
            _, number, copy, end, frame = heapq.heappop(waiting)
            try:
                end.send(frame)
            except OSError:
                continue  # lost, as on any network
            if is_datagram(frame):
                counts.passed(end, number, copy)
    os.write(1, (counts.text() + "\n").encode())


if __name__ == "__main__":
    main()
