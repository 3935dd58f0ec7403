"""Bursts: operations on names and attributes, one after another, that one fsync at the end covers.

A crash before that fsync may take away the end of a burst, and nothing else: the tree is then that
after the first k calls (I2). Burst N depends on N alone. It removes the burst before it. Imports
nothing of the harness: the op writer uses it too.
"""
import os
import stat

STEP = 5  # between the numbers of bursts
FIRST = 4


def calls(number):
    """Returns the calls of burst `number` in order, as (call, arguments…). Paths are relative to the
    directory of all bursts. The last call belongs to what synced() names."""
    here, before = "%d/" % number, "%d/" % (number - STEP)
    wanted = []
    if number - 2 * STEP >= FIRST:
        wanted.append(("unlink", before + "p"))
    if number - STEP >= FIRST:
        wanted.append(("unlink", before + "s"))
    wanted.append(("mkdir", here[:-1]))
    if number - STEP >= FIRST:
        wanted += [("rename", before + "c", here + "p"), ("rmdir", before[:-1])]
    wanted += [("create", here + "a"), ("write", here + "a", b"%016d" % number), ("link", here + "a", here + "b"),
               ("symlink", "a", here + "s"), ("setxattr", here + "a", b"%d" % number),
               ("utime", here + "a", 1000000000 + number), ("unlink", here + "b")]
    rename = ("rename", here + "a", here + "c")
    if _syncs_file(number):
        return wanted + [rename, ("chmod", here + "c", 0o604)]
    return wanted + [("chmod", here + "a", 0o604), rename]


def _syncs_file(number):
    return number // STEP % 2 == 1


def synced(number):
    """Returns the object whose fsync ends the burst: its file, or its directory."""
    return "%d/c" % number if _syncs_file(number) else "%d" % number


def run(top, number):
    """Does the calls of a burst that are not done yet, and the fsync."""
    wanted = calls(number)
    for call, *arguments in wanted[position(top, number):]:
        _DO[call](*(os.path.join(top, a) if isinstance(a, str) and (call, a) != ("symlink", "a") else a
                    for a in arguments))
    fd = os.open(os.path.join(top, synced(number)), os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _write(path, data):
    fd = os.open(path, os.O_WRONLY)
    try:
        os.pwrite(fd, data, 0)
    finally:
        os.close(fd)


_DO = {"unlink": os.unlink, "mkdir": os.mkdir, "rmdir": os.rmdir, "rename": os.rename, "link": os.link,
       "symlink": os.symlink, "chmod": os.chmod, "write": _write,
       "create": lambda path: os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)),
       "setxattr": lambda path, value: os.setxattr(path, "user.burst", value),
       "utime": lambda path, seconds: os.utime(path, (seconds, seconds))}


class _Tree:
    """The result of the calls so far: {path: object}, where two names of a file share one."""

    def __init__(self):
        self.names = {}

    def apply(self, call, first, second=None):
        names = self.names
        if call in ("unlink", "rmdir"):
            del names[first]
        elif call == "rename":
            names[second] = names.pop(first)
        elif call == "link":
            names[second] = names[first]
        elif call == "mkdir":
            names[first] = {"what": "directory"}
        elif call == "symlink":
            names[second] = {"what": "link to " + first}
        elif call == "create":
            names[first] = {"what": "file", "data": b"", "mode": 0o600, "xattr": None, "time": None}
        else:
            names[first][{"write": "data", "chmod": "mode", "setxattr": "xattr", "utime": "time"}[call]] = second

    def facts(self):
        objects = list(self.names.values())
        return {path: dict(o, links=sum(o is other for other in objects)) if o["what"] == "file" else dict(o)
                for path, o in self.names.items()}


def trees(number):
    """Returns the trees that a crash in burst `number` may leave: after 0, 1, … of its calls."""
    tree = _Tree()
    for earlier in range(FIRST, number, STEP):
        for call in calls(earlier):
            tree.apply(*call)
    found = [tree.facts()]
    for call in calls(number):
        tree.apply(*call)
        found.append(tree.facts())
    return found


def observed(top):
    """Returns the tree that is there, as facts() does."""
    found = {}
    for folder, dirs, files in os.walk(top):
        for name in dirs + files:
            path = os.path.join(folder, name)
            found[os.path.relpath(path, top)] = _facts(path)
    return found


def _facts(path):
    st = os.lstat(path)
    if stat.S_ISDIR(st.st_mode):
        return {"what": "directory"}
    if stat.S_ISLNK(st.st_mode):
        return {"what": "link to " + os.readlink(path)}
    with open(path, "rb") as f:
        data = f.read()
    xattr = os.getxattr(path, "user.burst") if "user.burst" in os.listxattr(path) else None
    return {"what": "file", "data": data, "mode": st.st_mode & 0o7777, "xattr": xattr, "time": int(st.st_mtime),
            "links": st.st_nlink}


def difference(want, got):
    """Returns text that names the first differences; empty when there are none. A time that was
    not set is any."""
    lines = []
    for path in sorted(set(want) | set(got)):
        a, b = want.get(path), got.get(path)
        if a and b and a.get("time", 0) is None:
            b = dict(b, time=None)
        if a != b:
            lines.append("%s: %s, not %s" % (path, b or "missing", a or "missing"))
    return "; ".join(lines[:4])


def position(top, number):
    """Returns how many calls of burst `number` are done; raises ValueError when the tree is that
    after no number of them."""
    got, allowed = observed(top), trees(number)
    for done in reversed(range(len(allowed))):  # the later of two that differ in a time only
        if not difference(allowed[done], got):
            return done
    nearest = min((difference(want, got) for want in allowed), key=len)
    raise ValueError("a burst that is no beginning of its calls, at best: " + nearest)
