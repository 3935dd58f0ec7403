"""Copies Ethernet frames between two interfaces, late, out of order and some of them twice.

usage: relay_process.py INTERFACE INTERFACE DELAY_MS JITTER_MS DUPLICATE SEED
Each frame waits DELAY_MS plus an exponential time of mean JITTER_MS; with probability DUPLICATE there are two copies,
each with such a wait of its own. Prints "ready", runs until its standard input ends, and prints what it has done to
datagrams, as JSON. Stand-alone: it is run inside a namespace.

Frames are read and written with the kernel's virtio header, because a veth's frames have neither their
checksum nor, for TCP, their segmentation done: the header carries what is still to be done to the other side.
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
_OUTGOING = 4  # the packet type of what this host sent itself: our own frames
_MOST_WAITING = 20000  # a relay that falls behind drops, like any switch
_ETHERNET = 10  # where it begins, behind the virtio header
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
    """What was done to the datagrams that were passed on."""

    def __init__(self):
        self.delayed = self.reordered = self.duplicated = 0
        self._last = {}  # by where it goes: the latest that came, of those that have gone on

    def passed(self, end, number, copy):
        """`number` says when it came; `copy`: it is the second one."""
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
                except OSError:  # nothing more, or the interface is down for now
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
                continue  # lost, which a network may do
            if is_datagram(frame):
                counts.passed(end, number, copy)
    os.write(1, (counts.text() + "\n").encode())


if __name__ == "__main__":
    main()
