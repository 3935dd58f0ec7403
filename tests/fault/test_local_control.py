"""Replicas on loopback without keys and without --insecure: control calls come by a unix socket, where
the kernel says which user calls, and no other user of the host reaches them. The keys of the datagrams
go over it, so what another user sends has no effect."""
import contextlib
import json
import os
import pwd
import re
import shutil
import socket
import stat
import struct
import sys

from harness import frames, stranger
from harness.case import Case
from harness.direct_run import DirectRun
from harness.image import Image
from harness.net import Net, inside
from harness.proc import Proc
from harness.replica import read_metrics
from harness.run import HarnessError, binary, current, program_for_users, sh, wait_until
from harness.volume import Mount, Volume, as_user, in_netns

SOCKETS = "/run/salius-replica"
PORT = 7400
METRICS_PORT = 9400
SECRET = b"the content of a file of root"
MARK = 1 << 20  # of a record far behind all records of a test

# Sends both datagrams until an answer comes, and prints all answers.
SENDS = """
import json, socket, sys
job = json.load(sys.stdin)
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
    s.settimeout(1)
    answers = []
    for _ in range(60):
        for payload in job["payloads"]:
            s.sendto(bytes.fromhex(payload), ("127.0.0.1", job["port"]))
        try:
            answers.append(s.recv(65536).hex())
            break
        except TimeoutError:
            pass
    s.setblocking(False)
    try:
        while True:
            answers.append(s.recv(65536).hex())
    except BlockingIOError:
        print(json.dumps(answers))
"""

WRITES_SECRET = """
import os, sys
fd = os.open(sys.argv[1], os.O_CREAT | os.O_WRONLY | os.O_SYNC, 0o600)
os.pwrite(fd, b"%s", 0)
""" % SECRET.decode()

# Answers each datagram at the port, and prints what it received.
ANSWERS = """
import socket, sys
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
    s.bind(("127.0.0.1", int(sys.argv[1])))
    while True:
        payload, source = s.recvfrom(65536)
        print("received", payload.hex(), flush=True)
        s.sendto(bytes.fromhex(sys.argv[2]), source)
"""


class LocalReplica:
    """A replica at 127.0.0.1 and ports from PORT on, in the namespace of the primary."""

    def __init__(self, net, index, *options):
        self.net, self.options = net, options
        self.port = PORT + index
        self.address = "127.0.0.1:%d" % self.port
        self.metrics_address = "127.0.0.1:%d" % (METRICS_PORT + index)
        self.socket = "%s/127.0.0.1-%d.sock" % (SOCKETS, self.port)
        name = "%s-l%d" % (net.prefix, index)
        self.shm = "/dev/shm/" + name
        self.state, self.log = (os.path.join(current().dir, name + end) for end in (".state", ".log"))
        self.proc, self.wrapper = None, []
        self._starts = 0

    def start(self):
        self._starts += 1
        program = program_for_users("salius-replica") if self.wrapper else binary("salius-replica")
        self.proc = Proc([*self.wrapper, program, "--listen", self.address, "--memory", "64MiB", "--shm-dir", self.shm,
                          "--state-dir", self.state, "--metrics", self.metrics_address, *self.options],
                         self.log, netns=self.net.primary)
        wait_until(self.ready, 60, lambda: "the replica is not ready:\n" + self.proc.tail())
        return self

    def ready(self):
        with open(self.log) as f:
            serves = f.read().count(" serves on ") == self._starts
        if not serves and not self.proc.alive():
            raise HarnessError("the replica ended:\n" + self.proc.tail())
        return serves

    def metrics(self):
        with inside(self.net.primary):
            return read_metrics("http://%s/metrics" % self.metrics_address)

    def session(self):
        """Returns the incarnation, and volume, epoch and session of the first volume with a session, as
        its memory has them."""
        with open(os.path.join(self.shm, "arena"), "rb") as f:
            arena = f.read(4096 + 512)
        incarnation, = struct.unpack_from("<Q", arena, 64)
        copies = [arena[at:at + 256] for at in (4096, 4096 + 256)]
        newest = max((copy for copy in copies if copy[:4] == b"SLV1"), key=lambda copy: struct.unpack_from("<Q", copy, 8))
        return (incarnation, newest[16:32], *struct.unpack_from("<QQ", newest, 32))

    def kill(self):
        if self.proc:
            self.proc.kill()

    def close(self):
        self.kill()
        shutil.rmtree(self.shm, ignore_errors=True)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.socket)


