"""Bad input: configuration, addresses, directories, damaged files. Each is refused with advice,
before anything is changed."""
import os
import re
import shutil

from harness import ops
from harness.case import Case
from harness.image import Image
from harness.net import Net
from harness.proc import Proc
from harness.replica import PORT, Replica
from harness.rig import PATIENT
from harness.run import binary, current, sh
from harness.volume import RECOVER_NOT_ENOUGH, Mount, MountRefused, Volume


class BadConfiguration(Case):

    def setUp(self):
        super().setUp()
        self.image = self.own(Image("conf", "ext4", 256))
        self.volume = Volume(self.image.path)

    def refused(self, done, *words):
        self.assertNotIn(done.returncode, (0, 139, 134), done.stdout + done.stderr)
        for word in words:
            self.assertIn(word, done.stderr)

    def test_acks_of_zero_or_above_the_number_of_replicas_is_refused(self):
        for acks in (0, 3, -1):
            self.refused(self.volume.init(["127.0.0.1:7400", "127.0.0.1:7401"], acks, check=False), "acks")
        self.assertFalse(os.path.exists(self.volume.salius_file("")))

    def test_address_that_does_not_resolve_is_refused_by_init(self):
        self.refused(self.volume.init(["no-such-host.invalid:7400"], 1, check=False), "no-such-host.invalid")
        self.assertFalse(os.path.exists(self.volume.salius_file("")))

    def test_the_same_replica_twice_is_refused(self):
        self.refused(self.volume.init(["127.0.0.1:7400", "127.0.0.1:7400"], 1, check=False), "127.0.0.1:7400")

    def test_init_twice_is_refused_and_leaves_the_volume(self):
        self.volume.init(["127.0.0.1:7400"], 1)
        with open(self.volume.salius_file("volume.toml")) as f:
            before = f.read()
        self.refused(self.volume.init(["127.0.0.1:7401"], 1, check=False), "already")
        with open(self.volume.salius_file("volume.toml")) as f:
            self.assertEqual(f.read(), before)

    def test_init_of_a_missing_directory_is_refused(self):
        missing = Volume(os.path.join(self.image.path, "missing"))
        self.refused(missing.init(["127.0.0.1:7400"], 1, check=False), "missing")

    def edited(self, edit):
        self.volume.init(["127.0.0.1:7400"], 1)
        path = self.volume.salius_file("volume.toml")
        with open(path) as f:
            text = f.read()
        with open(path, "w") as f:
            f.write(edit(text))
        for done in (self.volume.run("salius-mount", self.volume.backing, self.volume.mountpoint, "-f", "-o",
                                     "insecure", timeout=30),
                     self.volume.recover()):
            yield done

    def test_unknown_key_in_volume_toml_is_refused_and_named(self):
        for done in self.edited(lambda t: "surprise = 1\n" + t):
            self.refused(done, "surprise")

    def test_volume_toml_that_is_not_toml_is_refused(self):
        for done in self.edited(lambda t: t + "\n= = =\n"):
            self.refused(done, "volume.toml")

    def test_acks_edited_to_more_than_the_replicas_is_refused(self):
        for done in self.edited(lambda t: re.sub(r"(?m)^acks *=.*$", "acks = 5", t)):
            self.refused(done, "acks")

    def test_address_in_mount_options_that_does_not_resolve_leaves_the_volume_local_or_is_refused(self):
        """A name service that is down must not keep a volume from its host. It must never stay
        silent."""
        self.volume.init(["127.0.0.1:7400"], 1)
        try:
            mount = self.mounted("replicas=no-such-host.invalid:7400,acks=1")
            status = mount.wait_mode("local")
            self.assertIn("no-such-host.invalid", str(status))
        except MountRefused as refused:
            self.assertIn("no-such-host.invalid", refused.log)

    def mounted(self, options):
        return self.own(Mount(self.volume, options))

    def test_smallest_datagram_that_is_allowed_mounts(self):
        self.refused(self.volume.init(["127.0.0.1:7400"], 1, "--datagram", "511", check=False), "512")
        rig = self.rig(m=1, acks=1, init_options=PATIENT + ("--datagram", "512"))
        mount = rig.mount(mode="replicated")
        with open(rig.file("f"), "wb") as f:
            f.write(os.urandom(300000))
            f.flush()
            os.fsync(f.fileno())
        self.assertEqual(mount.mode(), "replicated")

    def test_log_larger_than_the_stable_log_was_made_for_is_refused(self):
        """Recovery could not pin the records that such a session acknowledges."""
        self.volume.init(["127.0.0.1:7400"], 1)
        path = self.volume.salius_file("volume.toml")
        with open(path) as f:
            text = f.read()
        for key in ("log_max", "stable_log"):
            text = re.sub(r'(?m)^(%s *= *")(\d+)(MiB"$)' % key, lambda m: m[1] + str(2 * int(m[2])) + m[3], text)
        with open(path, "w") as f:
            f.write(text)
        with self.assertRaises(MountRefused) as caught:
            self.mounted("")
        self.assertIn("stable_log = ", caught.exception.log)
        doctor = self.volume.run("salius", "doctor", self.volume.backing)
        self.assertIn("put stable_log (and log_max) back", doctor.stdout)

    def test_replicas_of_two_address_families_are_refused(self):
        self.refused(self.volume.init(["127.0.0.1:7400", "[::1]:7400"], 1, check=False), "IPv6")
        self.volume.init(["127.0.0.1:7400"], 1)
        with self.assertRaises(MountRefused) as caught:
            self.mounted("replicas=127.0.0.1:7400;[::1]:7400,acks=1")
        self.assertIn("IPv6", caught.exception.log)

    def test_unknown_mount_option_is_refused_and_named(self):
        self.volume.init(["127.0.0.1:7400"], 1)
        with self.assertRaises(MountRefused) as caught:
            self.mounted("colour=blue")
        self.assertIn("colour", caught.exception.log)

    def test_bad_values_of_mount_options_are_refused(self):
        self.volume.init(["127.0.0.1:7400"], 1)
        for option in ("acks=0", "acks=2", "recover=maybe", "replicas=nonsense", "metrics=nonsense:x"):
            with self.subTest(option=option), self.assertRaises(MountRefused):
                self.mounted(option)


    def test_metrics_for_other_hosts_need_a_trusted_network(self):
        self.volume.init(["127.0.0.1:7400"], 1)
        self.refused(self.volume.run("salius-mount", self.volume.backing, self.volume.mountpoint, "-f", "-o",
                                     "metrics=0.0.0.0:9100", timeout=30), "insecure")


