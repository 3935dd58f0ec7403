"""Least rights: another user of a host reaches nothing of Salius there, and the programs keep only the
capabilities that they need."""
import os
import re
import shutil
import sys

from harness import stranger
from harness.case import Case
from harness.run import binary, current, program_for_users, sh
from harness.volume import DaemonMount, as_user

# A system user, as deploy/salius.sysusers makes one.
USER = "games"
# capabilities(7) by their numbers.
DAC_READ_SEARCH, KILL, SETUID, SYS_MODULE, SYS_RAWIO, SYS_PTRACE, SYS_ADMIN, SYS_TIME = 2, 5, 7, 16, 17, 19, 21, 25
SECRET = b"the content of a file of root"


def capabilities(pid):
    """Returns the sets of capabilities that the threads of a process have (CapPrm), as numbers."""
    found = set()
    for tid in os.listdir("/proc/%d/task" % pid):
        try:
            with open("/proc/%d/task/%s/status" % (pid, tid)) as f:
                found.add(int(re.search(r"^CapPrm:\s*(\w+)$", f.read(), re.M).group(1), 16))
        except FileNotFoundError:
            pass  # the thread has ended
    return found


def has(capability_set, number):
    return capability_set >> number & 1


class Strangers(Case):
    """On the primary's host and on a replica's: each socket, arena, state file, log and lock."""

    def nothing_reached(self, entries, *named):
        """Checks that the entries have all that are `named`, by the ends of their paths."""
        for name in named:
            self.assertTrue([path for path, _ in entries if path.endswith(name)], "%s is not among %s" % (name, entries))
        self.assertEqual(stranger.reached(entries), [])

    def with_secret(self, rig):
        with open(rig.file("secret"), "wb") as f:
            f.write(SECRET)
            f.flush()
            os.fsync(f.fileno())

    def test_controls_are_reached(self):
        # Each attempt can succeed.
        folder = os.path.join(current().dir, "open")
        os.mkdir(folder)
        os.chmod(folder, 0o777)
        for name, mode in (("readable", 0o444), ("writable", 0o222)):
            path = os.path.join(folder, name)
            with open(path, "w"):
                pass
            os.chmod(path, mode)
        self.assertCountEqual(stranger.reached(stranger.files_below(folder)), [
            "writes " + folder, "reads %s/readable" % folder, "writes %s/writable" % folder])

    def test_primary_with_a_mount(self):
        rig = self.rig(m=2, acks=2)
        log = os.path.join(current().dir, "mount.log")
        mount = self.own(DaemonMount(rig.volume, [binary("salius-mount"), rig.backing, rig.path, "-o",
                                                  "insecure,log=" + log]))
        mount.wait_mode("replicated")
        self.with_secret(rig)
        entries = stranger.files_below(rig.salius_dir, "/run/salius") + stranger.open_files(mount.pid) + [(log, "file")]
        # The volume's own files have the modes that their users gave.
        entries = [(path, kind) for path, kind in entries
                   if path.startswith((rig.salius_dir, "/run/salius")) or path == log]
        self.nothing_reached(entries, "/lock", "/state", "/volume.toml", ".sock", ".lock", log)
        self.assertFalse(os.stat(log).st_mode & 0o007)
        mount.umount()

    def test_primary_with_a_direct_volume(self):
        rig = self.rig(m=2, acks=2, direct=True)
        rig.mount(mode="replicated")
        self.nothing_reached(stranger.files_below(rig.salius_dir, "/run/salius"), "/lock", "/state", "/direct.sock", ".sock",
                             ".lock")
        rig.mount_.umount()

    def test_host_of_a_replica(self):
        rig = self.rig(m=2, acks=2)
        rig.mount(mode="replicated")
        self.with_secret(rig)
        rig.mount_.umount()
        for replica in rig.replicas:
            entries = stranger.files_below(replica.shm, replica.state)
            entries += [each for each in stranger.open_files(replica.proc.pid) if each[0] != replica.log]
            entries = [each for each in entries if not each[0].startswith(("/usr/", "/lib/", "/etc/"))]
            self.nothing_reached(entries, "/arena", "/promises", replica.state + "/lock")

    def test_metrics_have_no_content(self):
        rig = self.rig(m=2, acks=2)
        rig.mount("recover=auto,metrics=127.0.0.1:9401", mode="replicated")
        self.with_secret(rig)
        done = stranger.run(sys.executable, "-c", "import urllib.request; print(urllib.request.urlopen(%r).read().decode())"
                            % "http://127.0.0.1:9401/metrics", netns=rig.net.primary)
        self.assertEqual(done.returncode, 0, done.stderr)
        texts = [done.stdout] + [repr(replica.metrics()) for replica in rig.replicas]
        for text in texts:
            self.assertIn("salius_", text)
            for secret in (SECRET.decode(), "secret", rig.backing, rig.path):
                self.assertNotIn(secret, text)
        rig.mount_.umount()

    def test_metrics_are_for_loopback(self):
        folder = os.path.join(current().dir, "metrics")
        done = sh(binary("salius-replica"), "--listen", "127.0.0.1:0", "--metrics", "0.0.0.0:9402", "--shm-dir",
                  folder + ".shm", "--state-dir", folder + ".state", "--memory", "2MiB", "--no-mlock", check=False)
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertIn("--metrics", done.stderr)
        rig = self.rig(m=1, acks=1)
        done = rig.volume.run("salius-mount", rig.backing, rig.path, "-o", "replicas=127.0.0.1:7400,metrics=0.0.0.0:9402")
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertIn("metrics", done.stderr)


