"""The operator's view: salius status as a health check, levels of the log, and the records that a
forced recovery gave up."""
import glob
import json
import os
import re
import subprocess

from harness import volume as codes
from harness.case import Case
from harness.run import binary, sh, wait_until
from harness.volume import DaemonMount, in_netns


class Health(Case):

    def code(self, rig, *words):
        return rig.volume.run("salius", "status", *words, "--timeout", "2s", timeout=60).returncode

    def expect(self, rig, code, word, timeout_s=30):
        """Expects that status by directory, by mount point and by UUID, in the text and in JSON."""
        wait_until(lambda: self.code(rig, rig.backing) == code, timeout_s,
                   lambda: "status does not become %d: %s" % (code, rig.volume.run("salius", "status", rig.backing).stdout))
        for place in [rig.backing] + [rig.path] * (code != codes.NOT_MOUNTED):
            done = rig.volume.run("salius", "status", place, "--json", "--timeout", "2s", timeout=60)
            self.assertEqual(done.returncode, code, done.stdout + done.stderr)
            status = json.loads(done.stdout)
            self.assertEqual((status["health"], status["exit_code"]), (word, code))
        return status

    def test_each_state_of_a_volume_has_an_exit_code_of_its_own(self):
        # Killed daemons of earlier tests left sockets; "every volume of the host" counts them.
        for left in glob.glob("/run/salius/*.sock"):
            os.unlink(left)
        rig = self.rig(m=3, acks=2)
        self.expect(rig, codes.NOT_MOUNTED, "not-mounted")
        mount = rig.mount(mode="replicated")
        mount.wait_whole()
        status = self.expect(rig, codes.HEALTHY, "healthy")
        self.assertEqual((status["pid"], status["log_file"]), (mount.pid, rig.volume.log))
        self.assertEqual((status["members"], status["configured"]), (3, 3))
        self.assertGreaterEqual(status["mode_since_unix_ms"], status["started_unix_ms"] - 60000)
        # Another user learns nothing, and the output calls nothing dead.
        other = sh("setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", binary("salius"), "status",
                   rig.backing, check=False)
        self.assertEqual(other.returncode, codes.NO_PERMISSION, other.stdout + other.stderr)
        other = sh("setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", binary("salius"), "status",
                   check=False)
        self.assertEqual(other.returncode, codes.NO_PERMISSION, other.stdout + other.stderr)
        self.assertNotIn("died", other.stdout)

        rig.replicas[0].stop()
        self.expect(rig, codes.DEGRADED, "degraded", 60)
        rig.replicas[1].stop()
        status = self.expect(rig, codes.LOCAL, "local", 60)
        self.assertEqual(self.code(rig), codes.LOCAL, "of every volume of the host")
        for replica in rig.replicas[:2]:
            replica.cont()
        self.expect(rig, codes.HEALTHY, "healthy", 120)
        log = rig.volume.tail()
        for pattern in (r" W .*replica %s: member lost: silent" % re.escape(rig.replicas[0].address),
                        r" W .*going to mode local: ", r" W .*: mode local: ", r" I .*healing: "):
            self.assertRegex(log, pattern)
        self.assertNotRegex(log, r"replica [0-9]+ ")

        mount.stop()
        self.assertEqual(self.code(rig, rig.backing), codes.HUNG)
        self.assertEqual(self.code(rig, rig.volume.uuid()), codes.HUNG)
        mount.cont()
        mount.proc.kill()  # its dead mount point stays
        self.assertEqual(self.code(rig, rig.volume.uuid()), codes.NEEDS_RECOVERY)
        self.expect(rig, codes.NEEDS_RECOVERY, "needs-recovery")
        rig.mount(mode="replicated").umount()
        self.expect(rig, codes.NOT_MOUNTED, "not-mounted")

    def test_reason_of_a_refused_replica_is_logged_once(self):
        rig = self.rig(m=2, acks=1)
        rig.replicas[1].kill()
        rig.mount(mode="replicated")
        why = re.compile(" W .*replica %s: of no use now: " % re.escape(rig.replicas[1].address))
        wait_until(lambda: why.search(rig.volume.tail()), 30, rig.volume.tail)
        # The mount retries meanwhile.
        status = rig.mount_.wait_status(lambda s: s["mode_for_ms"] > 5000, 60, "five seconds")
        log = rig.mount_.proc.tail(200)
        self.assertEqual(len(why.findall(log)), 1, log)
        self.assertNotEqual(status["replicas"][1]["problem"], "")


