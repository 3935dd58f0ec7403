"""A direct volume of an ordinary user in an unprivileged container: a user namespace and a mount
namespace that this user made, with a /dev of a few devices and no /dev/fuse."""
import os
import shlex
import shutil
import signal
import sys

from harness.case import Case
from harness.direct import WRITER, read_stats
from harness.proc import Proc
from harness.run import HarnessError, current, program_for_users, wait_until
from harness.volume import as_user, in_netns

USER = "games"

# The container's first process becomes a shell that does what comes on its standard input.
_BEGIN = """
set -e
mount -t tmpfs dev /mnt
for name in null zero urandom; do : > /mnt/$name; mount --bind /dev/$name /mnt/$name; done
mount --rbind /mnt /dev
mount -t tmpfs run /run
mount -t tmpfs tmp /tmp
test ! -e /dev/fuse
test ! -e /dev/shm
exec setpriv --inh-caps=-all --ambient-caps=-all sh
"""


class Container:
    """A container of USER. `mapping`: of unshare(1), the user's identity in it."""

    def __init__(self, netns, mapping, log):
        self.proc = Proc([*in_netns(netns), *as_user(USER), "unshare", "--user", mapping, "--keep-caps", "--mount", "sh",
                          "-c", _BEGIN],
                         log, pipe_in=True, pipe_out=True)

    def run(self, *words, background_to=None):
        """Runs a program. Returns its exit code, and its output with its errors."""
        text = shlex.join(words)
        text += " >%s &" % background_to if background_to else " 2>&1"
        self.proc.popen.stdin.write(text + "\necho; echo exit $?\n")
        lines = []
        for line in self.proc.popen.stdout:
            if line.startswith("exit "):
                return int(line.split()[1]), "\n".join(lines)
            lines.append(line.rstrip("\n"))
        raise HarnessError("the container ended: " + self.proc.tail())

    def kill(self):
        if self.proc.alive():
            os.killpg(self.proc.pid, signal.SIGKILL)
        self.proc.kill()
        self.proc.popen.stdout.close()


class Unprivileged(Case):

    def setUp(self):
        super().setUp()
        self.rig_ = self.rig(m=2, acks=2, user=USER, init_options=("--direct", "--log-max", "16MiB", "--delta", "500ms"))
        self.log = os.path.join(current().dir, "container.log")

    def container(self, mapping):
        made = Container(self.rig_.net.primary, mapping, self.log)
        self.addCleanup(made.kill)
        return made

    def succeeds(self, container, *words):
        code, text = container.run(*words)
        self.assertEqual(code, 0, text)
        return text

    def test_container_without_dev_fuse(self):
        for mapping in ("--map-current-user", "--map-root-user"):
            directory = os.path.join(self.rig_.image.path, mapping)
            os.mkdir(directory, 0o700)
            shutil.chown(directory, USER, USER)
            self.works(mapping, directory)

    def works(self, mapping, directory):
        salius, run = program_for_users("salius"), program_for_users("salius-run")
        on_volume = (run, "--insecure", "--stats", "--direct", directory, "--")
        inside = self.container(mapping)
        self.succeeds(inside, salius, "init", "--direct", "--log-max", "16MiB", "--acks", "2", "--replicas",
                      ",".join(replica.address for replica in self.rig_.replicas), directory)
        self.succeeds(inside, salius, "doctor", directory)
        text = self.succeeds(inside, *on_volume, "sh", "-c", shlex.join((salius, "status", directory)) + "; " + shlex.join(
            (sys.executable, "-c", "import os; fd = os.open(%r, os.O_CREAT | os.O_RDWR | os.O_SYNC)\n"
             "for n in range(50): os.pwrite(fd, b'%%512d' %% n, n * 512)" % os.path.join(directory, "first"))))
        self.assertRegex(text, r"mode: +replicated")
        stats = read_stats(text)
        self.assertGreater(stats.logged, 40)
        acknowledged = os.path.join(current().dir, "acknowledged" + mapping)
        with open(acknowledged, "w"):
            pass
        os.chmod(acknowledged, 0o666)
        inside.run(*on_volume, sys.executable, "-c", WRITER, os.path.join(directory, "f"), background_to=acknowledged)

        def numbers():
            with open(acknowledged) as f:
                return [int(line) for line in f.read().splitlines() if line.isdigit()]

        wait_until(lambda: len(numbers()) > 300, 60, lambda: "the writer is slow: " + inside.proc.tail())
        self.rig_.image.shutdown()
        inside.kill()
        last = numbers()[-1]
        self.rig_.image.umount()
        self.rig_.image.mount()
        after = self.container(mapping)
        self.succeeds(after, program_for_users("salius-recover"), directory)
        after.kill()
        with open(os.path.join(directory, "f"), "rb") as f:
            data = f.read()
        found = {int(data[at:at + 512] or b"0") for at in range(0, len(data), 512)}
        self.assertLessEqual(set(range(max(1, last - 62), last + 1)), found)
        self.report("%s: %d of %d syncs logged; %d writes acknowledged before the cut, all there", mapping, stats.logged,
                    stats.syncs, last)
