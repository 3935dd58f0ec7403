"""Operations through a mount that know the required state: append, overwrite, names.

Each step is one or more calls, durable when step() returns. A tree is {path: content, None for a
directory}. model() is the tree after all steps so far; `passed` are the trees that the last step
went through."""
import os

from harness.op_writer import SLOT, body

SLOTS = 24


class Workload:
    names = "wait"  # the volume's
    acks = 1  # of two replicas

    def __init__(self, top, rng):
        self.top, self.rng, self.steps = top, rng, 0
        self.files, self.passed = {}, []

    def step(self):
        self.steps += 1
        self.passed = [self.model()]
        self._do(self.steps)
        self._done()

    def _done(self):
        """Notes that a call has returned; self.files holds its effect already."""
        self.passed.append(self.model())

    def model(self):
        return {path: None if data is None else bytes(data) for path, data in self.files.items()}

    def _path(self, name):
        return os.path.join(self.top, name)

    def close(self):
        pass


class _OneFile(Workload):
    """A workload on one file, opened O_SYNC."""

    def __init__(self, top, rng):
        super().__init__(top, rng)
        self.files["file"] = bytearray()
        self._fd = os.open(self._path("file"), os.O_CREAT | os.O_RDWR | os.O_SYNC, 0o644)

    def close(self):
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


class Append(_OneFile):
    def _do(self, number):
        data = body(number)[:self.rng.randint(1, SLOT)]
        os.pwrite(self._fd, data, len(self.files["file"]))
        self.files["file"] += data


class Overwrite(_OneFile):
    def __init__(self, top, rng):
        super().__init__(top, rng)
        os.pwrite(self._fd, bytes(SLOTS * SLOT), 0)
        self.files["file"] = bytearray(SLOTS * SLOT)

    def _do(self, number):
        at, size = self.rng.randrange(SLOTS) * SLOT, self.rng.choice((SLOT, SLOT, 512, 1000))
        os.pwrite(self._fd, body(number)[:size], at)
        self.files["file"][at:at + size] = body(number)[:size]


class Names(Workload):
    """Makes, renames, overwrites by rename, truncates and removes files, and makes directories."""

    acks = 2  # a recovery finds all in the memory of either replica

    def _do(self, number):
        files = sorted(p for p, data in self.files.items() if data is not None)
        choice = self.rng.choice(("create", "create", "rename", "replace", "truncate", "unlink", "mkdir"))
        if choice == "mkdir":
            os.mkdir(self._path("d%d" % number))
            self.files["d%d" % number] = None
            self._done()
            self._write("d%d/f%d" % (number, number), number)
        elif choice == "create" or len(files) < 3:
            self._write("f%d" % number, number)
        elif choice == "rename":
            self._rename(self.rng.choice(files), "r%d" % number)
        elif choice == "replace":
            old, new = self.rng.sample(files, 2)
            self._rename(old, new)
        elif choice == "truncate":
            path = self.rng.choice(files)
            size = self.rng.randint(0, len(self.files[path]))
            os.truncate(self._path(path), size)
            self._sync(path)
            self.files[path] = self.files[path][:size]
        else:
            path = self.rng.choice(files)
            os.unlink(self._path(path))
            del self.files[path]

    def _write(self, path, number):
        data = body(number)[:self.rng.randint(0, SLOT)]
        fd = os.open(self._path(path), os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o640)
        try:
            self.files[path] = b""
            self._done()
            os.write(fd, data)
            os.fsync(fd)
        finally:
            os.close(fd)
        self.files[path] = data

    def _rename(self, old, new):
        os.rename(self._path(old), self._path(new))
        self.files[new] = self.files.pop(old)

    def _sync(self, path):
        fd = os.open(self._path(path), os.O_RDONLY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)


class Early(Names):
    """Several of these operations before one sync, on a volume whose names do not wait. A crash may
    take away the last ones."""

    names = "async"

    def _do(self, number):
        for part in range(4):
            super()._do(4 * number + part)
            self._done()
        # Each sync covers all that was issued before the last record of its object.
        for path in [".", *sorted(self.files)]:
            super()._sync(path)

    def _write(self, path, number):
        data = body(number)[:self.rng.randint(0, SLOT)]
        with open(self._path(path), "xb", buffering=0) as f:
            self.files[path] = b""
            self._done()
            f.write(data)
        self.files[path] = data

    def _sync(self, path):
        pass


def content(top):
    """Returns the tree of a backing directory, as model() does."""
    found = {}
    for folder, dirs, files in os.walk(top):
        if folder == top and ".salius" in dirs:
            dirs.remove(".salius")
        for name in dirs:
            found[os.path.relpath(os.path.join(folder, name), top)] = None
        for name in files:
            path = os.path.join(folder, name)
            with open(path, "rb") as f:
                found[os.path.relpath(path, top)] = f.read()
    return found


def difference(want, got):
    """Returns text that names the differences; empty when there are none."""
    def what(tree, path):
        if path not in tree:
            return "missing"
        return "a directory" if tree[path] is None else "%d bytes" % len(tree[path])
    lines = []
    for path in sorted(set(want) | set(got)):
        if path in want and path in got and want[path] == got[path]:
            continue
        at = ""
        if want.get(path) and got.get(path):
            at = ", first at %d" % next((i for i, (a, b) in enumerate(zip(want[path], got[path])) if a != b),
                                        min(len(want[path]), len(got[path])))
        lines.append("%s: %s, not %s%s" % (path, what(got, path), what(want, path), at))
    return "\n".join(lines[:8])
