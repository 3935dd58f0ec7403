"""A direct volume in use: salius-run with a command that waits, which programs join."""
from harness.proc import Proc
from harness.run import HarnessError, wait_until
from harness.volume import BUSY, DEGRADED, GIVEN_UP, HEALTHY, LOCAL, Mount

IN_USE = (HEALTHY, DEGRADED, LOCAL, BUSY, GIVEN_UP)


class DirectRun:
    """The direct counterpart of a Mount. self.proc is the coordinator, which holds the volume until
    umount(). self.wrapper are the words before a program's own that make it a process of the
    volume: another salius-run, which joins. Such a program runs as the volume's user, in a Proc
    with `group`.

    The constructor returns when programs can join. `wrapper`: of the coordinator."""

    def __init__(self, volume, wrapper=()):
        self.volume, self.path = volume, volume.backing
        volume.uuid()
        self.wrapper = volume.join_words()
        self.proc = Proc([*volume.as_user, *wrapper, *volume.run_words(), "cat"], volume.log, netns=volume.netns,
                         pipe_in=True, group=True)
        try:
            wait_until(self._ready, 60, lambda: "the volume is not in use; log:\n" + volume.tail(), 0.02)
        except BaseException:
            self.close()
            raise

    def _ready(self):
        if not self.proc.alive():
            raise RunRefused(self.proc.popen.returncode, self.volume.tail())
        return self.volume.run("salius", "status", self.volume.uuid(), "--json", timeout=20).returncode in IN_USE

    status, mode = Mount.status, Mount.mode
    wait_mode, wait_whole, wait_status = Mount.wait_mode, Mount.wait_whole, Mount.wait_status

    def kill(self):
        """Kills the coordinator only. Its command has nothing to write."""
        self.proc.kill()

    def umount(self, timeout_s=60):
        """Ends the command. Returns when the volume is closed; the other programs must have
        ended."""
        self.proc.popen.stdin.close()
        code = self.proc.wait(timeout_s)
        if code != 0:
            raise HarnessError("salius-run ended with %d; log:\n%s" % (code, self.volume.tail()))

    def _detach(self):
        self.proc.popen.stdin.close()

    def close(self):
        self.proc.kill()
        self._detach()


class RunRefused(HarnessError):
    """salius-run ended instead of using the volume."""

    def __init__(self, code, log):
        super().__init__("salius-run ended with %d; log:\n%s" % (code, log))
        self.code, self.log = code, log