class GivenUp(Case):

    def test_loss_of_a_forced_recovery_is_shown_until_acknowledged(self):
        rig = self.rig(m=2, acks=1)
        mount = rig.mount(mode="replicated")
        mount.wait_whole()
        with open(rig.file("f"), "wb", buffering=0) as f:
            f.write(b"x" * 4096)
            os.fsync(f.fileno())
        rig.power_cut()
        for replica in rig.replicas:
            replica.reboot()
        self.assertEqual(rig.volume.recover().returncode, codes.RECOVER_NOT_ENOUGH)
        forced = rig.volume.recover("--force")
        self.assertEqual(forced.returncode, 0, forced.stdout + forced.stderr)
        self.assertIn("GIVEN UP", forced.stdout)
        self.assertIn("salius acknowledge " + rig.backing, forced.stdout)
        shown = rig.volume.run("salius", "status", rig.backing)
        self.assertEqual(shown.returncode, codes.GIVEN_UP, shown.stdout)
        mount = rig.mount(mode="replicated")
        mount.wait_whole()
        rig.volume.wait_log("a forced recovery of epoch")
        self.assertRegex(rig.volume.tail(), " W .*a forced recovery of epoch .* gave up: ")
        shown = rig.volume.run("salius", "status", rig.path, "--json")
        self.assertEqual(shown.returncode, codes.GIVEN_UP, shown.stdout)
        self.assertTrue(json.loads(shown.stdout)["recoveries"][-1]["forced"])
        done = rig.volume.run("salius", "acknowledge", rig.path)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertEqual(rig.volume.run("salius", "status", rig.path).returncode, codes.HEALTHY)
        mount.umount()
        self.assertEqual(rig.volume.run("salius", "status", rig.backing).returncode, codes.NOT_MOUNTED)


class Terminal(Case):

    def mount(self, rig, log):
        words = [*in_netns(rig.net.primary), binary("salius-mount"), rig.backing, rig.path, "-o", "insecure,log=" + log]
        return subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=120)

    def test_healthy_mount_prints_nothing_and_logs_its_recovery(self):
        rig = self.rig(m=2, acks=1, init_options=(*self.options(), "--allow-same-host"))
        log = rig.volume.log + ".daemon"
        rig.mount(mode="replicated").umount()
        done = self.mount(rig, log)
        self.assertEqual((done.returncode, done.stdout), (0, ""))
        daemon = DaemonMount._peer()
        with open(rig.file("f"), "w") as f:
            f.write("x")
        os.kill(daemon, 9)
        wait_until(lambda: not os.path.exists("/proc/%d" % daemon) or os.waitpid(daemon, os.WNOHANG)[0], 30, "it lives")
        sh("umount", "-l", rig.path)
        done = self.mount(rig, log)
        self.addCleanup(sh, "umount", rig.path)
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertEqual(len(done.stdout.splitlines()), 1, done.stdout)
        self.assertIn("recovered " + rig.backing, done.stdout)
        with open(log) as f:
            text = f.read()
        self.assertIn("was not unmounted cleanly: recovering", text)
        self.assertIn("recovered to record", text)

    def test_replicas_of_one_host_are_warned_of_at_the_mount_and_in_the_status(self):
        rig = self.rig(m=2, acks=1, init_options=self.options())  # namespaces of one host
        done = self.mount(rig, rig.volume.log)
        self.addCleanup(sh, "umount", rig.path)
        # The mount is there when one of them is a member.
        self.assertRegex(done.stdout, "(is|are) on this host, the primary itself")
        wait_until(lambda: "WARNING:" in rig.volume.run("salius", "status", rig.path).stdout, 30, "no warning")
        doctor = rig.volume.run("salius", "doctor", rig.backing).stdout
        self.assertIn("WARN  hosts", doctor)

    @staticmethod
    def options():
        return ("--log-max", "16MiB", "--delta", "2s")


class Versions(Case):

    def test_each_program_prints_its_version(self):
        for program in ("salius", "salius-mount", "salius-recover", "salius-replica"):
            for flag in ("--version", "-V"):
                done = sh(binary(program), flag, check=False)
                self.assertEqual(done.returncode, 0, program + done.stderr)
                self.assertRegex(done.stdout, r"\A%s [0-9.]+\n\Z" % program)
