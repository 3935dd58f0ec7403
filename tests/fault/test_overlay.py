"""Uses a mounted volume as the upper layer of an overlay, like container storage."""
import os
import shutil
import stat
import tempfile

from harness.case import Case
from harness.run import current, sh


class UpperLayer(Case):
    """The lower layer is a directory of files whose content is their name."""

    FILES = 30

    def setUp(self):
        super().setUp()
        if shutil.which("modprobe"):
            sh("modprobe", "overlay", check=False)
        with open("/proc/filesystems") as f:
            if "\toverlay\n" not in f.read():
                self.skipTest("this kernel has no overlayfs (CONFIG_OVERLAY_FS); ReplayTest and NamesTest have whiteouts")
        self.rig_ = self.rig(m=2, acks=1, init_options=("--delta", "2s", "--tau", "600s"), memory="256MiB")
        self.rig_.mount(mode="replicated")
        self.lower = tempfile.mkdtemp(prefix="lower", dir=current().dir)
        self.merged = tempfile.mkdtemp(prefix="merged", dir=current().dir)
        os.mkdir(self.rig_.file("upper"))
        os.mkdir(self.rig_.file("work"))
        for number in range(self.FILES):
            with open(os.path.join(self.lower, "f%d" % number), "w") as f:
                f.write("f%d" % number)
        self.overlay()
        self.addCleanup(self.leave)

    def overlay(self):
        sh("mount", "-t", "overlay", "overlay", "-o", "lowerdir=%s,upperdir=%s,workdir=%s" % (
            self.lower, self.rig_.file("upper"), self.rig_.file("work")), self.merged)

    def leave(self):
        if os.path.ismount(self.merged):
            sh("umount", "-l", self.merged)

    def at(self, name):
        return os.path.join(self.merged, name)

    def change(self):
        """Changes the layer as containers do. Returns the expected content of each name."""
        expected = {"f%d" % n: "f%d" % n for n in range(self.FILES)}
        for n in range(10):  # moved: the rename leaves a whiteout
            os.rename(self.at("f%d" % n), self.at("g%d" % n))
            expected["g%d" % n] = expected.pop("f%d" % n)
        for n in range(10, 15):  # removed
            os.unlink(self.at("f%d" % n))
            del expected["f%d" % n]
        for n in range(15, 20):  # over a file of the lower layer; leaves a whiteout too
            os.rename(self.at("f%d" % n), self.at("f%d" % (n + 5)))
            expected["f%d" % (n + 5)] = expected.pop("f%d" % n)
        for n in range(5):  # into the place of a whiteout
            os.rename(self.at("g%d" % n), self.at("f%d" % n))
            expected["f%d" % n] = expected.pop("g%d" % n)
        return expected

    def listed(self):
        found = {}
        for name in os.listdir(self.merged):
            with open(self.at(name)) as f:
                found[name] = f.read()
        return found

    def whiteouts(self):
        folder = self.rig_.file("upper")
        found = [os.lstat(os.path.join(folder, name)) for name in os.listdir(folder)]
        return sum(stat.S_ISCHR(st.st_mode) and st.st_rdev == 0 for st in found)

    def test_layers_are_changed_as_on_any_file_system(self):
        expected = self.change()
        self.assertEqual(self.listed(), expected)
        self.assertEqual(self.whiteouts(), 15)
        self.assertEqual(self.rig_.mount_.mode(), "replicated")

    def test_power_cut_loses_no_change_of_a_layer(self):
        for disk in ("nothing", "everything"):
            with self.subTest(on_disk=disk):
                for name in os.listdir(self.merged):
                    os.unlink(self.at(name))
                sh("umount", self.merged)
                for folder in ("upper", "work"):
                    sh("rm", "-rf", self.rig_.file(folder))
                    os.mkdir(self.rig_.file(folder))
                self.overlay()
                expected = self.change()
                if disk == "everything":
                    self.rig_.sync_disk()
                # A record without a waiter is sent some milliseconds later.
                self.rig_.mount_.wait_status(lambda now: now["durable"] >= now["issued"], 60, "every record durable")
                self.rig_.power_cut(also=self.leave)
                lacking = not os.path.exists(self.rig_.backing_file("upper/g9"))
                code, report = self.rig_.volume.recover_json()
                self.assertEqual(code, 0, report)
                self.assertEqual(os.listdir(self.rig_.backing_file(".salius/lost"))
                                 if os.path.exists(self.rig_.backing_file(".salius/lost")) else [], [])
                self.rig_.mount(mode="replicated")
                self.overlay()
                self.assertEqual(self.listed(), expected)
                self.assertEqual(self.whiteouts(), 15)
                self.report("%s on the disk: %s records replayed; the disk alone %s", disk, report["records"],
                            "lacked them" if lacking else "had them")
                self.assertEqual(lacking, disk == "nothing")
