"""Bulk data: unsynced data goes past the log, its fsync is a real one, and replay never puts older
bytes back over it (I3)."""
import os
import struct

from harness.case import Case

BLOCK = 4096


def block(number, version):
    return struct.pack("<II", number, version) * (BLOCK // 8)


class File:
    """A file of `blocks` blocks, with the versions that each may hold after a crash: its last
    synced version, or any later one."""

    def __init__(self, path, blocks):
        self.path, self.blocks = path, blocks
        self.version = 0
        self.allowed = [{0} for _ in range(blocks)]  # 0: never written, a hole
        self.newest = [0] * blocks

    def open(self):
        self.plain = os.open(self.path, os.O_CREAT | os.O_WRONLY, 0o600)
        self.sync = os.open(self.path, os.O_WRONLY | os.O_SYNC)

    def close(self):
        for fd in (self.plain, self.sync):
            try:
                os.close(fd)
            except OSError:
                pass  # the mount is dead

    def write(self, first, count, sync=False):
        self.version += 1
        data = b"".join(block(n, self.version) for n in range(first, first + count))
        done = 0
        while done < len(data):
            done += os.pwrite(self.sync if sync else self.plain, data[done:done + (1 << 20)], first * BLOCK + done)
        for n in range(first, first + count):
            self.newest[n] = self.version
            self.allowed[n] = {self.version} if sync else self.allowed[n] | {self.version}

    def fsync(self):
        os.fsync(self.plain)
        self.allowed = [{v} for v in self.newest]

    def check(self, path):
        """Returns the blocks that hold a wrong version, as (block, found, allowed)."""
        with open(path, "rb") as f:
            data = f.read().ljust(self.blocks * BLOCK, b"\0")
        wrong = []
        for n in range(self.blocks):
            got = data[n * BLOCK:(n + 1) * BLOCK]
            number, version = struct.unpack_from("<II", got)
            whole = got == (bytes(BLOCK) if version == 0 else block(n, version))
            if not whole or version not in self.allowed[n]:
                wrong.append((n, version if whole else "torn", sorted(self.allowed[n])))
            self.allowed[n], self.newest[n] = {version}, version
        return wrong


class Bulk(Case):

    def test_bulk_writes_fsyncs_and_synchronous_overwrites_through_power_cuts(self):
        rig = self.rig(m=2, acks=1, size_mb=512)
        file = File(rig.file("f"), 6000)
        rounds = self.count(4, 30)
        for _ in range(rounds):
            rig.mount(mode="replicated")
            file.open()
            for _ in range(self.rng.randint(3, 14)):
                what = self.rng.choice(["bulk", "small", "sync", "sync", "fsync"])
                if what == "bulk":  # beyond the limit of 8 MiB
                    count = self.rng.randint(2100, 4000)
                    file.write(self.rng.randrange(file.blocks - count), count)
                elif what == "fsync":
                    file.fsync()
                else:
                    count = self.rng.randint(1, 8)
                    file.write(self.rng.randrange(file.blocks - count), count, sync=what == "sync")
            if self.rng.random() < 0.4:
                rig.disk_ahead(self.rng)
            rig.power_cut(also=file.close)
            done = rig.volume.recover()
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            self.assertEqual(file.check(rig.backing_file("f"))[:5], [])
        self.report("%d power cuts, %d writes", rounds, file.version)

    def test_fsync_of_a_bulk_file_stands_when_every_replica_dies_with_the_primary(self):
        """The fsync was a real one: its data depends on no replica; only the note about it does."""
        rig = self.rig(m=1, acks=1, size_mb=512)
        mount = rig.mount(mode="replicated")
        file = File(rig.file("f"), 6000)
        file.open()
        file.write(0, 6000)
        file.fsync()
        rig.replicas[0].lose_memory()
        mount.wait_mode("local")
        rig.power_cut(also=file.close)
        done = rig.volume.recover()
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertEqual(file.check(rig.backing_file("f"))[:5], [])

    def test_unsynced_bulk_data_does_not_flood_the_replicas(self):
        rig = self.rig(m=1, acks=1, size_mb=1024)
        mount = rig.mount(mode="replicated")
        file = File(rig.file("f"), 25000)
        file.open()
        self.addCleanup(file.close)
        before = mount.status()["issued"]
        for first in range(0, 24000, 4000):
            file.write(first, 4000)
        issued = mount.status()["issued"] - before
        self.assertLess(issued, 1000, "95 MiB without a sync became %d records" % issued)
        file.fsync()