class BadDirectories(Case):

    def mount_refused(self, volume, *words):
        done = volume.run("salius-mount", volume.backing, volume.mountpoint, "-f", "-o", "insecure", timeout=30)
        self.assertNotIn(done.returncode, (0, 134, 139), done.stdout + done.stderr)
        for word in words:
            self.assertIn(word, done.stdout + done.stderr)

    def test_missing_backing_directory(self):
        self.mount_refused(Volume(os.path.join(current().dir, "nowhere")), "nowhere")

    def test_directory_that_is_no_volume_names_salius_init(self):
        image = self.own(Image("plain", "ext4", 64))
        self.mount_refused(Volume(image.path), "salius init")

    def test_missing_mount_point(self):
        image = self.own(Image("plain", "ext4", 256))
        volume = Volume(image.path)
        volume.init(["127.0.0.1:7400"], 1)
        os.rmdir(volume.mountpoint)
        self.mount_refused(volume, volume.mountpoint)

    def test_read_only_backing_directory(self):
        image = self.own(Image("readonly", "ext4", 256))
        volume = Volume(image.path)
        volume.init(["127.0.0.1:7400"], 1)
        sh("mount", "-o", "remount,ro", image.path)
        self.mount_refused(volume, "read-only")
        done = Volume(image.path).init(["127.0.0.1:7400"], 1, check=False)
        self.assertNotEqual(done.returncode, 0)

    def test_backing_directory_on_fuse(self):
        rig = self.rig(m=1, acks=1)
        rig.mount(mode="replicated")
        os.mkdir(rig.file("inner"))
        inner = Volume(rig.file("inner"))
        done = inner.init(["127.0.0.1:7400"], 1, check=False)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("fuse", (done.stdout + done.stderr).lower())

    def test_lost_state_file_is_never_a_new_volume(self):  # R6
        rig = self.rig(m=1, acks=1)
        rig.mount(mode="replicated")
        rig.mount_.umount()
        rig.mount_ = None
        os.unlink(rig.volume.salius_file("state"))
        self.mount_refused(rig.volume, "state")
        self.assertNotEqual(rig.volume.recover().returncode, 0)
        self.assertFalse(os.path.exists(rig.volume.salius_file("state")))


