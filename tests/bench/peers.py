"""Measures other systems that keep copies in the memory of other machines.

They take turns with Salius, the FUSE floor and the local disk: the same data, the same driver,
everything on this host's loopback.

usage: python3 -m bench.peers [--smoke] [--seconds S] [--rounds N] [--writers N] [--size BYTES]
                              [--cpu N] [--placement packed|free] [--json FILE] [--no-wait]
                              [NAME...]

Run with tests/ as working directory, as root, after `bazel build -c opt //...`. The names are those
of PEERS. A peer whose program is missing is named with its package; PACKAGES lists them all,
nothing is installed. Exit status: 0, or 1 when a peer could not be set up or measured (the others
still are), 3 when the machine is not quiet. The meaning of an acknowledged operation differs;
`copies` gives it for each. Salius here: two replicas, acks=2.
"""
import argparse
import contextlib
import http.client
import os
import shutil
import sys

from bench import command, figures, rounds
from bench.driver import Driver
from bench.gluster import Gluster
from bench.nats import JetStream
from bench.quiet import NotQuiet
from bench.scenario import Ground, Scenario
from bench.servers import Postgres, Redis, Server, free_name, program
from bench.setup import pinned
from harness.run import HarnessError, current, wait_until

# Debian's packages of the peers, to be installed by hand; their services need not run.
PACKAGES = ("redis-server", "etcd-server", "glusterfs-server", "glusterfs-client", "nats-server", "postgresql")
OWN = ("salius", "mount floor", "local disk")  # of bench.scenario
READY_S = 120


class Peer:
    """A system with three copies on this host, ready after construction. `cpu`: all of it on that
    one."""

    name = copies = package = ""
    programs = ()

    def __init__(self, cpu=None):
        self.wrapper = pinned(cpu)
        self._cpu = cpu
        self._stack = contextlib.ExitStack()
        try:
            self._set_up()
        except BaseException:
            self.close()
            raise

    @classmethod
    def missing(cls):
        """Returns why it cannot be measured here, in words; None when it can."""
        absent = [p for p in cls.programs if program(p) is None]
        if not absent:
            return None
        return "skipped: %s is not installed: no %s (apt-get install %s)" % (cls.name, ", ".join(absent), cls.package)

    def driver_args(self, size, writers):
        return [*self._target(), "--size", str(size), "--writers", str(writers)]

    def _own(self, thing):
        return self._stack.enter_context(contextlib.closing(thing))

    def _memory(self):
        """Makes a directory on tmpfs, which is removed at the end."""
        path = os.path.join("/dev/shm", os.path.basename(free_name("%s-%s" % (current().id, self.name))))
        os.mkdir(path)
        self._stack.callback(shutil.rmtree, path, ignore_errors=True)
        return path

    def close(self):
        self._stack.close()


class RedisPeer(Peer):
    name, package, programs = "redis", "redis-server", ("redis-server", "redis-cli")
    copies = "a primary and 2 replicas in memory, WAIT 2; no disk"
    ACKS = 2

    def _set_up(self):
        self.primary = self._own(Redis(6400, self._memory(), (
            "--save", "", "--appendonly", "no", "--repl-diskless-sync-delay", "0"), self.wrapper))
        for i in range(self.ACKS):
            self._own(Redis(6401 + i, self._memory(), (
                "--save", "", "--appendonly", "no", "--replicaof", "127.0.0.1", "6400"), self.wrapper))
        wait_until(lambda: self.primary.ask("info", "replication").count("state=online") == self.ACKS, READY_S,
                   lambda: "not every replica is online:\n" + self.primary.ask("info", "replication"), 0.05)

    def _target(self):
        return ["redis", self.primary.address, "--acks", str(self.ACKS)]


