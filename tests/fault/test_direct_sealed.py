"""Direct volumes with keys: the processes of the command seal and open datagrams. So replicas may be on
other hosts without --insecure."""
import json
import os
import sys

from fault.test_replicas import report_of
from harness import frames
from harness.direct import DirectCase
from harness.run import wait_until

# For each line of its input makes that many writes of a text, and prints their numbers when the last
# one has returned.
SECRETS = """
import os, sys
fd = os.open(sys.argv[1], os.O_CREAT | os.O_RDWR | os.O_SYNC, 0o600)
n = 0
for line in sys.stdin:
    for _ in range(int(line)):
        n += 1
        os.pwrite(fd, (b"a text that must not show on the wire " * 20) + b"%20d" % n, 0)
    print(n, flush=True)
"""
NEEDLE = b"must not show on"


class SealedDirect(DirectCase):
    KEYS = True
    DELTA = "2s"  # a pause of a busy machine is no partition

    def status_json(self):
        return json.loads(self.rig_.volume.run("salius", "status", self.directory, "--json").stdout)

    def begin(self, name, options=()):
        return self.start(sys.executable, "-c", SECRETS, self.path(name), options=options, pipe_in=True)

    def more(self, proc, count):
        """Has the program make `count` writes; returns the number of the last one, which was
        acknowledged."""
        proc.popen.stdin.write("%d\n" % count)
        proc.popen.stdin.flush()
        return int(proc.popen.stdout.readline())

    def at_work(self, options=()):
        """Returns a program that writes, in mode replicated with both replicas members, and the wire
        to replica 0."""
        self.assertNotIn("--insecure", self.words("true"))
        proc = self.begin("f", options)
        self.more(proc, 1)

        def whole():
            self.more(proc, 1)
            status = self.status_json()
            return status["mode"] == "replicated" and all(r["member"] for r in status["replicas"])
        wait_until(whole, 60, lambda: str(self.status_json()))
        self.more(proc, 50)
        return proc, self.own(frames.Wire(self.rig_.net, 0))

    def unchanged(self, since):
        status = self.status_json()
        self.assertEqual((status["mode"], status["mode_since_unix_ms"]), ("replicated", since), status)
        self.assertTrue(all(r["member"] for r in status["replicas"]), status)

    def recovered(self, proc):
        """Cuts the power with one replica lost. The last acknowledged write must be there."""
        last = self.more(proc, 50)
        self.cut(proc, lose_replica=True)
        with open(self.path("f"), "rb") as f:
            self.assertEqual(int(f.read()[-20:]), last)

    def refused_at_primary(self):
        return self.status_json()["sealing"]["refused"]

    def refused_at_replica(self, index=0):
        name = "salius_replica_refused_datagrams_total{reason="
        metrics = self.rig_.replicas[index].metrics()
        return {key[len(name) + 1:-2]: value for key, value in metrics.items() if key.startswith(name)}

    def test_no_data_is_readable_on_the_wire_and_nothing_is_plain(self):
        proc, wire = self.at_work()
        replica = (self.rig_.net.ip(0), frames.REPLICA_PORT)
        for _ in range(40):
            datagram = wire.capture_any(replica, 1)[0]
            self.assertEqual(datagram.payload[:5], frames.SEALED)
            self.assertNotIn(NEEDLE, datagram.payload)
            self.more(proc, 1)
        self.recovered(proc)

    def bombard(self, kind, refused):
        """Sends every mutation of real datagrams of `kind` while the program writes. Each is refused
        where it arrives."""
        proc, wire = self.at_work()
        since = self.status_json()["mode_since_unix_ms"]
        sent = {}
        for _ in range(self.count(15, 100)):
            datagram = wire.capture_sealed(kind, 1)[0]
            for what, data in frames.sealed_mutations(self.rng, datagram):
                wire.send(datagram.source, datagram.target, data)
                sent[what] = sent.get(what, 0) + 1
            self.more(proc, 1)
        least = sum(sent.values()) - sent["truncated"] - sent["noise"]

        def all_refused():
            self.more(proc, 1)  # the program receives
            return sum(refused().values()) >= least
        wait_until(all_refused, 60, lambda: "%s sent, %s refused" % (sent, refused()))
        for reason in ("replayed", "wrong_tag", "no_key", "unsealed", "malformed"):
            self.assertGreater(refused()[reason], 0, reason)
        self.unchanged(since)
        self.report("sent %s, refused %s", sent, refused())
        self.recovered(proc)

    def test_hostile_acknowledgements_are_refused_by_the_processes(self):
        self.bombard(frames.ACK, self.refused_at_primary)

    def test_hostile_and_plain_records_are_refused_at_a_replica(self):
        self.bombard(frames.RECORDS, self.refused_at_replica)

    def test_restarted_replica_gets_its_key_again_and_stays_a_member(self):
        proc, _ = self.at_work()
        since = self.status_json()["mode_since_unix_ms"]
        replica = self.rig_.replicas[0]
        incarnation = report_of(self.status_json(), replica)["incarnation"]
        replica.restart()

        def caught_up():
            self.more(proc, 1)
            report = report_of(self.status_json(), replica)
            return report["connected"] and report["lag_records"] < 10
        wait_until(caught_up, 60, lambda: str(self.status_json()))
        self.assertEqual(report_of(self.status_json(), replica)["incarnation"], incarnation)
        self.assertGreater(self.refused_at_replica()["no_key"], 0)
        self.unchanged(since)
        self.recovered(proc)

    def test_key_changes_every_second_under_load(self):
        proc, _ = self.at_work(options=("--key-rotation=1",))
        since = self.status_json()["mode_since_unix_ms"]
        changes = self.count(4, 30)

        def changed():
            self.more(proc, 5)
            return self.status_json()["sealing"]["key_changes"] >= changes
        wait_until(changed, 60 + 10 * changes, lambda: str(self.status_json()))
        self.unchanged(since)
        self.recovered(proc)

    def test_processes_of_several_commands_share_counters_and_replay_windows(self):
        proc, _ = self.at_work()
        others = [self.begin("g%d" % i) for i in range(3)]
        for _ in range(30):
            for one in (proc, *others):
                self.more(one, 3)
        refused = self.refused_at_replica()
        self.assertEqual((refused["replayed"], refused["wrong_tag"]), (0, 0), refused)
        for one in others:
            os.kill(one.pid, 9)
        self.more(proc, 50)
        self.assertEqual(self.status_json()["mode"], "replicated")
