"""A file system on a model disk (tests/bench/disk_model)."""
import contextlib
import os

from harness.image import Image, mounts
from harness.proc import Proc
from harness.run import binary, current, sh, wait_until


class AtOnce:
    """A context in which requests of a disk_model_fs take no time. `path`: of its --at-once file, which
    is there meanwhile. It may be entered again after its end, not before."""

    def __init__(self, path):
        self.path = path

    @contextlib.contextmanager
    def __call__(self):
        with open(self.path, "x"):
            pass
        try:
            yield
        finally:
            os.unlink(self.path)


class ModelDisk:
    """An Image, `image`, whose loop device is over the file of disk_model_fs. `options`: its own;
    `image_options`: of Image. While at_once() is in force, requests take no time: mkfs is done that
    way, and whatever a test is not about."""

    _serial = 0

    def __init__(self, *options, **image_options):
        ModelDisk._serial += 1
        base = os.path.join(current().dir, "model-disk%d" % ModelDisk._serial)
        self.at_once, self._point = AtOnce(base + ".at-once"), base
        self.image = self._fs = None
        try:
            self.image = Image("model", **image_options)
            self.image.umount()
            self.image.detach()
            os.mkdir(self._point)
            self._fs = Proc([binary("disk_model_fs"), "--at-once", self.at_once.path, *options, self.image.file, self._point],
                            base + ".log")
            wait_until(lambda: self._point in mounts(), 60, lambda: "disk_model_fs does not mount:\n" + self._fs.tail())
            self.image.attach(os.path.join(self._point, "disk"), "--direct-io=on")
            with self.at_once():
                self.image.mount()
        except BaseException:
            self.close()
            raise

    def close(self):
        if self.image:
            with contextlib.nullcontext() if os.path.exists(self.at_once.path) else self.at_once():
                self.image.close()
        if self._fs:
            sh("umount", "-l", self._point, check=False)
            self._fs.kill()
