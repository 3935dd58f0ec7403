"""Disk full and quota: refused before the acknowledgement, never after (I8)."""
import errno
import json
import os
import subprocess
import sys
import time

from harness.case import Case
from harness.image import Image
from harness.rig import PATIENT
from harness.run import HarnessError

# Writes 64 KiB pieces with O_SYNC until one fails; prints the number of acknowledged bytes and the
# errno.
_FILL = """
import errno, os, sys
fd = os.open(sys.argv[1], os.O_CREAT | os.O_WRONLY | os.O_SYNC, 0o600)
done = 0
try:
    while done < int(sys.argv[2]):
        done += os.pwrite(fd, bytes([done // 65536 % 251 + 1]) * 65536, done)
    print(done, "none")
except OSError as error:
    print(done, errno.errorcode[error.errno])
"""


# Threads that need room in different ways, until each was refused 30 times or the time is over.
# Prints the numbers of calls done and refused, and the errnos.
_ALL_KINDS = r"""
import errno, json, os, random, sys, threading, time
os.chdir(sys.argv[1])
end, errors, counts = time.monotonic() + float(sys.argv[2]), {}, {}


def opened(name, flags=0):
    return os.open(name, os.O_CREAT | os.O_RDWR | flags, 0o600)


def small_file(name, size, flags):
    fd = opened(name, flags)
    try:
        os.write(fd, b"x" * size)
    finally:
        os.close(fd)


def directory(n):
    os.mkdir("d%d" % n)
    os.symlink("x" * 200, "d%d/link" % n)


def cut(rng, n):
    os.pwrite(short, b"x" * 100000, rng.randrange(100) * 100000)
    if n % 7 == 0:
        os.ftruncate(short, rng.randrange(1000000))
    if n % 31 == 0:
        os.fsync(short)


sparse, grown, short, bulk = opened("sparse", os.O_SYNC), opened("grown", os.O_SYNC), opened("short"), opened("bulk")
KINDS = {
    "file": lambda rng, n: small_file("file%d" % n, rng.randrange(1, 9000), 0),
    "synced": lambda rng, n: small_file("synced%d" % n, rng.randrange(1, 9000), os.O_SYNC),
    "directory": lambda rng, n: directory(n),
    "sparse": lambda rng, n: os.pwrite(sparse, b"x" * 10, rng.randrange(1 << 22) * 8192),
    "bulk": lambda rng, n: os.pwrite(bulk, b"x" * 300000, rng.randrange(1 << 28)),
    "grown": lambda rng, n: os.write(grown, b"x" * 4096),
    "cut": cut,
    "xattr": lambda rng, n: os.setxattr("grown", "user.a%d" % (n % 3), rng.randbytes(rng.randrange(1, 1000))),
}


def run(kind):
    rng, done, refused = random.Random(kind), 0, 0
    while time.monotonic() < end and refused < 30:
        try:
            KINDS[kind](rng, done + refused)
            done += 1
        except OSError as error:
            refused += 1
            errors[errno.errorcode[error.errno]] = kind
    counts[kind] = done, refused


threads = [threading.Thread(target=run, args=(kind,)) for kind in KINDS]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(json.dumps([counts, errors]))
"""


def fill(path, limit, uid=None):
    argv = ["setpriv", "--reuid", str(uid), "--clear-groups"] if uid else []
    out = subprocess.run(argv + [sys.executable, "-c", _FILL, path, str(limit)], stdout=subprocess.PIPE, text=True,
                         timeout=120, check=True).stdout.split()
    return int(out[0]), out[1]


