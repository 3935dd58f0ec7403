"""A volume on a backing directory: init, mount, status, recovery, all through the real programs."""
import errno
import json
import os
import pwd
import re
import shutil
import signal
import socket
import struct

from harness import machine_state
from harness.image import mounts, umount
from harness.proc import Proc, tail
from harness.run import HarnessError, binary, current, program_for_users, sh, wait_until

# Exit codes of salius-recover (docs/recovery.md).
RECOVER_OK = 0
RECOVER_NOT_ENOUGH = 4
# The steps that --crash-at takes. A recovery does not come to all of them.
RECOVERY_STEPS = (
    "locked", "run-noted", "fenced", "collected", "merged", "pin-appended", "pinned", "replay-rebuilt", "replay-data",
    "replay-displaced", "replay-hidden-link", "replay-attached", "replay-removed", "synced", "committed", "dropped")
# Exit codes of salius status (docs/status-json.md): a mounted volume was shown, with its health.
HEALTHY, FAILED, HUNG, NO_PERMISSION, DEGRADED, LOCAL, NEEDS_RECOVERY, NOT_MOUNTED, BUSY, GIVEN_UP = (
    0, 1, 7, 9, 10, 11, 12, 13, 14, 15)


# For a program on a standby host: it does not see which volumes are in use on this host.
ON_ANOTHER_HOST = ("unshare", "--mount", "sh", "-c", 'mount -t tmpfs run /run/salius && exec "$@"', "sh")


def in_netns(namespace):
    return ["nsenter", "--net=/run/netns/" + namespace] if namespace else []


def as_user(name):
    return ["setpriv", "--reuid", name, "--regid", name, "--init-groups"]


