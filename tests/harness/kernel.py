"""The guests' Linux: Debian's cloud kernel and an initramfs of busybox and a few modules.

An installed kernel of that kind is used. Otherwise the package is downloaded and unpacked, but not
installed: a kernel's installation scripts concern this machine's own boot. The unpacked copy is
kept in SALIUS_TEST_CACHE (default /var/cache/salius-tests).
"""
import glob
import os
import re
import shutil
import struct
import sys

from harness.run import HarnessError, current, sh

META_PACKAGE = "linux-image-cloud-amd64"
BUSYBOX = "/bin/busybox"
# The modules that a guest needs before it sees the host's files; their dependencies are added.
BOOT_MODULES = ("virtio_pci", "virtio_blk", "virtio_net", "virtio_console", "virtio_rng", "virtiofs", "crc32c_intel")

# The guest's / is the host's, read only, through virtiofs. Directories that a running system writes
# to are tmpfs.
_INIT = """#!/bin/busybox sh
b=/bin/busybox
$b mount -t devtmpfs devtmpfs /dev
for m in {modules}; do $b insmod /modules/$m.ko; done
$b mount -t virtiofs -o ro root /new
$b mount -t proc proc /new/proc
$b mount -t sysfs sysfs /new/sys
$b mount -t devtmpfs devtmpfs /new/dev
$b mkdir -p /new/dev/shm
$b mount -t tmpfs tmpfs /new/dev/shm
$b mount -t tmpfs -o mode=755 tmpfs /new/run
$b umount /dev
export PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/run PYTHONDONTWRITEBYTECODE=1
exec $b switch_root /new {python} -S {agent}
"""


class Kernel:
    """self.image, self.modules_dir, self.initramfs are paths; one for the whole run."""

    def __init__(self, root):
        images = sorted(glob.glob(os.path.join(root, "boot", "vmlinuz-*-cloud-amd64")))
        if not images:
            raise HarnessError("no cloud kernel under " + root)
        self.image = images[-1]
        version = os.path.basename(self.image).partition("-")[2]
        self._modules = {}
        for folder, _, names in os.walk(os.path.join(root, "lib", "modules", version)):
            for name in names:
                if name.endswith(".ko"):
                    self._modules[name[:-3].replace("-", "_")] = os.path.join(folder, name)
        self.initramfs = os.path.join(current().dir, "initramfs.cpio")
        self._write_initramfs()

    def has(self, module):
        return module in self._modules

    def with_dependencies(self, modules):
        """Returns paths of modules in the order in which insmod takes them; the paths in the guest
        are equal."""
        order = []

        def add(name):
            if name not in self._modules:
                raise HarnessError("the guests' kernel has no module " + name)
            for dependency in self._depends(name):
                add(dependency)
            if self._modules[name] not in order:
                order.append(self._modules[name])
        for module in modules:
            add(module)
        return order

    def _depends(self, name):
        with open(self._modules[name], "rb") as f:
            found = re.search(rb"\0depends=([^\0]*)\0", f.read())
        return [d.replace("-", "_") for d in found.group(1).decode().split(",") if d] if found else []

    def _write_initramfs(self):
        paths = self.with_dependencies(BOOT_MODULES)
        names = [os.path.basename(path)[:-3] for path in paths]
        agent = os.path.join(os.path.dirname(os.path.abspath(__file__)), "guest_agent.py")
        init = _INIT.format(modules=" ".join(names), python=sys.executable, agent=agent)
        entries = [(folder, 0o40755, b"") for folder in ("bin", "dev", "modules", "new")]
        entries += [("bin/busybox", 0o100755, _bytes(BUSYBOX)), ("init", 0o100755, init.encode())]
        entries += [("modules/%s.ko" % name, 0o100644, _unsigned(_bytes(path))) for name, path in zip(names, paths)]
        with open(self.initramfs, "wb") as out:
            for inode, (name, mode, data) in enumerate(entries + [("TRAILER!!!", 0, b"")], 1):
                _cpio_entry(out, inode, name, mode, data)


def _unsigned(module):
    """Returns the module without its signature: to check one costs an emulated CPU a tenth of a
    second."""
    mark = b"~Module signature appended~\n"
    if not module.endswith(mark):
        return module
    end = len(module) - len(mark)
    # The last field of struct module_signature.
    signature, = struct.unpack(">I", module[end - 4:end])
    return module[:end - 12 - signature]


def _bytes(path):
    with open(path, "rb") as f:
        return f.read()


def _cpio_entry(out, inode, name, mode, data):
    """Writes an entry in the "newc" format
    (Documentation/driver-api/early-userspace/buffer-format.rst)."""
    fields = (inode, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(name) + 1, 0)
    head = ("070701" + "".join("%08x" % f for f in fields) + name).encode() + b"\0"
    out.write(head + b"\0" * (-len(head) % 4) + data + b"\0" * (-len(data) % 4))


_kernel = None


def kernel():
    """Returns the run's Kernel; the first call finds it or fetches it."""
    global _kernel
    if _kernel is None:
        installed = glob.glob("/boot/vmlinuz-*-cloud-amd64") and glob.glob("/lib/modules/*-cloud-amd64/kernel")
        _kernel = Kernel("/" if installed else _fetched())
    return _kernel


def _fetched():
    cache = os.environ.get("SALIUS_TEST_CACHE", "/var/cache/salius-tests")
    package = _package()
    place = os.path.join(cache, package)
    if os.path.isdir(place):
        return place
    work = os.path.join(current().dir, "kernel")
    os.makedirs(work)
    sh("sh", "-c", 'cd "$1" && apt-get download -q "$2"', "sh", work, package, timeout=300)
    unpacked = os.path.join(work, "root")
    sh("dpkg-deb", "-x", glob.glob(work + "/*.deb")[0], unpacked)
    os.makedirs(cache, exist_ok=True)
    # The rename makes the copy appear whole or not at all, even when another run does the same.
    half = place + "." + current().id
    shutil.move(unpacked, half)
    try:
        os.rename(half, place)
    except OSError:
        shutil.rmtree(half)
    shutil.rmtree(work)
    return place


def _package():
    """Returns the package of the current kernel, on which the meta package depends."""
    for update in (False, True):
        if update:
            sh("apt-get", "update", "-q", timeout=300)
        text = sh("apt-cache", "depends", META_PACKAGE, check=False).stdout
        found = re.search(r"Depends: (linux-image-[0-9]\S*-cloud-amd64)", text)
        if found:
            return found.group(1)
    raise HarnessError("no package %s: the guests need Debian's cloud kernel, installed or to be downloaded" %
                       META_PACKAGE)
