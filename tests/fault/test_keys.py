"""Keys on every control channel: volumes that use them, and each kind of wrong key."""
import json
import os
import socket
import sys

from fault.test_replicas import report_of
from harness import frames, old_client, ops
from harness.case import Case
from harness.clock import Clock
from harness.keys import Keys
from harness.net import PRIMARY_IP, inside
from harness.proc import Proc
from harness.replica import PORT
from harness.run import HarnessError, binary, sh, wait_until
from harness.volume import RECOVER_NOT_ENOUGH, MountRefused, in_netns

YEAR_S = 365 * 24 * 3600


class KeysCase(Case):

    def setUp(self):
        super().setUp()
        self.keys = Keys()

    def keyed(self, m=2, acks=2, **kwargs):
        return self.rig(m=m, acks=acks, keys=self.keys, **kwargs)

    def writing(self, rig, style="mixed"):
        writer = ops.OpWriter(rig.path, style=style, wrapper=rig.wrapper)
        self.addCleanup(writer.kill)
        writer.more(30)
        return writer

    def works(self, rig, mode="replicated"):
        """Checks that the mounted volume acknowledges, and that a recovery finds all of it."""
        rig.mount_.wait_mode(mode, 60)
        writer = self.writing(rig)
        rig.power_cut(also=writer.kill)
        done = rig.volume.recover()
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        ops.check(rig.backing, writer.ledger)

    def problem(self, rig, *words, index=0):
        """Waits until the status says why replica `index` has no session, with these words."""
        replica = rig.replicas[index]

        def says():
            text = report_of(rig.mount_.status(), replica)["problem"]
            return text if all(word in text for word in words) else None
        return wait_until(says, 60, lambda: "no %s in: %r" % (words, report_of(rig.mount_.status(), replica)["problem"]))

    def status_of(self, rig, keys, index=0):
        """Runs salius status of a replica with the keys of a caller; None: without."""
        return sh(*in_netns(rig.net.primary), binary("salius"), "status", "--replica", rig.replicas[index].address,
                  *(["--keys", keys] if keys else []), check=False)


