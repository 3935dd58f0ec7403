"""Copies Ethernet frames between two interfaces, late, out of order and some of them twice.

usage: relay_process.py INTERFACE INTERFACE DELAY_MS JITTER_MS DUPLICATE SEED
Each frame waits DELAY_MS plus an exponential time of mean JITTER_MS; with probability DUPLICATE a second copy
follows after another such wait. Runs until killed. Prints "ready". Stand-alone: it is run inside a namespace.

Frames are read and written with the kernel's virtio header, because a veth's frames have neither their
checksum nor, for TCP, their segmentation done: the header carries what is still to be done to the other side.
"""
import heapq
import itertools
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


def interface(name):
    s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(_ETH_P_ALL))
    s.setsockopt(_SOL_PACKET, _PACKET_VNET_HDR, 1)
    s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8 << 20)
    s.bind((name, _ETH_P_ALL))
    s.setblocking(False)
    return s


def main():
    ends = [interface(name) for name in sys.argv[1:3]]
    delay, jitter = float(sys.argv[3]) / 1e3, float(sys.argv[4]) / 1e3
    duplicate, rng = float(sys.argv[5]), random.Random(int(sys.argv[6]))
    waiting, order = [], itertools.count()

    def wait():
        return time.monotonic() + delay + (rng.expovariate(1 / jitter) if jitter else 0)

    os.write(1, b"ready\n")
    while True:
        rest = max(0, waiting[0][0] - time.monotonic()) if waiting else None
        for end in select.select(ends, [], [], rest)[0]:
            while True:
                try:
                    frame, address = end.recvfrom(70000)
                except OSError:  # nothing more, or the interface is down for now
                    break
                if address[2] == _OUTGOING or len(waiting) > _MOST_WAITING:
                    continue
                other = ends[1 - ends.index(end)]
                for _ in range(2 if rng.random() < duplicate else 1):
                    heapq.heappush(waiting, (wait(), next(order), other, frame))
        while waiting and waiting[0][0] <= time.monotonic():
            _, _, end, frame = heapq.heappop(waiting)
            try:
                end.send(frame)
            except OSError:
                pass  # lost, which a network may do


if __name__ == "__main__":
    main()
