"""NATS with JetStream: a cluster of servers and a replicated stream in memory."""
import json
import socket

from bench.servers import Server, free_name, program
from harness.run import HarnessError, wait_until

FIRST_PORT, FIRST_ROUTE = 4300, 6300
READY_S = 120


class NatsServer(Server):
    def __init__(self, i, count, store, wrapper=()):
        self.port = FIRST_PORT + i
        config = free_name("nats") + ".conf"
        with open(config, "w") as f:
            json.dump({"server_name": "n%d" % i, "listen": "127.0.0.1:%d" % self.port,
                       "jetstream": {"store_dir": store, "max_memory_store": 1 << 30, "max_file_store": 1 << 30},
                       "cluster": {"name": "bench", "listen": "127.0.0.1:%d" % (FIRST_ROUTE + i),
                                   "routes": ["nats://127.0.0.1:%d" % (FIRST_ROUTE + k) for k in range(count)]}}, f)
        self.launch([*wrapper, program("nats-server"), "-c", config], free_name("nats") + ".log", self._listens)

    def _listens(self):
        try:
            socket.create_connection(("127.0.0.1", self.port), 0.5).close()
            return True
        except OSError:
            return False


def ask(port, subject, request):
    """Returns the answer to one request, as JSON; None when there is none within two seconds."""
    with socket.create_connection(("127.0.0.1", port), 2) as s:
        lines = s.makefile("rb")
        lines.readline()  # INFO
        body = json.dumps(request).encode()
        s.sendall(b'CONNECT {"verbose":false}\r\nSUB _INBOX.bench 1\r\nPUB %s _INBOX.bench %d\r\n%s\r\n' % (
            subject.encode(), len(body), body))
        try:
            while True:
                line = lines.readline()
                if line.startswith(b"MSG "):
                    return json.loads(lines.readline())
                if line.startswith(b"PING"):
                    s.sendall(b"PONG\r\n")
                elif not line or line.startswith(b"-ERR"):
                    raise HarnessError("NATS: %r" % line)
        except socket.timeout:
            return None


class JetStream:
    """A server for each of `stores` and a stream with as many copies; `address` is that of the
    stream's leader."""

    def __init__(self, stores, wrapper=()):
        self.servers = []
        try:
            for i, store in enumerate(stores):
                self.servers.append(NatsServer(i, len(stores), store, wrapper))
            self.address = "127.0.0.1:%d" % self._make_stream(len(stores))
        except BaseException:
            self.close()
            raise

    def _make_stream(self, count):
        answers = []

        def made():
            # Until the servers have elected a leader they refuse or do not answer.
            answers.append(ask(FIRST_PORT, "$JS.API.STREAM.CREATE.bench", {
                "name": "bench", "subjects": ["bench"], "storage": "memory", "num_replicas": count,
                "retention": "limits", "discard": "old", "max_bytes": 256 << 20}))
            return answers[-1] and "config" in answers[-1]
        wait_until(made, READY_S, lambda: "the stream cannot be made: %s" % answers[-1], 0.5)

        def leader():
            cluster = (ask(FIRST_PORT, "$JS.API.STREAM.INFO.bench", {}) or {}).get("cluster", {})
            current = [r for r in cluster.get("replicas", []) if r.get("current")]
            return cluster.get("leader") if len(current) == count - 1 else None
        name = wait_until(leader, READY_S, "the stream's copies are not all current", 0.2)
        return FIRST_PORT + int(name[1:])

    def close(self):
        for server in self.servers:
            server.close()