class Use(KeysCase):

    def test_volume_survives_a_power_cut(self):
        rig = self.keyed()
        rig.mount()
        self.works(rig)

    def test_direct_volume_survives_a_power_cut(self):
        rig = self.keyed(direct=True, init_options=("--log-max", "16MiB", "--delta", "500ms"))
        rig.mount()
        self.works(rig)

    def test_recovery_at_mount_uses_them(self):
        rig = self.keyed()
        rig.mount(mode="replicated")
        writer = self.writing(rig)
        rig.power_cut(also=writer.kill)
        rig.mount(mode="replicated")
        ops.check(rig.path, writer.ledger)

    def test_host_is_that_of_the_configured_name(self):
        """The volume knows the replica by an address; the certificate has another one."""
        rig = self.keyed(start=False)
        for replica in rig.replicas:
            replica.keys = self.keys.issue("replica/n%d" % replica.index, "--hosts", "other.example")
            replica.start()
        rig.mount()
        self.problem(rig, "is for other.example, not for", rig.replicas[0].ip)
        rig.replicas[0].keys = self.keys.issue("replica/both", "--hosts", "other.example,%s" % rig.replicas[0].ip)
        rig.replicas[0].restart()
        rig.mount_.wait_status(lambda s: report_of(s, rig.replicas[0])["connected"], 60, "the first replica has a session")

    def test_renewal_under_load(self):
        """Every certificate is replaced, and its authority's own, while a writer runs. The session
        keeps its members, and a recovery with the new files finds everything."""
        rig = self.keyed()
        rig.mount(mode="replicated")
        writer = self.writing(rig)
        for _ in range(3):
            self.keys.call("renew", "ca")
            for replica in rig.replicas:
                self.keys.renew("replica/r%d" % replica.index)
                writer.more(5)
            self.keys.renew("client/primary")
            writer.more(5)
            # A new session is opened with the new keys on both ends.
            rig.replicas[0].restart()
            rig.mount_.wait_whole(60)
        rig.power_cut(also=writer.kill)
        done = rig.volume.recover()
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        ops.check(rig.backing, writer.ledger)

    def test_files_written_in_part_leave_the_old_keys(self):
        rig = self.keyed()
        rig.mount(mode="replicated")
        replica = rig.replicas[0]
        for path in (replica.keys, rig.volume.keys):
            with open(path, "rb") as f:
                whole = f.read()
            with open(path, "wb") as f:
                f.write(whole[:len(whole) // 2])
            # An operator's call is a handshake of its own, and finds the old certificate.
            done = self.status_of(rig, self.keys.issue("operator/o%d" % len(path)))
            self.assertEqual(done.returncode, 0, done.stderr)
        wait_until(lambda: "written in part" in replica.tail(), 60, lambda: replica.tail())
        self.assertGreater(replica.metrics()["salius_keys_refused_total"], 0)
        self.assertEqual(rig.mount_.mode(), "replicated")


class IdleConnections(KeysCase):
    """A host that opens connections to a replica's control port and says nothing."""

    # Begins as many connections as its argument says, prints how many, and keeps them until its
    # input ends.
    HOLDER = """
import resource, socket, sys
soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
held = []
for _ in range(min(int(sys.argv[3]), hard - 100)):
    held.append(socket.socket())
    held[-1].setblocking(False)
    held[-1].connect_ex((sys.argv[1], int(sys.argv[2])))
print(len(held), flush=True)
sys.stdin.read()
"""

    def hold(self, rig, count):
        proc = Proc([sys.executable, "-c", self.HOLDER, rig.replicas[0].ip, PORT, count], rig.volume.log + ".holder",
                    netns=rig.net.primary, pipe_in=True, pipe_out=True)
        self.addCleanup(proc.kill)
        self.assertGreater(int(proc.popen.stdout.readline()), 300)
        return proc

    @staticmethod
    def descriptors(rig):
        """Returns how many descriptors the replica has open."""
        return len(os.listdir("/proc/%d/fd" % rig.replicas[0].proc.pid))

    def answers(self, rig):
        return self.status_of(rig, rig.volume.keys).returncode == 0

    def test_port_answers_meanwhile_and_they_are_closed(self):
        rig = self.keyed()
        rig.mount(mode="replicated")
        # It works all the time, and new files would need an inode each.
        writer = self.writing(rig, "slots")
        before = self.descriptors(rig)
        self.hold(rig, 14000)
        wait_until(lambda: self.answers(rig), 60, rig.replicas[0].tail)
        writer.more(30)
        wait_until(lambda: self.descriptors(rig) < before + 50, 180, lambda: "%d are open" % self.descriptors(rig), 0.5)
        self.assertEqual(rig.mount_.mode(), "replicated")

    def few_descriptors(self):
        """Returns a rig whose replicas may open 256 files, so that a host may have 32 connections."""
        rig = self.keyed(start=False)
        for replica in rig.replicas:
            replica.wrapper = ("prlimit", "--nofile=256:256")
            replica.start()
        return rig

    def test_replica_without_free_descriptors_answers_again(self):
        rig = self.few_descriptors()
        self.hold(rig, 2000)
        wait_until(lambda: self.answers(rig), 180, rig.replicas[0].tail, 0.5)
        rig.mount()
        self.works(rig)

    def test_host_that_floods_leaves_connections_to_others(self):
        rig = self.few_descriptors()
        replica = rig.replicas[0]
        self.hold(rig, 2000)
        wait_until(lambda: "salius_control_connections_closed_total" in str(replica.metrics()), 60, replica.tail)
        self.assertLess(self.descriptors(rig), 256 - 64)
        done = sh(*in_netns(rig.net.replica(1)), binary("salius"), "status", "--replica", replica.address, "--keys",
                  self.keys.issue("operator/op"), check=False)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr + replica.tail())
        wait_until(lambda: "closed a connection of %s" % PRIMARY_IP in replica.tail(), 60, replica.tail)


class Tenants(KeysCase):
    """A client that is not the owner of a volume, with keys of the same authority."""

    def setUp(self):
        super().setUp()
        self.rig_ = self.keyed()
        self.rig_.mount(mode="replicated")
        self.bob = self.keys.issue("client/bob")
        self.operator = self.keys.issue("operator/op")

    def replica_json(self, keys):
        done = sh(*in_netns(self.rig_.net.primary), binary("salius"), "status", "--json", "--replica",
                  self.rig_.replicas[0].address, "--keys", keys)
        return json.loads(done.stdout)

    def forget(self, keys):
        return sh(*in_netns(self.rig_.net.primary), binary("salius"), "forget", "--force", "--replica",
                  self.rig_.replicas[0].address, "--keys", keys, self.rig_.volume.uuid(), check=False)

    def test_status_shows_each_client_its_own(self):
        uuid = self.rig_.volume.uuid()
        self.assertEqual([v["volume"] for v in self.replica_json(self.rig_.volume.keys)["volumes"]], [uuid])
        self.assertEqual(self.replica_json(self.bob)["volumes"], [])
        self.assertEqual(self.replica_json(self.bob)["calls"], [])
        seen = self.replica_json(self.operator)
        self.assertEqual([v["owner"] for v in seen["volumes"]], ["client/primary"])
        self.assertIn("client/primary", [c["identity"] for c in seen["calls"]])

    def test_other_client_forgets_and_recovers_nothing(self):
        rig = self.rig_
        writer = self.writing(rig)
        done = self.forget(self.bob)
        self.assertEqual(done.returncode, 9, done.stderr)
        self.assertIn("belongs to another identity", done.stderr)
        rig.power_cut(also=writer.kill)
        right, rig.volume.keys = rig.volume.keys, self.bob
        done = rig.volume.recover("--timeout", "3s")
        self.assertEqual(done.returncode, RECOVER_NOT_ENOUGH, done.stdout + done.stderr)
        self.assertIn("belongs to another identity than yours, client/bob", done.stdout + done.stderr)
        refused = [c for c in self.replica_json(self.operator)["calls"] if c["identity"] == "client/bob"]
        self.assertIn("fence", [c["kind"] for c in refused])
        self.assertFalse([c for c in refused if c["accepted"]])
        wait_until(lambda: "owned by client/primary: a call refused to client/bob" in rig.replicas[0].tail(), 60,
                   rig.replicas[0].tail)
        self.assertGreater(rig.replicas[0].metrics()[
            'salius_replica_identity_calls_total{identity="client/bob",result="refused"}'], 0)
        rig.volume.keys = right
        done = rig.volume.recover()
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        ops.check(rig.backing, writer.ledger)

    def test_operator_gives_a_volume_to_another_client(self):
        rig = self.rig_
        rig.mount_.umount()
        rig.volume.keys = self.bob
        rig.mount()
        self.problem(rig, "belongs to another identity than yours, client/bob")
        for replica in rig.replicas:
            done = sh(*in_netns(rig.net.primary), binary("salius"), "forget", "--force", "--replica", replica.address,
                      "--keys", self.operator, rig.volume.uuid(), check=False)
            # The volume is mounted here: only the replicas are asked.
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.works(rig)


class WrongKeys(KeysCase):

    def test_client_without_keys(self):
        rig = self.keyed()
        rig.volume.keys = None
        rig.mount()
        version = sh(binary("salius"), "--version").stdout.split()[-1]
        self.problem(rig, "with keys only", version, "keys")
        done = self.status_of(rig, None)
        self.assertEqual(done.returncode, 7, done.stderr)
        self.assertIn("with keys only", done.stderr)
        done = self.status_of(rig, self.keys.issue("operator/me"))
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_primary_of_a_version_before_keys(self):
        """Its call is refused, with the replica's version, and its plain datagrams too."""
        rig = self.keyed(m=1, acks=1)
        version = sh(binary("salius"), "--version").stdout.split()[-1]
        host, _, port = rig.replicas[0].address.rpartition(":")
        volume = os.urandom(16)
        with inside(rig.net.primary):
            answer = old_client.open_session(host, int(port), volume)
        for word in (b"grpc-status", b"14", b"(version %s) takes calls with keys only" % version.encode()):
            self.assertIn(word, answer)
        self.assertNotIn(volume.hex(), self.status_of(rig, self.keys.issue("operator/me")).stdout.replace("-", ""))
        plain = bytearray(frames.HEADER)
        plain[:6] = b"SLF1\x01" + bytes([frames.PROBE])
        with inside(rig.net.primary), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as old:
            old.sendto(frames.sealed(plain), (host, int(port)))
        name = 'salius_replica_refused_datagrams_total{reason="unsealed"}'
        wait_until(lambda: rig.replicas[0].metrics()[name] == 1, 60, lambda: str(rig.replicas[0].metrics()))

    def test_replica_without_keys(self):
        rig = self.keyed(start=False)
        for replica in rig.replicas:
            replica.keys = None
            replica.start()
        rig.mount()
        self.problem(rig, "it has no keys (it is version ", "--keys")

    def test_recovery_without_keys(self):
        rig = self.keyed()
        rig.mount(mode="replicated")
        writer = self.writing(rig)
        rig.power_cut(also=writer.kill)
        right, rig.volume.keys = rig.volume.keys, None
        done = rig.volume.recover("--timeout", "3s")
        self.assertEqual(done.returncode, RECOVER_NOT_ENOUGH, done.stdout + done.stderr)
        self.assertIn("with keys only", done.stdout + done.stderr)
        rig.volume.keys = right
        done = rig.volume.recover()
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        ops.check(rig.backing, writer.ledger)

    def test_client_of_another_authority(self):
        rig = self.keyed()
        other = Keys()
        rig.volume.keys = other.issue("client/primary")
        rig.mount()
        self.problem(rig, "another authority, which has the same name")
        # It trusts the replica now, and the replica does not trust it.
        folder = os.path.dirname(rig.volume.keys)
        with open(os.path.join(self.keys.directory, "ca.pem"), encoding="ascii") as f, \
                open(os.path.join(folder, "ca.pem"), "a", encoding="ascii") as g:
            g.write(f.read())
        self.problem(rig, "refuses this host's certificate, of client/primary")
        wait_until(lambda: "control connection refused" in rig.replicas[0].tail(), 60, lambda: rig.replicas[0].tail())
        self.assertGreater(rig.replicas[0].metrics()["salius_control_handshakes_refused_total"], 0)

    def test_client_that_shows_a_replicas_certificate(self):
        rig = self.keyed()
        rig.volume.keys = rig.replicas[1].keys
        rig.mount()
        self.problem(rig, "refuses this host's certificate, of replica/r1")

    def test_replica_that_shows_a_clients_certificate(self):
        rig = self.keyed(start=False)
        replica = rig.replicas[0]
        replica.keys = self.keys.issue("client/x")
        with self.assertRaises(HarnessError) as refused:
            replica.start()
        self.assertIn("is the certificate of client/x, which may not serve", str(refused.exception))

    def refused(self, rig, *words):
        """Checks that a mount, a recovery, a status and a replica refuse the volume's key file."""
        with self.assertRaises(MountRefused) as refused:
            rig.mount()
        for done in (rig.volume.recover(), self.status_of(rig, rig.volume.keys)):
            self.assertNotEqual(done.returncode, 0)
            for word in words:
                self.assertIn(word, done.stdout + done.stderr)
        for word in words:
            self.assertIn(word, refused.exception.log)

    def test_key_file_that_others_can_read(self):
        rig = self.keyed(start=False)
        for mode in (0o640, 0o604, 0o660):
            os.chmod(rig.volume.keys, mode)
            self.refused(rig, "other users have rights on a private key", "chmod 600")
        replica = rig.replicas[0]
        os.chmod(replica.keys, 0o640)
        with self.assertRaises(HarnessError):
            replica.start()
        self.assertIn("chmod 600", replica.tail())

    def test_authorities_that_others_can_write(self):
        rig = self.keyed(start=False)
        os.chmod(os.path.join(os.path.dirname(rig.volume.keys), "ca.pem"), 0o666)
        self.refused(rig, "chmod go-w")

    def test_missing_file(self):
        rig = self.keyed(start=False)
        rig.volume.keys += ".gone"
        self.refused(rig, "No such file", ".gone")

    def at(self, seconds, identity, *options):
        """Makes an identity as a host whose clock is `seconds` ahead does."""
        clock = Clock()
        clock.set(seconds)
        sh(binary("salius"), "keys", "issue", self.keys.directory, identity, *options, env=clock.env)
        return self.keys.install(identity)

    def test_expired_and_not_yet_valid(self):
        self.keys = Keys("--days", "3650")
        rig = self.keyed(start=False)
        # A certificate of the past would begin before its authority: the future is looked at too.
        rig.volume.keys = self.at(2 * YEAR_S, "client/later")
        self.refused(rig, "is valid from", "the clock says")
        rig.volume.keys = self.at(0, "client/short", "--days", "1")
        past = Clock()
        past.set(3 * 24 * 3600)
        done = sh(binary("salius"), "keys", "show", rig.volume.keys, env=past.env, check=False)
        self.assertIn("expired on", done.stderr)

    def test_clock_off_by_a_year(self):
        """Each end whose clock is wrong refuses and is refused; it works again when the clock is
        right."""
        rig = self.keyed(start=False)
        clock = Clock()
        ahead, right = rig.replicas
        ahead.env = clock.env
        for replica in rig.replicas:
            replica.start()
        clock.set(2 * YEAR_S)
        rig.mount()
        self.problem(rig, "refuses this host's certificate, of client/primary", "clocks")
        clock.set(0)
        rig.mount_.wait_whole(60)
        self.assertTrue(right.alive())
        self.works(rig)

    def test_missing_intermediate(self):
        rig = self.keyed(start=False)
        openssl = Intermediate(self.keys)
        whole = openssl.issue("client/far")
        rig.volume.keys = whole
        for replica in rig.replicas:
            replica.start()
        rig.mount()
        self.works(rig)
        with open(whole, encoding="ascii") as f:
            blocks = f.read().split("-----BEGIN ")
        # Without the second certificate.
        with open(whole, "w", encoding="ascii") as f:
            f.write("-----BEGIN ".join(blocks[:2] + blocks[3:]))
        self.refused(rig, "lacks the certificate of an intermediate one")


class Intermediate:
    """An authority that the one of `keys` signed, made with openssl(1) as a company's would be."""

    def __init__(self, keys):
        self.keys = keys
        self.folder = keys.directory + "-between"
        os.mkdir(self.folder, 0o700)
        self.sign("between", "/CN=Between", "basicConstraints=critical,CA:TRUE\nkeyUsage=critical,keyCertSign\n",
                  os.path.join(keys.directory, "ca"))

    def path(self, name):
        return os.path.join(self.folder, name)

    def sign(self, name, subject, extensions, issuer):
        """Makes name.key and name.crt, signed by the authority of `issuer`.key."""
        with open(self.path(name + ".ext"), "w", encoding="ascii") as f:
            f.write(extensions)
        certificate = issuer + ".pem" if os.path.exists(issuer + ".pem") else issuer + ".crt"
        sh("openssl", "req", "-new", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", subject,
           "-keyout", self.path(name + ".key"), "-out", self.path(name + ".csr"))
        sh("openssl", "x509", "-req", "-in", self.path(name + ".csr"), "-CA", certificate, "-CAkey", issuer + ".key",
           "-CAcreateserial", "-CAserial", self.path(name + ".srl"), "-days", "30", "-extfile", self.path(name + ".ext"),
           "-out", self.path(name + ".crt"))

    def issue(self, identity):
        """Makes an identity; returns its file, with the intermediate certificate, beside ca.pem."""
        self.sign("leaf", "/CN=leaf", "basicConstraints=critical,CA:FALSE\nkeyUsage=critical,digitalSignature\n"
                  "extendedKeyUsage=clientAuth\nsubjectAltName=URI:salius:%s\n" % identity, self.path("between"))
        host = self.path("host")
        os.mkdir(host, 0o700)
        path = os.path.join(host, identity.replace("/", "-") + ".pem")
        with open(path, "w", encoding="ascii") as f:
            os.chmod(path, 0o600)
            for part in ("leaf.crt", "between.crt", "leaf.key"):
                with open(self.path(part), encoding="ascii") as source:
                    f.write(source.read())
        with open(os.path.join(self.keys.directory, "ca.pem"), encoding="ascii") as source, \
                open(os.path.join(host, "ca.pem"), "w", encoding="ascii") as f:
            f.write(source.read())
        return path
