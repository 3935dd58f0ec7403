"""The negative controls: the same machines, disk and writers without Salius, with a known
outcome."""
from harness.case import Case
from harness.disk import Disk
from harness.guest import Guest
from harness.machines import DISK, PRIMARY_IP, Writer, mount_disk
from harness.net import Net
from harness.run import HarnessError


class BareExt4(Case):

    def cut(self, wrapper=(), mount_options=""):
        """Makes one power cut of a machine whose writers work on its ext4; returns the damage that
        each writer's check found."""
        net = self.own(Net(0))
        disk = self.own(Disk())
        guest = self.own(Guest(net, PRIMARY_IP, disk))
        mount_disk(guest.boot(), mount_options)
        writers = [Writer("ops", "ledger0", DISK), Writer("sqlite", "ledger1", DISK)]
        guest.run("mkdir", writers[0].where(DISK))
        guest.run("sync")
        for writer in writers:
            writer.start(guest, wrapper)
        for writer in writers:
            writer.wait(guest, 30)
        guest.power_cut(self.rng)
        for writer in writers:
            writer.machine_died()
        guest.boot()
        try:
            mount_disk(guest)
            # The disk may tear writes in progress: no recovery writes them again here.
            found = [writer.check(guest, DISK, torn=True) for writer in writers]
        except HarnessError as error:  # without barriers even ext4 itself may be lost
            found = [(False, str(error))]
        self.report("%s operations acknowledged; %d flushes, %d unflushed writes dropped, %d torn; found: %s",
                    [writer.ledger.total() for writer in writers], disk.flushes, disk.dropped, disk.torn, found)
        return [what for good, what in found if not good]

    def test_real_syncs_lose_nothing(self):
        self.assertEqual(self.cut(), [])

    def test_eatmydata_is_caught_losing_acknowledged_operations(self):
        self.assertEqual(len(self.cut(wrapper=self.eatmydata())), 2)

    def test_disk_without_flushes_is_caught_losing_them(self):
        """Real syncs, ext4 without barriers: QEMU's death alone would lose nothing, the disk's
        cache does."""
        self.assertTrue(self.cut(mount_options="nobarrier"))