class EtcdPeer(Peer):
    name, package, programs = "etcd", "etcd-server", ("etcd",)
    copies = "2 of 3 members, on tmpfs (fsync is free there)"
    COUNT, FIRST_PORT, FIRST_PEER_PORT = 3, 2400, 2450

    class Member(Server):
        def __init__(self, i, data, peers, wrapper):
            self.port = EtcdPeer.FIRST_PORT + i
            client, peer = "http://127.0.0.1:%d" % self.port, peers[i]
            # A heartbeat that a busy machine keeps; it is no part of a Put.
            self.launch([*wrapper, program("etcd"), "--name", "e%d" % i, "--data-dir", data,
                         "--listen-client-urls", client, "--advertise-client-urls", client,
                         "--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer,
                         "--initial-cluster", ",".join("e%d=%s" % p for p in enumerate(peers)),
                         "--initial-cluster-state", "new", "--heartbeat-interval", "500", "--election-timeout", "5000",
                         # Its data in memory and on tmpfs stays bounded.
                         "--snapshot-count", "10000", "--quota-backend-bytes", str(8 << 30)],
                        free_name("etcd") + ".log", lambda: True)

        def says(self, line):
            """Returns whether its metrics have that line."""
            try:
                connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=2)
                with contextlib.closing(connection):
                    connection.request("GET", "/metrics")
                    return line in connection.getresponse().read().decode().splitlines()
            except (OSError, http.client.HTTPException):
                return False

    def _set_up(self):
        peers = ["http://127.0.0.1:%d" % (self.FIRST_PEER_PORT + i) for i in range(self.COUNT)]
        members = [self._own(self.Member(i, self._memory(), peers, self.wrapper)) for i in range(self.COUNT)]

        def leader():
            if all(m.says("etcd_server_has_leader 1") for m in members):
                return next((m for m in members if m.says("etcd_server_is_leader 1")), None)
            return None
        # A follower would forward the request: one more hop.
        self.leader = wait_until(leader, READY_S, lambda: "etcd has no leader:\n" + members[0].proc.tail(), 0.2)

    def _target(self):
        return ["etcd", "127.0.0.1:%d" % self.leader.port]


class NatsPeer(Peer):
    name, package, programs = "nats", "nats-server", ("nats-server",)
    copies = "2 of 3 servers, a JetStream stream in memory"

    def _set_up(self):
        self.stream = self._own(JetStream([self._memory() for _ in range(3)], self.wrapper))

    def _target(self):
        return ["nats", self.stream.address, "--subject", "bench"]


class GlusterPeer(Peer):
    name, package, programs = "glusterfs", "glusterfs-server glusterfs-client", ("glusterd", "gluster", "glusterfs")
    copies = "replica 3 on tmpfs bricks, written by O_SYNC through its FUSE mount"

    def _set_up(self):
        self.volume = self._own(Gluster([self._memory() for _ in range(3)], self._cpu))

    def _target(self):
        return ["files", self.volume.path]


class PostgresPeer(Peer):
    """PostgreSQL with two standbys on tmpfs, so that one disk does not have to serve three
    machines."""
    name, package, programs = "postgres", "postgresql", ("postgres", "initdb", "pg_basebackup", "psql")
    copies = "the primary's local disk (fsync) and 2 standbys' memory: remote_write, FIRST 2"
    FIRST_PORT = 5500
    SETTINGS = {"max_wal_size": "1GB"}  # of each copy; some are on tmpfs

    def _primary_data(self):
        return free_name("postgres-primary")

    def _set_up(self):
        standbys = [("s%d" % i, self.FIRST_PORT + 1 + i) for i in range(2)]
        self.primary = self._own(Postgres(self._primary_data(), self.FIRST_PORT, wrapper=self.wrapper, settings={
            **self.SETTINGS, "synchronous_commit": "remote_write"})).make().start()
        for name, port in standbys:
            self._own(Postgres(os.path.join(self._memory(), "data"), port, self.SETTINGS, self.wrapper)).copy(
                self.primary, name).start()
        self.primary.query("ALTER SYSTEM SET synchronous_standby_names = 'FIRST 2 (s0, s1)'")
        self.primary.query("SELECT pg_reload_conf()")
        wait_until(lambda: self._synchronous() == "2", READY_S,
                   lambda: "%s synchronous standbys:\n%s" % (self._synchronous(), self.primary.proc.tail()), 0.1)

    def _synchronous(self):
        return self.primary.query("SELECT count(*) FROM pg_stat_replication WHERE state = 'streaming' AND "
                                  "sync_state = 'sync'")

    def _target(self):
        return ["postgres", self.primary.conninfo]