class Space(Case):

    def acknowledged_is_there(self, path, size):
        with open(path, "rb") as f:
            data = f.read()
        self.assertGreaterEqual(len(data), size, "acknowledged bytes are missing")
        for at in range(0, size, 65536):
            self.assertEqual(data[at:at + 65536], bytes([at // 65536 % 251 + 1]) * 65536, "at %d" % at)

    def test_disk_full_is_enospc_before_the_acknowledgement_and_what_was_acknowledged_survives(self):
        rig = self.rig(m=2, acks=1, size_mb=300, init_options=PATIENT)
        rig.mount(mode="replicated")
        size, why = fill(rig.file("big"), 400 << 20)
        self.assertEqual(why, "ENOSPC")
        self.assertGreater(size, 20 << 20)
        status = rig.mount_.status()
        self.assertEqual((status["mode"], status["failure"]), ("replicated", ""), status)
        # The volume is full, not broken: a removal makes room.
        os.unlink(rig.file("big"))
        size, why = fill(rig.file("again"), 8 << 20)
        self.assertEqual((size, why), (8 << 20, "none"))
        rig.power_cut()
        done = rig.volume.recover()
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.acknowledged_is_there(rig.backing_file("again"), size)
        self.assertFalse(os.path.exists(rig.backing_file("big")))

    def full_of_all_kinds(self, fs):
        """Programs get ENOSPC, and the volume does not fail. It works again when there is room."""
        ext4 = fs == "ext4"
        rig = self.rig(m=2, acks=1, fs=fs, size_mb=160 if ext4 else 320, mkfs_options=("-m", "0") if ext4 else (),
                       init_options=(*PATIENT, "--stable-log", "21MiB", "--ballast", "1MiB"))
        rig.mount(mode="replicated")
        out = subprocess.run([sys.executable, "-c", _ALL_KINDS, rig.path, "100"], stdout=subprocess.PIPE, text=True,
                             timeout=300, check=True).stdout
        counts, errors = json.loads(out)
        self.assertEqual(list(errors), ["ENOSPC"], (errors, rig.volume.tail()))
        rig.sync_dir()
        status = rig.mount_.status()
        self.assertEqual((status["mode"], status["failure"]), ("replicated", ""), status)
        for name in ("sparse", "bulk"):
            os.unlink(rig.file(name))
        size, why = fill(rig.file("again"), 4 << 20)
        self.assertEqual((size, why), (4 << 20, "none"))
        rig.power_cut()
        done = rig.volume.recover()
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.acknowledged_is_there(rig.backing_file("again"), size)
        self.report("calls done and refused: %s", counts)

    def test_ext4_full_of_all_kinds_gives_enospc_and_works_again(self):
        self.full_of_all_kinds("ext4")

    def test_xfs_full_of_all_kinds_gives_enospc_and_works_again(self):
        self.full_of_all_kinds("xfs")

    def full_by_another(self, fs, allocate):
        """Fills a disk bit by bit while a file grows. `allocate(rig)` returns a function that takes
        a number of bytes. The file's writer gets the error, and every acknowledged byte is there
        after a power cut."""
        rig = self.rig(m=2, acks=1, fs=fs, size_mb=400, init_options=PATIENT,
                       mkfs_options=["-m", "0"] if fs == "ext4" else [])
        rig.mount(mode="replicated")
        fd = os.open(rig.file("growing"), os.O_CREAT | os.O_WRONLY | os.O_SYNC, 0o600)
        self.addCleanup(os.close, fd)
        take, size, why = allocate(rig), 0, None
        while why is None:
            take(8 << 20)
            end = time.monotonic() + 0.15  # longer than a look of the daemon stays valid
            while time.monotonic() < end:
                os.stat(rig.file("growing"))
            try:
                size += os.pwrite(fd, bytes([size // 65536 % 251 + 1]) * 65536, size)
            except OSError as error:
                why = error.errno
        self.assertEqual(why, errno.ENOSPC, rig.volume.tail())
        status = rig.mount_.status()
        self.assertEqual((status["mode"], status["failure"]), ("replicated", ""), status)
        rig.power_cut()
        done = rig.volume.recover()
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.acknowledged_is_there(rig.backing_file("growing"), size)

    def by_fallocate(self, path):
        """Returns a function that takes space for a file there; less than requested at the end."""
        end = [0]

        def take(step):
            fd = os.open(path, os.O_CREAT | os.O_WRONLY, 0o600)
            try:
                while step >= 4096:
                    try:
                        os.posix_fallocate(fd, end[0], step)
                        end[0] += step
                        return
                    except OSError as error:
                        self.assertEqual(error.errno, errno.ENOSPC)
                        step //= 2
            finally:
                os.close(fd)
        return take

    def test_ext4_that_another_program_fills_is_enospc_before_the_acknowledgement(self):
        self.full_by_another("ext4", lambda rig: self.by_fallocate(os.path.join(rig.image.path, "another")))

    def test_xfs_that_another_program_fills_is_enospc_before_the_acknowledgement(self):
        self.full_by_another("xfs", lambda rig: self.by_fallocate(os.path.join(rig.image.path, "another")))

    def test_xfs_that_fallocate_in_the_volume_fills_is_enospc_before_the_acknowledgement(self):
        self.full_by_another("xfs", lambda rig: self.by_fallocate(rig.file("another")))

    def test_power_cut_on_a_full_disk_recovers_because_space_was_kept_in_reserve(self):  # R63
        rig = self.rig(m=2, acks=1, size_mb=300)
        rig.mount(mode="replicated")
        size, why = fill(rig.file("big"), 400 << 20)
        self.assertEqual(why, "ENOSPC")
        rig.power_cut()
        done = rig.volume.recover()
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.acknowledged_is_there(rig.backing_file("big"), size)

    def test_power_cut_with_every_inode_taken_recovers(self):  # R63
        """Recovery's own notes need one inode."""
        rig = self.rig(m=2, acks=1, mkfs_options=("-N", "64"))
        rig.mount(mode="replicated")
        size, why = fill(rig.file("f"), 1 << 20)
        self.assertEqual(why, "none")
        with self.assertRaises(OSError) as refused:
            for i in range(1000):
                os.close(os.open(rig.file("i%d" % i), os.O_CREAT | os.O_WRONLY, 0o600))
        self.assertEqual(refused.exception.errno, errno.ENOSPC)
        rig.sync_disk()  # the disk has all of them
        rig.power_cut()
        done = rig.volume.recover()
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.acknowledged_is_there(rig.backing_file("f"), size)

    def test_quota_of_the_owner_is_edquot_before_the_acknowledgement(self):
        try:
            image = self.own(Image("quota", "ext4", 400, ("-O", "quota"), "usrquota"))
        except HarnessError as error:
            self.skipTest("this kernel has no ext4 quotas (CONFIG_QFMT_V2): %s" % str(error).splitlines()[-1])
        rig = self.rig(m=2, acks=1, image=image, init_options=PATIENT)
        subprocess.run(["setquota", "-u", "65534", "0", "4096", "0", "0", image.path], check=True)
        rig.mount(mode="replicated")
        os.mkdir(rig.file("theirs"))
        os.chown(rig.file("theirs"), 65534, 65534)
        size, why = fill(rig.file("theirs/f"), 16 << 20, uid=65534)
        self.assertEqual(why, "EDQUOT")
        self.assertEqual(rig.mount_.mode(), "replicated")
        rig.power_cut()
        done = rig.volume.recover()
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.acknowledged_is_there(rig.backing_file("theirs/f"), size)

    def test_backing_disk_that_fails_turns_the_volume_read_only_and_sync_calls_fail(self):
        """I8: the file system is shut down under a live mount. Data acknowledged before is
        recovered."""
        rig = self.rig(m=2, acks=1)
        mount = rig.mount(mode="replicated")
        size, _ = fill(rig.file("before"), 1 << 20)
        fd = os.open(rig.file("before"), os.O_WRONLY | os.O_SYNC)
        rig.image.shutdown()
        size_after, why = fill_more(fd, size)
        self.assertIn(why, ("EIO", "EROFS", "ENOTCONN"))
        status = mount.wait_mode("failed")
        self.assertTrue(status["failure"], status)
        # The status by mount point and by directory works too, although neither can be examined any
        # more.
        for place in (rig.mount_.path, rig.volume.backing):
            done = rig.volume.run("salius", "status", place)
            self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
            self.assertIn("failed", done.stdout)
        rig.power_cut()
        done = rig.volume.recover()
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.acknowledged_is_there(rig.backing_file("before"), size + size_after)


def fill_more(fd, start):
    """Fills an open file as fill() does, from `start` on and without end; closes it. Returns the
    bytes acknowledged beyond `start`, and the errno's name."""
    done = 0
    try:
        while done < 256 << 20:
            at = start + done
            done += os.pwrite(fd, bytes([at // 65536 % 251 + 1]) * 65536, at)
        return done, "none"
    except OSError as error:
        return done, errno.errorcode[error.errno]
    finally:
        try:
            os.close(fd)
        except OSError:
            pass  # a failed volume may refuse the close as well