class Volume:
    """A volume in the directory `backing`; programs run in network namespace `netns`, and as `user`
    if one is given, the owner of a direct volume. `keys`: the primary's file of `salius keys`, for
    the programs that call replicas; None: it has none."""

    _serial = 0

    def __init__(self, backing, netns=None, user=None, keys=None):
        Volume._serial += 1
        self.backing, self.netns, self.keys = backing, netns, keys
        name = "%s-v%d" % (current().id, Volume._serial)
        self.mountpoint = os.path.join(current().dir, name)
        self.log = os.path.join(current().dir, name + ".log")
        os.mkdir(self.mountpoint)
        self._uuid = None
        self.as_user = as_user(user) if user else []
        if user:
            own = "/run/user/%d" % pwd.getpwnam(user).pw_uid  # where its claims are
            os.makedirs(own, 0o700, exist_ok=True)
            shutil.chown(own, user)

    def uuid(self):
        """Returns the volume's UUID. It is remembered, so that it is known even when the disk is
        lost."""
        if self._uuid is None:
            with open(self.salius_file("volume.toml")) as f:
                self._uuid = re.search(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", f.read()).group()
        return self._uuid

    # ---- one-shot programs

    def run(self, program, *args, check=False, timeout=120, env=None, wrapper=()):
        return sh(*in_netns(self.netns), *wrapper, *self.as_user, self.program(program), *args, check=check,
                  timeout=timeout, env=env)

    def program(self, name):
        return program_for_users(name) if self.as_user else binary(name)

    def run_words(self, *options):
        """Returns the words before a command's own under which it uses this direct volume."""
        return self.join_words(*self.trust_words(), *options)

    def trust_words(self):
        """Returns the option with which salius-run may use replicas on other hosts."""
        return self.key_words() or ["--insecure"]

    def key_words(self):
        """Returns the option with which a program uses the keys."""
        return ["--keys", self.keys] if self.keys else []

    def join_words(self, *options):
        """Returns such words for a command that joins another salius-run. It is refused when that
        one has ended, since it may not use replicas on other hosts itself."""
        return [self.program("salius-run"), *options, "--direct", self.backing, "--"]

    def init(self, replicas, acks, *options, check=True):
        """Runs salius init; `replicas` are addresses. SALIUS_NAMES in the environment sets the
        volume's `names` where the test does not."""
        names = os.environ.get("SALIUS_NAMES")
        if names and "--names" not in options and "--direct" not in options:
            options += ("--names", names)
        return self.run("salius", "init", self.backing, "--replicas", ",".join(replicas), "--acks", str(acks),
                        *options, check=check)

    def recover(self, *options, timeout=120, wrapper=()):
        """Runs salius-recover on the unmounted volume; returns CompletedProcess."""
        return self.run("salius-recover", self.backing, *self.key_words(), *options, timeout=timeout, wrapper=wrapper)

    def recover_json(self, *options):
        done = self.recover("--json", *options)
        try:
            return done.returncode, json.loads(done.stdout)
        except ValueError:
            raise HarnessError("salius-recover --json: exit %d\n%s%s" % (
                done.returncode, done.stdout, done.stderr)) from None

    def salius_file(self, name):
        return os.path.join(self.backing, ".salius", name)

    def tail(self):
        return tail(self.log)

    def wait_log(self, text, timeout_s=20):
        """Waits until the end of the log has this text: programs write it in the background."""
        wait_until(lambda: text in self.tail(), timeout_s, lambda: "no %r in the log:\n%s" % (text, self.tail()))


class Mount:
    """salius-mount of `volume`, in the foreground as a child of the harness. The constructor
    returns when the mount answers, as the program's own parent process does."""

    def __init__(self, volume, options="recover=auto", env=None, wrapper=(), insecure=True):
        self.volume, self.path = volume, volume.mountpoint
        if os.path.exists(volume.salius_file("volume.toml")):
            volume.uuid()
        words = ["insecure"] * insecure + ["keys=%s" % volume.keys] * bool(volume.keys) + [options] * bool(options)
        with machine_state.using():  # a connection takes its timeout from a sysctl
            self.proc = Proc(list(wrapper) + [binary("salius-mount"), volume.backing, volume.mountpoint, "-f"] +
                             ["-o", ",".join(words)] * bool(words),
                             volume.log, netns=volume.netns, env=env)
            try:
                wait_until(self._ready, 60, lambda: "the mount does not answer; log:\n" + volume.tail())
            except BaseException:
                self.close()
                raise

    def _ready(self):
        if not self.proc.alive():
            raise MountRefused(self.proc.popen.returncode, self.volume.tail())
        if not mounts().get(self.path, ("",))[0].startswith("fuse"):
            return False
        try:
            os.statvfs(self.path)
        except OSError as error:
            if error.errno not in (errno.ENOTCONN, errno.ECONNABORTED):
                raise
            return False  # it died just now: the next look reports how
        # Otherwise the table named a dead mount, which was just removed.
        return os.path.ismount(self.path)

    @property
    def pid(self):
        return self.proc.pid

    # ---- status

    def status(self):
        """Returns the mounted volume's status. Asks by UUID, so that neither a mount point that
        hangs nor a lost disk can delay the answer."""
        done = self.volume.run("salius", "status", self.volume.uuid(), "--json", timeout=20)
        if done.returncode not in (HEALTHY, FAILED, DEGRADED, LOCAL, BUSY, GIVEN_UP):
            raise HarnessError("salius status: exit %d\n%s%s" % (done.returncode, done.stdout, done.stderr))
        return json.loads(done.stdout)

    def mode(self):
        return self.status()["mode"]

    def wait_mode(self, mode, timeout_s=30):
        """Waits until the volume is really in `mode`; returns the status."""
        return self.wait_status(lambda s: s["mode"] == mode, timeout_s, "mode " + mode)

    def wait_whole(self, timeout_s=30, why=""):
        """Waits until it is in mode replicated and every replica is a member; returns the
        status."""
        return self.wait_status(lambda s: s["mode"] == "replicated" and all(r["member"] for r in s["replicas"]), timeout_s,
                                why + "mode replicated, every replica a member")

    def wait_status(self, condition, timeout_s, what):
        last = {}

        def look():
            last.clear()
            last.update(self.status())
            return dict(last) if condition(last) else None
        return wait_until(look, timeout_s, lambda: "%s; status: %s\nlog:\n%s" % (
            what, json.dumps(last), self.volume.tail()), 0.02)

    # ---- ends

    def kill(self):
        """Kills the daemon only, then removes the dead mount point."""
        self.proc.kill()
        self._detach()

    def _detach(self):
        while self.path in mounts():
            sh("umount", "-l", self.path)

    def umount(self, timeout_s=60):
        """Unmounts with umount(8) and waits for the daemon's end; its exit status must be 0."""
        umount(self.path, timeout_s)
        code = self.proc.wait(timeout_s)
        if code != 0:
            raise HarnessError("salius-mount ended with %d after umount; log:\n%s" % (code, self.volume.tail()))

    def stop(self):
        self.proc.stop()

    def cont(self):
        self.proc.cont()

    def close(self):
        """Removes the mount, whatever state it is in."""
        self.proc.kill()
        self._detach()


class MountRefused(HarnessError):
    """salius-mount ended instead of mounting."""

    def __init__(self, code, log):
        super().__init__("salius-mount ended with %d; log:\n%s" % (code, log))
        self.code, self.log = code, log


class DaemonMount:
    """A mount made by a program that returns (salius-mount without -f, mount -t salius). The daemon
    is found as the peer of the volume's control socket."""

    def __init__(self, volume, argv):
        self.volume, self.path = volume, volume.mountpoint
        with machine_state.using():
            sh(*in_netns(volume.netns), *argv)
        if not mounts().get(self.path, ("",))[0].startswith("fuse"):
            raise HarnessError("%s returned 0 but there is no mount" % argv)
        self.pid = self._peer()

    @staticmethod
    def _peer():
        socks = [os.path.join("/run/salius", n) for n in os.listdir("/run/salius") if n.endswith(".sock")]
        for path in socks:
            with socket.socket(socket.AF_UNIX) as s:
                try:
                    s.connect(path)
                except OSError:
                    continue
                return struct.unpack("3i", s.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[0]
        raise HarnessError("no control socket answers in /run/salius: %s" % socks)

    status, mode = Mount.status, Mount.mode
    wait_mode, wait_status = Mount.wait_mode, Mount.wait_status

    def gone(self):
        """Returns whether the daemon has ended (the harness, PID 1 of its namespace, adopted
        it)."""
        try:
            return os.waitpid(self.pid, os.WNOHANG)[0] == self.pid
        except ChildProcessError:
            return not os.path.exists("/proc/%d" % self.pid)

    def umount(self, timeout_s=60):
        umount(self.path, timeout_s)
        wait_until(self.gone, timeout_s, "the daemon lives on after umount")

    def close(self):
        try:
            os.kill(self.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        wait_until(self.gone, 30, "the daemon does not die")
        while self.path in mounts():
            sh("umount", "-l", self.path)