class PostgresMemoryPeer(PostgresPeer):
    name = "postgres-tmpfs"
    copies = "3 copies on tmpfs (fsync is free there): remote_write, FIRST 2"
    FIRST_PORT = 5510

    def _primary_data(self):
        return os.path.join(self._memory(), "data")


PEERS = {peer.name: peer for peer in (RedisPeer, EtcdPeer, NatsPeer, GlusterPeer, PostgresPeer, PostgresMemoryPeer)}


def measure(names, args, cpu):
    """Measures Salius, the floors and the named peers in one interleaved run; returns ([Subject],
    {name: problem})."""
    problems = {}
    with contextlib.ExitStack() as stack:
        own = stack.enter_context
        ground = own(contextlib.closing(Ground(Scenario(size=str(args.size), writers=args.writers,
                                                        packed=cpu is not None), cpu)))
        subjects = [s for s in ground.subjects if s.name in OWN]
        for name in names:
            try:
                peer = own(contextlib.closing(PEERS[name](cpu)))
                driver = own(contextlib.closing(Driver(peer.driver_args(args.size, args.writers), cpu=cpu)))
                # A peer that cannot work at all is left out here.
                driver.round(min(args.seconds, 0.2))
                subjects.append(rounds.Subject(name, driver))
            except HarnessError as error:
                problems[name] = "FAILED: %s" % error
        for _ in range(args.rounds):
            for subject in list(subjects):
                try:
                    rounds.measure([subject], 1, args.seconds, wait=not args.no_wait, count_calls=False)
                except HarnessError as error:
                    if subject.name not in names or isinstance(error, NotQuiet):
                        raise
                    problems[subject.name] = "FAILED: %s" % error
                    subjects.remove(subject)
        ground.check()
    return subjects, problems


def run(args):
    wanted = args.names or list(PEERS)
    absent = {name: PEERS[name].missing() for name in wanted if PEERS[name].missing()}
    placements = [p for p in ("packed", "free") if args.placement in (None, p)]
    results, failed = [], False
    file = figures.File(args.json, "peers")
    for placement in placements:
        print("\n== peers: %d bytes, %d writers, %s" % (
            args.size, args.writers, "free" if placement == "free" else "packed on CPU %d" % args.cpu), flush=True)
        subjects, problems = measure([n for n in wanted if n not in absent], args,
                                     args.cpu if placement == "packed" else None)
        print("\n".join(rounds.table(subjects, "salius")))
        for name in wanted:
            print("%-15s %s" % (name, absent.get(name) or problems.get(name) or PEERS[name].copies), flush=True)
        failed = failed or bool(problems)
        results.append({"placement": placement, "size": args.size, "writers": args.writers,
                        "skipped": absent, "failed": problems,
                        "subjects": {s.name: {"median": s.median(), "rounds": s.rounds} for s in subjects}})
        file.save(results, complete=placement == placements[-1])
    return 1 if failed else 0


def parse():
    parser = argparse.ArgumentParser(prog="bench.peers", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--writers", type=int, default=1)
    parser.add_argument("--size", type=int, default=4096, help="bytes of an operation")
    parser.add_argument("--placement", choices=["packed", "free"], help="only this one")
    return command.parse(parser, PEERS, "NAME", seconds=1.0, rounds=5, smoke_seconds=1)


if __name__ == "__main__":
    sys.exit(command.main("bench.peers", parse(), run))