class LeastRights(Case):

    def test_mount_gives_up_capabilities(self):
        rig = self.rig(m=2, acks=2)
        mount = rig.mount(mode="replicated")
        rig.volume.wait_log("capabilities kept: ")
        for kept in capabilities(mount.pid):
            self.assertTrue(has(kept, SYS_ADMIN) and has(kept, DAC_READ_SEARCH))
            for number in (KILL, SETUID, SYS_MODULE, SYS_RAWIO, SYS_TIME):
                self.assertFalse(has(kept, number), "capability %d of %x" % (number, kept))
        mount.umount()

    def test_mount_keeps_ptrace_for_the_eventfds_of_callers(self):
        rig = self.rig(m=2, acks=2)
        mount = rig.mount(mode="replicated")
        rig.volume.wait_log("CAP_SYS_PTRACE")
        # A container may have none to keep.
        mine = {has(kept, SYS_PTRACE) for kept in capabilities(os.getpid())}
        self.assertEqual({has(kept, SYS_PTRACE) for kept in capabilities(mount.pid)}, mine)
        mount.umount()

    def test_coordinator_gives_up_capabilities_and_its_command_keeps_them(self):
        rig = self.rig(m=2, acks=2, direct=True)
        rig.mount(mode="replicated")
        pid = rig.mount_.proc.pid
        for kept in capabilities(pid):
            for number in (SETUID, SYS_MODULE, SYS_RAWIO, SYS_PTRACE, SYS_TIME):
                self.assertFalse(has(kept, number), "capability %d of %x" % (number, kept))
        children = []
        for tid in os.listdir("/proc/%d/task" % pid):
            with open("/proc/%d/task/%s/children" % (pid, tid)) as f:
                children += f.read().split()
        self.assertTrue(children)
        mine = capabilities(os.getpid())
        self.assertEqual(capabilities(int(children[0])), mine)
        rig.mount_.umount()

    def test_replica_of_a_system_user_without_capabilities(self):
        rig = self.rig(m=2, acks=2, start=False)
        program = program_for_users("salius-replica")
        for replica in rig.replicas:
            os.makedirs(replica.shm)
            os.makedirs(replica.state)
            shutil.chown(replica.shm, USER)
            shutil.chown(replica.state, USER)
            replica.extra.append("--no-mlock")  # a container may forbid the test to lift the limit for USER
            replica.wrapper = (*as_user(USER), "--inh-caps=-all", "--bounding-set=-all", "--no-new-privs",
                               "sh", "-c", 'program=$1; shift 2; exec "$program" "$@"', "sh", program)
        for replica in rig.replicas:
            replica.start()
            self.assertEqual(capabilities(replica.proc.pid), {0})
        rig.mount(mode="replicated")
        with open(rig.file("f"), "wb") as f:
            f.write(SECRET)
            f.flush()
            os.fsync(f.fileno())
        rig.power_cut()
        for replica in rig.replicas:
            replica.restart()
        done = rig.volume.recover()
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        with open(rig.backing_file("f"), "rb") as f:
            self.assertEqual(f.read(), SECRET)
        for replica in rig.replicas:
            self.assertEqual(stranger.reached(stranger.files_below(replica.shm, replica.state)), [])

    def test_recovery_needs_no_other_capabilities(self):
        # With what the unit of the mount allows (deploy/salius-mount@.service).
        names = []
        unit = os.path.join(os.path.dirname(__file__), "../../deploy/salius-mount@.service")
        with open(unit) as f:
            for line in re.findall(r"^CapabilityBoundingSet=(.*)$", f.read(), re.M):
                names += line.split()
        self.assertIn("CAP_SYS_ADMIN", names)
        few = ("setpriv", "--no-new-privs", "--inh-caps=-all", "--bounding-set=" + ",".join(
            ["-all"] + ["+" + name.removeprefix("CAP_").lower() for name in names]))
        rig = self.rig(m=2, acks=2)
        mount = rig.mount(mode="replicated", wrapper=few)
        self.assertFalse(has(min(capabilities(mount.pid)), SETUID))
        path = rig.file("of-a-user")
        with open(path, "wb") as f:
            f.write(SECRET)
            os.fchmod(f.fileno(), 0o4711)
            os.fchown(f.fileno(), 1234, 5678)
            f.flush()
            os.fsync(f.fileno())
        os.mknod(rig.file("device"), 0o20600, os.makedev(1, 3))
        os.setxattr(path, "trusted.note", b"value")
        rig.sync_dir()
        rig.power_cut()
        done = rig.volume.recover(wrapper=few)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        path = rig.backing_file("of-a-user")
        st = os.stat(path)
        self.assertEqual((st.st_uid, st.st_gid), (1234, 5678))
        self.assertEqual(os.getxattr(path, "trusted.note"), b"value")
        self.assertEqual(os.stat(rig.backing_file("device")).st_rdev, os.makedev(1, 3))
        mount = rig.mount(mode="replicated", wrapper=few)
        mount.umount()