class ReplicaInput(Case):

    def setUp(self):
        super().setUp()
        self.net = self.own(Net(1))

    def refused(self, *arguments):
        log = os.path.join(current().dir, "refused-replica.log")
        state = os.path.join(current().dir, "refused-replica.state")
        proc = Proc([binary("salius-replica"), "--state-dir", state, *arguments], log, netns=self.net.replica(0))
        self.addCleanup(proc.kill)
        code = proc.wait(20)
        self.assertNotIn(code, (0, -6, -11), proc.tail())
        return proc.tail()

    def test_port_in_use_is_refused_and_named(self):
        replica = self.own(Replica(self.net, 0))
        replica.start()
        text = self.refused("--listen", replica.address, "--memory", "64MiB", "--shm-dir", "/dev/shm/other", "--insecure")
        self.assertIn(str(PORT), text)
        self.assertTrue(replica.alive())

    def test_shm_directory_of_a_running_replica_is_refused(self):
        replica = self.own(Replica(self.net, 0))
        replica.start()
        self.refused("--listen", replica.ip + ":7401", "--memory", "64MiB", "--shm-dir", replica.shm, "--insecure")
        self.assertTrue(replica.alive())

    def test_public_address_without_insecure_is_refused(self):
        text = self.refused("--listen", self.net.ip(0) + ":7400", "--memory", "64MiB", "--shm-dir", "/dev/shm/x")
        self.assertIn("--insecure", text)

    def test_nonsense_values_are_refused(self):
        for arguments in (("--listen", "nonsense"), ("--memory", "much"), ("--memory", "0"), ("--no-such-option",),
                          ("--listen", "no-such-host.invalid:7400")):
            with self.subTest(arguments=arguments):
                self.refused(*arguments, "--shm-dir", "/dev/shm/x")


