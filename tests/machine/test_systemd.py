"""The systemd units under a real systemd, set up as docs/install.md says: a replica and a volume with
keys. The units' sandboxes are in force, which no other test has."""
import re

from harness.case import Case
from harness.disk import Disk
from harness.guest import Guest
from harness.installed import SCRIPT, link_built
from harness.machines import DISK, mount_disk
from harness.net import Net
from harness.run import HarnessError, scratch, wait_until

IP = "10.77.0.100"
BACKING, VOLUME = DISK + "/data", "/mnt/data"
PATH = "PATH=/usr/local/sbin:/usr/sbin:/usr/bin:/sbin:/bin"
SHOW_MODE = ("sh", "-c", "salius status --json %s | sed -n 's/.*\"mode\": *\"\\([a-z]*\\)\".*/\\1/p' | head -1" % VOLUME)
BOUND_S = 300  # an emulated CPU on a busy host

# A copy of the guest's root, in memory, that can be written.
_ROOT = """
set -e
ln -s /proc/self/fd /dev/fd
ln -s fd/0 /dev/stdin
mkdir /run/top
mount -t tmpfs -o size=90% tmpfs /run/top
cd /run/top
mkdir upper work root
mount -t overlay -o lowerdir=/,upperdir=upper,workdir=work overlay root
for f in proc sys dev; do mount --rbind /$f root/$f; done
mount -t tmpfs -o mode=755 tmpfs root/run
mkdir -p root$1 root/mnt/data root/old
mount --rbind $1 root$1
# What this machine does not need, and an emulated CPU would take a minute for.
for unit in systemd-tmpfiles-setup systemd-tmpfiles-setup-dev systemd-journal-flush systemd-udevd systemd-udev-trigger \
    systemd-update-utmp systemd-hwdb-update; do
  ln -sf /dev/null root/etc/systemd/system/$unit.service
done
ln -sf /dev/null root/etc/systemd/system/timers.target
"""
# The guest's first process is the agent, so systemd is the first process of a namespace.
_SYSTEMD = """
set -e
mount --make-rprivate /
cd /run/top/root
pivot_root . old
umount -l /old
mount -t proc proc /proc
mount -t cgroup2 cgroup2 /sys/fs/cgroup
exec env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin container=salius \\
  /lib/systemd/systemd --unit=basic.target --log-target=console --show-status=no
"""