class LocalControl(Case):

    def setUp(self):
        super().setUp()
        self.net = self.own(Net(0))
        self.image = self.own(Image("local", "ext4", 512))
        self.backing = os.path.join(self.image.path, "data")
        os.mkdir(self.backing)
        self.volume = Volume(self.backing, self.net.primary)

    def replicas(self, count, *options):
        return [self.own(LocalReplica(self.net, i, *options)).start() for i in range(count)]

    def init(self, replicas, acks=2, *options):
        self.volume.init([replica.address for replica in replicas], acks, "--allow-same-host", "--log-max", "16MiB",
                         "--delta", "500ms", *options)

    def mount(self):
        mount = self.own(Mount(self.volume, insecure=False))
        mount.wait_mode("replicated")
        return mount

    def write_secret(self):
        with open(os.path.join(self.volume.mountpoint, "secret"), "wb") as f:
            f.write(SECRET)
            f.flush()
            os.fsync(f.fileno())

    def connects_by_tcp(self, port):
        with inside(self.net.primary), socket.socket() as s:
            return s.connect_ex(("127.0.0.1", port)) == 0

    def status(self, address, **kwargs):
        return self.volume.run("salius", "status", "--replica", address, **kwargs)

    def test_volume_survives_a_power_cut(self):
        replicas = self.replicas(3)
        self.init(replicas)
        mount = self.mount()
        self.write_secret()
        mount.proc.kill()
        self.image.shutdown()
        mount._detach()
        replicas[2].kill()
        shutil.rmtree(replicas[2].shm)
        self.image.umount()
        self.image.mount()
        done = self.volume.recover()
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        with open(os.path.join(self.backing, "secret"), "rb") as f:
            self.assertEqual(f.read(), SECRET)
        done = self.status(replicas[0].address)
        self.assertEqual(done.returncode, 0, done.stderr)
        # The calls show their user.
        self.assertIn("local/0", done.stdout)
        self.assertIn(self.volume.uuid(), done.stdout)

    def test_restarted_replica_is_found_again(self):
        replicas = self.replicas(2)
        self.init(replicas)
        mount = self.mount()
        replicas[1].kill()
        mount.wait_mode("local")
        self.assertTrue(stat.S_ISSOCK(os.stat(replicas[1].socket).st_mode))  # as the killed process left it
        replicas[1].start()
        mount.wait_whole()
        mount.umount()

    def test_other_user_is_refused(self):
        replicas = self.replicas(2)
        self.init(replicas)
        mount = self.mount()
        self.write_secret()
        salius, run = program_for_users("salius"), program_for_users("salius-run")
        address, uuid = replicas[0].address, self.volume.uuid()
        listed, forget = (salius, "status", "--replica", address), (salius, "forget", uuid, "--replica", address, "--force")
        for words in (listed, forget):
            done = stranger.run(*words, netns=self.net.primary)
            self.assertNotEqual(done.returncode, 0, done.stdout)
            self.assertIn("Permission denied", done.stderr)
            self.assertNotIn(uuid, done.stdout)
        # Every other call needs a connection too.
        self.assertFalse(self.connects_by_tcp(replicas[0].port))
        self.assertEqual(stranger.reached(stranger.files_below(SOCKETS)), [])
        # A volume of the other user gets no memory there.
        folder = os.path.join(self.image.path, "of-a-stranger")
        os.mkdir(folder)
        shutil.chown(folder, "nobody", "nogroup")
        done = stranger.run(salius, "init", "--direct", folder, "--replicas", address, "--acks", "1", netns=self.net.primary)
        self.assertEqual(done.returncode, 0, done.stderr)
        done = stranger.run(run, "--direct", folder, "--", "true", netns=self.net.primary)
        self.assertIn("begins in mode local", done.stderr)
        self.assertIn("Permission denied", done.stderr)
        # The volume is as before, and root may do all of that.
        status = mount.status()
        self.assertEqual(status["mode"], "replicated")
        done = self.status(address)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(re.findall(r"local/(\d+)", done.stdout), ["0"] * done.stdout.count("local/"))
        self.assertIn(uuid, done.stdout)
        mount.umount()
        done = self.volume.run("salius", "forget", uuid, "--replica", address, "--force")
        self.assertEqual(done.returncode, 0, done.stderr)

    def forged(self, kind, volume, epoch, session, trim=0, body=b""):
        """Returns a plain frame with right checksums."""
        frame = bytearray(frames.HEADER) + body
        frame[:6] = b"SLF1\x01" + bytes([kind])
        struct.pack_into("<I", frame, 8, len(body))
        frame[frames.VOLUME_AT:frames.EPOCH_AT] = volume
        struct.pack_into("<QQ", frame, frames.EPOCH_AT, epoch, session)
        for at in (frames.TRIM_AT, frames.DURABLE_AT, frames.ISSUED_AT):
            struct.pack_into("<Q", frame, at, trim)
        return frames.sealed(frame)

    def send_as_stranger(self, replica, *payloads):
        """Sends the datagrams, and one of an unknown session, as another user; returns the answers."""
        unknown = self.forged(frames.PROBE, bytes(range(16)), 1, 2)
        job = json.dumps({"port": replica.port, "payloads": [payload.hex() for payload in (*payloads, unknown)]})
        done = sh(*in_netns(self.net.primary), *stranger.AS_STRANGER, sys.executable, "-c", SENDS, input=job)
        return [bytes.fromhex(answer) for answer in json.loads(done.stdout)]

    def test_forged_records_of_another_user_are_refused(self):
        replicas = self.replicas(2)
        self.init(replicas)
        mount = self.mount()
        self.write_secret()
        self.forge_records(replicas, mount)
        mount.proc.kill()
        self.image.shutdown()
        mount._detach()
        self.recovers_secret()

    def test_forged_records_for_a_direct_volume_are_refused(self):
        replicas = self.replicas(2)
        self.init(replicas, 2, "--direct")
        self.volume.trust_words = lambda: []
        run = self.own(DirectRun(self.volume))
        run.wait_mode("replicated")
        sh(*in_netns(self.net.primary), *self.volume.join_words(), sys.executable, "-c", WRITES_SECRET,
           os.path.join(self.backing, "secret"))
        self.forge_records(replicas, run)
        run.kill()
        self.image.shutdown()
        run._detach()
        self.recovers_secret()

    def forge_records(self, replicas, session):
        """Another user tells the replicas that all records are on the primary's disk. They refuse it, since
        it is plain."""
        self.assertEqual(session.status()["sealing"]["refused"]["unsealed"], 0)
        for replica in replicas:
            # Even with all numbers of the session: that everything is on the primary's disk.
            _, volume, epoch, session = replica.session()
            trim = self.forged(frames.PROBE, volume, epoch, session, MARK)
            answers = self.send_as_stranger(replica, trim)
            # None to it: the others are to the unknown session.
            self.assertTrue(answers)
            self.assertNotIn(volume, [answer[frames.VOLUME_AT:frames.EPOCH_AT] for answer in answers])
            metrics = replica.metrics()
            self.assertGreater(metrics['salius_replica_drops_total{reason="unsealed"}'], 0)
            self.assertEqual((metrics["salius_replica_sealed"], metrics["salius_replica_plain_sessions"]), (1, 0))

    def recovers_secret(self):
        """After a power cut the replicas still have their records."""
        self.image.umount()
        self.image.mount()
        done = self.volume.recover()
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        with open(os.path.join(self.backing, "secret"), "rb") as f:
            self.assertEqual(f.read(), SECRET)

    def test_forged_acknowledgements_of_another_user_are_refused(self):
        replicas = self.replicas(2)
        self.init(replicas)
        mount = self.mount()
        incarnation, volume, epoch, session = replicas[1].session()
        base = mount.status()["replicas"][1]["base"]
        replicas[1].kill()
        # Another user takes the port of the dead replica, and knows all numbers.
        body = bytearray(struct.pack("<6QHHI", incarnation, base, mount.status()["issued"] + 1, 0, 1 << 20, 0, 0, 0, 0))
        ack = self.forged(frames.ACK, volume, epoch, session, body=bytes(body))
        log = os.path.join(current().dir, self.net.prefix + "-stranger.log")
        forger = Proc([*stranger.AS_STRANGER, sys.executable, "-c", ANSWERS, replicas[1].port, ack.hex()], log,
                      netns=self.net.primary)
        self.addCleanup(forger.kill)
        self.write_secret()
        mount.wait_mode("local", 60)
        wait_until(lambda: mount.status()["sealing"]["refused"]["unsealed"] >= 3, 60, lambda: str(mount.status()))
        report = mount.status()["replicas"][1]
        self.assertEqual((report["connected"], report["member"]), (False, False), report)
        # Nothing of what it received can be read.
        forger.kill()
        with open(log) as f:
            lines = [line.split() for line in f]
        received = [bytes.fromhex(words[1]) for words in lines if len(words) == 2 and words[0] == "received"]
        self.assertGreater(len(received), 0)
        for datagram in received:
            self.assertEqual(datagram[:5], frames.SEALED)
            self.assertNotIn(SECRET, datagram)
        replicas[1].start()
        mount.wait_whole(60)
        mount.umount()

    def test_caller_of_the_group_is_named(self):
        # As a member of the group salius: the test opens the socket to all in place of a group.
        replica, = self.replicas(1)
        os.chmod(replica.socket, 0o666)
        salius = program_for_users("salius")
        uuid = "01234567-89ab-4cde-8f01-23456789abcd"
        done = stranger.run(salius, "forget", uuid, "--replica", replica.address, netns=self.net.primary)
        status = self.status(replica.address)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("local/%d" % pwd.getpwnam("nobody").pw_uid, status.stdout)

    def test_insecure_replica_serves_tcp(self):
        replica, = self.replicas(1, "--insecure")
        self.assertTrue(self.connects_by_tcp(replica.port))
        self.assertFalse(os.path.exists(replica.socket))
        self.assertEqual(self.status(replica.address).returncode, 0)

    def test_insecure_replica_is_reached_beside_a_dead_socket(self):
        replica, = self.replicas(1)
        replica.kill()
        self.assertTrue(os.path.exists(replica.socket))
        replica.options = ("--insecure",)
        replica.start()
        self.assertEqual(self.status(replica.address).returncode, 0)

    def of_user(self, user):
        """Returns a replica that an ordinary user starts, and the user's directory below /run/user."""
        replica = self.own(LocalReplica(self.net, 0, "--no-mlock"))
        for folder in (replica.shm, replica.state):
            os.makedirs(folder)
            shutil.chown(folder, user)
        replica.wrapper = as_user(user)
        run = "/run/user/%d" % pwd.getpwnam(user).pw_uid
        os.makedirs(run, 0o700, exist_ok=True)
        shutil.chown(run, user)
        self.addCleanup(shutil.rmtree, run)
        replica.socket = "%s/salius-replica/127.0.0.1-%d.sock" % (run, PORT)
        return replica, run

    def test_replica_of_a_user_serves_that_user(self):
        replica, run = self.of_user("games")
        replica.start()
        self.assertTrue(stat.S_ISSOCK(os.stat(replica.socket).st_mode))
        words = (program_for_users("salius"), "status", "--replica", replica.address)
        done = sh(*in_netns(self.net.primary), *as_user("games"), *words, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertNotEqual(stranger.run(*words, netns=self.net.primary).returncode, 0)
        self.assertEqual(stranger.reached(stranger.files_below(run)), [])
        self.assertFalse(self.connects_by_tcp(replica.port))
        # Its memory, with keys of sessions, is out of reach even for other processes of its user.
        done = sh(*as_user("games"), "cat", "/proc/%d/environ" % replica.proc.pid, check=False)
        self.assertIn("Permission denied", done.stderr)
        done = sh(*as_user("games"), "cat", "/proc/self/environ", check=False)
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_socket_that_cannot_be_made_is_refused_with_advice(self):
        replica, run = self.of_user("games")
        with open(run + "/salius-replica", "w"):
            pass
        with self.assertRaisesRegex(HarnessError, "no-local-socket"):
            replica.start()
        self.assertEqual(replica.proc.wait(60), 1)