class DamagedFiles(Case):

    def crashed(self, local):
        """Returns a volume after a power cut, with records in its stable log (`local`) or at its
        replicas."""
        rig = self.rig(m=1, acks=1)
        mount = rig.mount(mode="replicated")
        writer = ops.OpWriter(rig.path)
        self.addCleanup(writer.kill)
        writer.more(30)
        if local:
            rig.replicas[0].lose_memory()
            mount.wait_mode("local")
        writer.more(100)
        rig.power_cut(also=writer.kill)
        return rig, writer

    @staticmethod
    def damage(path, offset, size=64):
        with open(path, "r+b") as f:
            f.seek(offset)
            old = f.read(size)
            f.seek(offset)
            f.write(bytes(b ^ 0x5A for b in old))
            f.flush()
            os.fsync(f.fileno())

    def entries(self, rig):
        """Returns the file offsets of the entries in the stable log, by their magic
        (docs/log-format.md)."""
        with open(rig.volume.salius_file("stable.log"), "rb") as f:
            data = f.read()
        return [m.start() for m in re.finditer(b"SLE1", data) if m.start() % 8 == 0]

    def test_damage_inside_the_stable_log_is_data_loss_that_names_the_offset(self):  # R8
        rig, _ = self.crashed(local=True)
        offsets = self.entries(rig)
        self.assertGreater(len(offsets), 10, "the test needs a stable log in use")
        victim = offsets[len(offsets) // 2]
        self.damage(rig.volume.salius_file("stable.log"), victim)
        done = rig.volume.recover()
        self.assertNotEqual(done.returncode, 0, done.stdout)
        self.assertRegex(done.stdout + done.stderr, r"\b(offset|byte|position)\b.*\d+")

    def test_truncated_stable_log_is_refused(self):
        rig, _ = self.crashed(local=True)
        path = rig.volume.salius_file("stable.log")
        os.truncate(path, os.path.getsize(path) // 2)
        done = rig.volume.recover()
        self.assertNotEqual(done.returncode, 0, done.stdout)
        self.assertIn("stable", done.stdout + done.stderr)

    def test_missing_stable_log_is_refused_although_replicas_have_everything(self):  # R8
        rig, _ = self.crashed(local=False)
        os.unlink(rig.volume.salius_file("stable.log"))
        self.assertNotEqual(rig.volume.recover().returncode, 0)

    def test_torn_tail_of_the_stable_log_is_normal(self):  # R9
        rig, writer = self.crashed(local=True)
        # A write in progress at the power cut: bytes after the last whole entry.
        path = rig.volume.salius_file("stable.log")
        last = self.entries(rig)[-1]
        with open(path, "r+b") as f:
            f.seek(last)
            head = f.read(64)
            # After the last entry, whose header holds its size, 8 bytes in.
            size = 40 + (int.from_bytes(head[8:12], "little") + 7) // 8 * 8
            f.seek(last + size)
            f.write(head[:37] + b"torn")
        done = rig.volume.recover()
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        ops.check(rig.backing, writer.ledger)

    def test_one_damaged_state_slot_leaves_the_other(self):
        """The volume is clean. Without the older slot it is still clean. Without the newer one it
        seems to be open, and its replicas have released it."""
        rig = self.rig(m=1, acks=1)
        rig.mount(mode="replicated")
        writer = ops.OpWriter(rig.path)
        self.addCleanup(writer.kill)
        writer.more(30)
        writer.kill()
        rig.mount_.umount()
        state = rig.volume.salius_file("state")
        with open(state, "rb") as f:
            whole = f.read()
        generations = [int.from_bytes(whole[slot + 8:slot + 16], "little") for slot in (0, 4096)]
        newer = 4096 * generations.index(max(generations))
        self.damage(state, 4096 - newer + 100)
        code, report = rig.volume.recover_json()
        self.assertEqual((code, report["outcome"]), (0, "clean"), report)
        ops.check(rig.backing, writer.ledger)
        with open(state, "r+b") as f:
            f.write(whole)
        self.damage(state, newer + 100)
        done = rig.volume.recover("--timeout", "1s")
        self.assertEqual(done.returncode, RECOVER_NOT_ENOUGH, done.stdout + done.stderr)
        with open(state, "r+b") as f:
            f.write(whole)
        ops.check(rig.backing, writer.ledger)

    def test_both_state_slots_damaged_is_data_loss(self):
        rig, _ = self.crashed(local=False)
        for slot in (0, 4096):
            self.damage(rig.volume.salius_file("state"), slot + 100)
        done = rig.volume.recover()
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("state", done.stdout + done.stderr)
        with self.assertRaises(MountRefused):
            rig.mount()

    def test_volume_file_of_another_volume_is_refused(self):  # R7
        rig, writer = self.crashed(local=False)
        path = rig.volume.salius_file("volume.toml")
        with open(path) as f:
            text = f.read()
        uuid = re.search(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", text).group()
        shutil.copy(path, path + ".kept")
        with open(path, "w") as f:
            f.write(text.replace(uuid, "00000000-1111-4222-8333-444444444444"))
        self.assertNotEqual(rig.volume.recover().returncode, 0)
        os.rename(path + ".kept", path)
        done = rig.volume.recover()
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        ops.check(rig.backing, writer.ledger)