class Units(Case):

    def setUp(self):
        super().setUp()
        built = scratch("built")
        link_built(built)
        self.net = self.own(Net(0))
        self.guest = self.own(Guest(self.net, IP, self.own(Disk()), 640, cpus=2)).boot()
        self.guest.load("overlay", "fuse")
        mount_disk(self.guest)
        self.guest.run("sh", "-c", _ROOT, "sh", DISK)
        self.guest.run("chroot", "/run/top/root", SCRIPT, "--from", built, timeout=BOUND_S)
        self.systemd = None
        self.guest.start("unshare", "--pid", "--fork", "--mount", "--propagation", "unchanged", "sh", "-c", _SYSTEMD,
                         log="/dev/ttyS0")
        self.await_output("active", "systemctl", "is-active", "basic.target")

    def inside(self, *argv, check=True):
        """Runs a command where systemd runs. Returns its output."""
        if self.systemd is None:
            code, out, _ = self.guest.run("pgrep", "-x", "systemd", check=False)
            if code != 0:
                return ""
            self.systemd = out.split()[0]
        code, out, errors = self.guest.run("nsenter", "-t", self.systemd, "-m", "-p", "-r", "-w", "env", PATH, *argv,
                                           check=False, timeout=BOUND_S)
        if check and code != 0:
            raise HarnessError("%s: exit %d\n%s%s\n%s" % (" ".join(argv), code, out, errors, self.journal()))
        return out

    def journal(self):
        return self.inside("journalctl", "--no-pager", "-n", "60", "-o", "cat", check=False)

    def await_output(self, wanted, *argv):
        def seen():
            return self.inside(*argv, check=False).strip()
        wait_until(lambda: seen() == wanted, BOUND_S, lambda: "%s: %s, not %s\n%s\n%s" % (
            " ".join(argv), seen(), wanted, self.journal(), self.guest.console_tail(60)), 1)

    def property_of(self, unit, name):
        return self.inside("systemctl", "show", "-P", name, unit).strip()

    def test_replica_and_volume_run_are_killed_and_stop(self):
        self.inside("sh", "-ec", """
            salius keys init /root/ca client/web1 replica/a=%(ip)s
            install -m 0644 /root/ca/ca.pem /etc/salius
            install -m 0600 /root/ca/client-web1.pem /root/ca/replica-a.pem /etc/salius
            chown salius /etc/salius/replica-a.pem
            sed -e 's|^listen = .*|listen = "%(ip)s:7400"|' -e 's|^keys = .*|keys = "/etc/salius/replica-a.pem"|' \\
                -e 's|^memory = .*|memory = "32MiB"|' /usr/local/share/doc/salius/replica.toml.sample \\
                > /etc/salius/replica.toml
            systemctl enable --now salius-replica
        """ % {"ip": IP})
        self.inside("sh", "-ec", """
            mkdir -p %(backing)s %(volume)s
            salius init %(backing)s --replicas %(ip)s:7400 --acks 1 --keys /etc/salius/client-web1.pem --log-max 8MiB \\
                --ballast 8MiB --delta 20s
            printf '%%s\\n' BACKING=%(backing)s MOUNTPOINT=%(volume)s OPTIONS=rw > /etc/salius/data.env
            systemctl enable --now salius-mount@data
        """ % {"ip": IP, "backing": BACKING, "volume": VOLUME})
        self.await_output("active", "systemctl", "is-active", "salius-mount@data")
        self.assertEqual(self.status_of(self.main("salius-replica"), "CapBnd"), "0000000000000000")
        self.assertNotEqual(self.status_of(self.main("salius-replica"), "Uid").split()[0], "0")
        self.await_output("replicated", *SHOW_MODE)
        self.write("before")

        # The daemon dies; its unit recovers the volume and mounts it again.
        daemon = self.main("salius-mount@data")
        self.inside("systemctl", "kill", "-s", "KILL", "salius-mount@data")
        self.await_output("active", "sh", "-c", "[ $(systemctl show -P MainPID salius-mount@data) != %s ] && "
                          "systemctl is-active salius-mount@data" % daemon)
        self.assertEqual(self.read("before"), "before")

        # The replica's unit is restarted: the memory of the log stays.
        incarnation = self.incarnation()
        self.inside("systemctl", "restart", "salius-replica")
        self.await_output("replicated", *SHOW_MODE)
        self.assertEqual(self.incarnation(), incarnation)
        self.write("after")

        self.inside("systemctl", "stop", "salius-mount@data")
        self.assertEqual(self.property_of("salius-mount@data", "Result"), "success", self.journal())
        self.assertNotIn(VOLUME, self.inside("cat", "/proc/mounts"))
        # All is on the disk.
        self.assertIn("clean: nothing to recover", self.inside("salius-recover", BACKING))
        self.inside("systemctl", "start", "salius-mount@data")
        self.assertEqual([self.read("before"), self.read("after")], ["before", "after"])
        self.inside("systemctl", "stop", "salius-mount@data", "salius-replica")
        self.assertEqual(self.property_of("salius-replica", "Result"), "success", self.journal())

    def main(self, unit):
        return self.property_of(unit, "MainPID")

    def status_of(self, pid, field):
        return self.inside("sed", "-n", "s/^%s:\t//p" % field, "/proc/%s/status" % pid).strip()

    def write(self, text):
        self.inside("sh", "-ec", "printf %%s %s | dd status=none oflag=sync of=%s/%s" % (text, VOLUME, text))

    def read(self, name):
        return self.inside("cat", "%s/%s" % (VOLUME, name))

    def incarnation(self):
        def attempt():
            text = self.inside("salius", "status", "--replica", "%s:7400" % IP, "--timeout", "60s", "--keys",
                               "/etc/salius/client-web1.pem", check=False)
            return re.search("incarnation: *([0-9a-f]+)", text)
        return wait_until(attempt, BOUND_S, lambda: "no status of the replica\n" + self.journal(), 1)[1]
