"""Tests that need a kernel with more than the harness's own host may have: ext4 quotas, and NFS."""
from harness.case import Case
from harness.disk import Disk
from harness.guest import Guest
from harness.kernel import kernel
from harness.machines import BACKING, DISK, PRIMARY_IP, PYTHON, VOLUME, Machines, mount_disk
from harness.net import Net
from harness.run import binary

OWNER = 65534
QUOTA_KIB = 4096
LIMIT = 6 << 20
PIECE = 65536

# Writes pieces with O_SYNC until one fails; prints the number of acknowledged bytes and the errno.
_FILL = """
import errno, os, sys
fd = os.open(sys.argv[1], os.O_CREAT | os.O_WRONLY | os.O_SYNC, 0o600)
piece, limit, done = int(sys.argv[2]), int(sys.argv[3]), 0
try:
    while done < limit:
        done += os.pwrite(fd, bytes([done // piece % 251 + 1]) * piece, done)
    print(done, "none")
except OSError as error:
    print(done, errno.errorcode[error.errno])
"""
# Prints how many bytes from the beginning on have the content that _FILL wrote.
_VERIFY = """
import sys
piece, good = int(sys.argv[2]), 0
with open(sys.argv[1], "rb") as f:
    while True:
        data = f.read(piece)
        if not data or data != (bytes([good // piece % 251 + 1]) * piece)[:len(data)]:
            break
        good += len(data)
print(good)
"""


class Quota(Case):

    def test_quota_of_the_owner_is_edquot_before_the_acknowledgement(self):
        disk = self.own(Disk(mkfs_options=("-O", "quota")))
        machines = self.own(Machines(1, 1, disk, disk_modules=("quota_v2",), mount_options="usrquota"))
        primary = machines.primary
        primary.run("setquota", "-u", OWNER, 0, QUOTA_KIB, 0, 0, DISK)
        machines.mount(mode="replicated")
        primary.run("install", "-d", "-o", OWNER, "-g", OWNER, VOLUME + "/theirs")
        size, why = self.fill(primary, VOLUME + "/theirs/f", ("setpriv", "--reuid", OWNER, "--clear-groups"))
        self.assertEqual(why, "EDQUOT")
        self.assertGreater(size, QUOTA_KIB << 9)
        self.assertLessEqual(size, QUOTA_KIB << 10)
        # The control: another owner is not refused, so the quota refused the first; and the volume
        # is whole.
        self.assertEqual(self.fill(primary, VOLUME + "/other"), (LIMIT, "none"))
        machines.wait_mode("replicated")
        primary.power_cut(self.rng)
        machines.boot()
        code, text = machines.recover()
        self.assertEqual(code, 0, text)
        good = int(primary.run(*PYTHON, "-c", _VERIFY, BACKING + "/theirs/f", PIECE)[1])
        self.assertGreaterEqual(good, size, "acknowledged bytes are missing")
        used = primary.run("stat", "-c", "%u %b %B", BACKING + "/theirs/f")[1].split()
        self.assertEqual(int(used[0]), OWNER)
        self.assertLessEqual(int(used[1]) * int(used[2]), QUOTA_KIB << 10)
        self.report("EDQUOT after %d acknowledged bytes of a quota of %d KiB; after the cut %d are there", size,
                    QUOTA_KIB, good)

    def fill(self, guest, path, wrapper=()):
        """Returns the number of acknowledged bytes, and why the program ended."""
        size, why = guest.run(*wrapper, *PYTHON, "-c", _FILL, path, PIECE, LIMIT)[1].split()
        return int(size), why


class Nfs(Case):

    def test_a_backing_directory_on_nfs_is_refused(self):
        if not (kernel().has("nfsd") and kernel().has("nfsv4")):
            self.skipTest("the guests' kernel has no nfsd or no nfsv4")
        net = self.own(Net(0))
        guest = self.own(Guest(net, PRIMARY_IP, self.own(Disk()), memory_mb=256))
        mount_disk(guest.boot())
        mount_nfs(guest, DISK, "/run/nfs")
        self.assertEqual(guest.run("stat", "-f", "-c", "%T", "/run/nfs")[1].strip(), "nfs")
        guest.run("mkdir", DISK + "/data", DISK + "/volume", VOLUME)
        code, out, errors = guest.run(binary("salius"), "init", "/run/nfs/data", "--local", check=False)
        self.assertEqual(code, 5, out + errors)
        self.assertIn("NFS", errors)
        # A volume made on the disk itself: it works there, and is refused through NFS.
        guest.run(binary("salius"), "init", DISK + "/volume", "--local")
        code, out, errors = guest.run(binary("salius-mount"), "/run/nfs/volume", VOLUME, "-o", "log=/run/mount.log",
                                      check=False)
        self.assertNotEqual(code, 0, out + errors)
        self.assertIn("NFS", errors)
        self.assertNotEqual(guest.run("grep", "-q", VOLUME + " fuse", "/proc/mounts", check=False)[0], 0)
        guest.run(binary("salius-mount"), DISK + "/volume", VOLUME, "-o", "log=/run/mount.log")
        guest.run("umount", VOLUME)


def mount_nfs(guest, path, where):
    """Exports `path` by the kernel's NFSv4.2 server and mounts it by its client. The lines that
    exportfs, mountd and mount.nfs would pass to the kernel are written to its files directly. So no
    NFS package is needed."""
    guest.load("nfsd", "nfsv4")
    never, client, fsid = 1 << 31, "127.0.0.1", 0
    # INSECURE_PORT, NOSUBTREECHECK, FSID (fs/nfsd: uapi/linux/nfsd/export.h).
    options = 0x0002 | 0x0400 | 0x2000
    guest.run("sh", "-ec", "\n".join([
        "mount -t nfsd nfsd /proc/fs/nfsd",
        "echo -3 +4 +4.1 +4.2 > /proc/fs/nfsd/versions",
        "echo 'tcp 2049' > /proc/fs/nfsd/portlist",
        "echo 2 > /proc/fs/nfsd/threads",
        "echo 'nfsd %s %d %s' > /proc/net/rpc/auth.unix.ip/channel" % (client, never, client),
        "echo '%s %s %d %d 65534 65534 %d' > /proc/net/rpc/nfsd.export/channel" % (client, path, never, options, fsid),
        "echo '%s 1 \\\\x00000000 %d %s' > /proc/net/rpc/nfsd.fh/channel" % (client, never, path),
        "mkdir " + where,
        "mount -i -t nfs4 -o vers=4.2,addr=%s,clientaddr=%s %s:/ %s" % (client, client, client, where)]))
