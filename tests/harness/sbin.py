"""The helpers that mount(8) and umount(8) find: they look only in /sbin.

The machine may have Salius installed, but a run must find its own programs, or none. So /sbin is an
overlay in the run's mount namespace from the first change on."""
import os

from harness.run import current, sh

HELPERS = ("mount.salius", "mount.fuse.salius", "umount.fuse.salius")

_own = None  # the run that has made its overlay


def hide_installed():
    """Hides the machine's own helpers from a new run."""
    if any(os.path.lexists(os.path.join("/sbin", name)) for name in HELPERS):
        for name in HELPERS:
            remove(name)


def put(name, program):
    """Makes `program` the helper `name` until remove()."""
    remove(name)
    os.symlink(program, os.path.join(_sbin(), name))


def remove(name):
    path = os.path.join(_sbin(), name)
    if os.path.lexists(path):
        os.unlink(path)


def _sbin():
    """Returns the directory, which is this run's own."""
    global _own
    sbin, run = os.path.realpath("/sbin"), current()
    if _own is not run:
        base = os.path.join(run.dir, "sbin")
        os.mkdir(base)
        sh("mount", "-t", "tmpfs", "sbin", base)
        for name in ("upper", "work"):
            os.mkdir(os.path.join(base, name))
        sh("mount", "-t", "overlay", "-o", "lowerdir=%s,upperdir=%s/upper,workdir=%s/work" % (sbin, base, base), "sbin", sbin)
        _own = run
    return sbin
