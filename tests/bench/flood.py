"""Measures what a flood of garbage costs a volume with sealed datagrams: rounds of 4 KiB writes without
and with the flood, in turn.

usage: python3 -m bench.flood [--rounds N] [--seconds S] [--size BYTES] [--json FILE]

The flood goes to every replica and to the primary, as fast as one process on another CPU sends: noise,
plain frames, real datagrams replayed, and sealed ones with another tag. It prints the table of medians,
how many datagrams a second were sent, and the rate of writes as a multiple of that without the flood.
Fails if the volume left its mode or lost a member, or if no datagram was refused. Run with tests/ as
working directory, as root.
"""
import argparse
import contextlib
import dataclasses
import json
import os
import random
import socket
import subprocess
import sys

from bench import command, figures, rounds
from bench.rounds import Subject
from bench.scenario import Ground, Scenario
from harness import frames
from harness.net import inside
from harness.run import HarnessError

WITHOUT, WITH = "no flood", "flood of garbage"
BAR = 0.7
KINDS = 4

# Sends in turn to each (address, datagram) of its input until it gets SIGTERM, then prints how many it
# sent. Datagrams of one size leave with one system call (UDP_SEGMENT).
_SENDER = """
import json, signal, socket, sys
targets = [(tuple(address), bytes.fromhex(data)) for address, data in json.load(sys.stdin)]
sent, ended = 0, False
def end(*_):
    global ended
    ended = True
signal.signal(signal.SIGTERM, end)
ends = []
for address, data in targets:
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    s.setsockopt(socket.SOL_UDP, 103, len(data))
    s.connect(address)
    times = min(64, 60000 // len(data))
    ends.append((s, data * times, times))
print("sends", flush=True)
while not ended:
    for s, data, times in ends:
        try:
            s.send(data)
            sent += times
        except OSError:  # a full buffer, or an earlier datagram found no port
            pass
print(sent, flush=True)
"""


class Flooded:
    """A driver whose rounds are flooded. `sent`: datagrams a second of each round."""

    def __init__(self, driver, cpu, netns, targets):
        self._driver, self._cpu, self._netns, self._targets = driver, cpu, netns, targets
        self.sent = []

    @property
    def pid(self):
        return self._driver.pid

    def round(self, seconds):
        with contextlib.ExitStack() as stack:
            if self._netns:
                stack.enter_context(inside(self._netns))
            sender = stack.enter_context(subprocess.Popen(
                ["taskset", "-c", str(self._cpu), sys.executable, "-c", _SENDER], stdin=subprocess.PIPE,
                stdout=subprocess.PIPE, text=True))
            stack.callback(sender.kill)
            sender.stdin.write(json.dumps(self._targets))
            sender.stdin.close()
            if sender.stdout.readline() != "sends\n":
                raise HarnessError("the sender of the flood ended")
            figures_of_round = self._driver.round(seconds)
            sender.terminate()
            self.sent.append(int(sender.stdout.readline()) / seconds)
        return figures_of_round


def _captured(driver, port):
    """Returns a sealed datagram to a replica's port, and one back, with their addresses."""
    found = {}
    with socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(3)) as sniffer:
        sniffer.bind(("lo", 3))
        sniffer.settimeout(5)
        driver.round(0.3)
        while len(found) < 2:
            try:
                datagram = frames.parse(sniffer.recv(65536))
            except TimeoutError:
                raise HarnessError("no sealed datagrams seen") from None
            if datagram and datagram.payload[:5] == frames.SEALED and port in (datagram.source[1], datagram.target[1]):
                found[datagram.target[1] == port] = datagram
    return found[True], found[False]


def _garbage(rng, datagram):
    """Returns KINDS datagrams that a receiver of `datagram` must refuse."""
    data = datagram.payload[:frames.MAX_PAYLOAD]
    plain = bytearray(frames.HEADER)
    plain[:6] = b"SLF1\x01" + bytes([frames.PROBE])
    wrong = bytearray(data)
    # A counter that was not seen, so that the tag is computed.
    wrong[frames.COUNTER_AT + 3] ^= 1
    wrong[-1] ^= 1
    return [rng.randbytes(len(data)), frames.sealed(plain), data, bytes(wrong)]


def parse():
    parser = argparse.ArgumentParser(prog="bench.flood", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=2.0, help="of a round")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--size", default="4KiB")
    command.add_options(parser)
    args = parser.parse_args()
    if args.smoke:
        args.seconds, args.rounds, args.no_wait = 0.5, 1, True
    return args


def run(args):
    rng = random.Random(1)
    # On a busy machine a wait for the CPU must not pass for a partition: `busy` makes delta 10 s.
    scenario = Scenario(size=args.size, m=3, acks=2, busy=True)
    print("== %s, sealed, flooded" % scenario.label(), flush=True)
    with contextlib.closing(Ground(scenario, args.cpu, "sealed", floors=False)) as ground:
        ground.mount.wait_whole(60)
        without = ground.subjects[0]
        without.name = WITHOUT
        targets = []
        for address in ground.replicas.addresses:
            host, _, port = address.rpartition(":")
            there, back = _captured(without.driver, int(port))
            targets += [((host, int(port)), data.hex()) for data in _garbage(rng, there)]
            targets += [(back.target, data.hex()) for data in _garbage(rng, back)]
        flooded = Flooded(without.driver, (args.cpu + 1) % (os.cpu_count() or 1), ground.network.primary, targets)
        subjects = [without, Subject(WITH, flooded, without.groups)]
        before = ground.mount.status()
        rounds.measure(subjects, args.rounds, args.seconds, wait=not args.no_wait, count_calls=False)
        status = ground.mount.status()
    if status["mode_since_unix_ms"] != before["mode_since_unix_ms"] or not all(r["member"] for r in status["replicas"]):
        raise HarnessError("the volume left its mode or lost a member: %s" % status)
    refused = {name: count - before["sealing"]["refused"][name] for name, count in status["sealing"]["refused"].items()}
    if not sum(refused.values()):
        raise HarnessError("the flood did not arrive")
    print("\n".join(rounds.table(subjects, WITHOUT)))
    rates = [subject.median()["ops_per_second"] for subject in subjects]
    sent = sorted(flooded.sent)[len(flooded.sent) // 2]
    print("flood: %.0f datagrams a second sent; refused at the primary: %s" % (sent, refused))
    print("rate of writes with the flood: %.2f of that without, at least %s wanted" % (rates[1] / rates[0], BAR))
    figures.File(args.json, "flood").save(
        [{**dataclasses.asdict(scenario), "sent_per_second": flooded.sent, "refused": refused,
          "subjects": {s.name: {"median": s.median(), "rounds": s.rounds} for s in subjects}}], complete=True)
    return 0


if __name__ == "__main__":
    sys.exit(command.main("bench.flood", parse(), run))
