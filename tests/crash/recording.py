"""A session on a recorded disk: the log of its writes, cut into windows whose recovered state is
known.

A window is a range of the log. It has the replicas' memory and the tree that recovery must find on
a disk of any moment in the range. The writer pauses while a checkpoint is made. So the memory taken
before it holds everything that was acknowledged, and nothing of it is trimmed:

    | operations, write-back now and then   | memory kept | checkpoint |   operations …
    |<------------------- one window --------------------------------->|

Within a window, a disk that is older than the memory is one with a slow cache. In mode local every
operation is a window of its own. In it the operation may be done, not done or done in part: no
replica is needed there.
"""
import contextlib
import ctypes
import os
import random
import shutil

from crash import workload_process
from crash.block_log import BlockLog, Player
from crash.site import Site, small_image
from harness.ops import OpWriter
from harness.run import HarnessError, current

_libc = ctypes.CDLL(None, use_errno=True)
_SYNC_FILE_RANGE_WRITE, _SYNC_FILE_RANGE_WAIT = 2, 1 | 4
TAU = "2s"  # checkpoints start automatically, one second after the first operation
_PHASE_TRIES = 5


class Window:
    """Requests [begin, end] of the log: a crash after any number of them in this range."""

    def __init__(self, what, begin, end, memory, allowed):
        self.what, self.begin, self.end, self.memory, self.allowed = what, begin, end, memory, allowed


class Recording:
    """A finished recording: self.windows, self.player."""

    def __init__(self, make_workload, rng, phases, operations, local_operations):
        self._rng = rng
        self.windows = []
        self.spoiled = 0
        self.site = Site(m=2, acks=make_workload.acks, tau=TAU, more=("--names", make_workload.names))
        self._log = self._workload = None
        try:
            self._log = BlockLog(self.site.image)
            self._record(make_workload, phases, operations, local_operations)
            self.player = Player(self._log.base, self._log.requests())
        finally:
            self.close()

    def close(self):
        if self._workload:
            self._workload.close()
        if self.site.mount_:
            self.site.mount_.close()
            self.site.mount_ = None
        if self._log:
            self._log.close()
        self.site.close()

    def _record(self, make_workload, phases, operations, local_operations):
        site = self.site
        site.mount(mode="replicated")
        self._window("session start", 0, self._memory(), [{}])
        self._workload = make_workload(site.path, self._rng)
        for _ in range(phases):
            self._phase(operations)
        for i in range(site.m):
            site.net.drop(i)
        site.mount_.wait_mode("local")
        self._checkpointed()
        memory = self._memory()
        self._window("to mode local", self._end, memory, [self._workload.model()])
        for _ in range(local_operations):
            self._workload.step()
            self._window("mode local", self._end, memory, self._workload.passed)
        # Before the replicas hear of this checkpoint: none may have a later checkpoint than the
        # next window's disks.
        self._checkpointed()
        self._window("mode local", self._end, memory, [self._workload.model()])
        for i in range(site.m):
            site.net.heal(i)
        site.mount_.wait_mode("replicated")
        self._window("back to replicated", self._end, self._memory(), [self._workload.model()])
        self._phase(operations)

    def _phase(self, operations):
        for _ in range(_PHASE_TRIES):
            if self._whole_phase(operations):
                return
            self.spoiled += 1
        raise HarnessError("%d phases, and none without a checkpoint or mode local among its operations: this machine is "
                           "too slow" % _PHASE_TRIES)

    def _whole_phase(self, operations):
        """Runs a phase. Returns False if a slow machine spoiled it: a checkpoint came among the
        operations, so that their records may be trimmed; or mode local did, in which only the
        stable log holds them."""
        if self._status()["mode"] != "replicated":
            self.site.mount_.wait_mode("replicated")
            self._end = self._log.position()
        before = self._status()["checkpoint"]
        for _ in range(operations):
            self._workload.step()
            self._write_back()
        memory, model = self._memory(), self._workload.model()
        after = self._status()
        whole = after["checkpoint"] == before and after["mode"] == "replicated"
        self._checkpointed()
        if whole:
            self._window("replicated", self._end, memory, [model])
        else:
            self._end = self._log.position()
        return whole

    _end = 0

    def _window(self, what, begin, memory, allowed):
        self._end = self._log.position()
        self.windows.append(Window(what, begin, self._end, memory, allowed))

    def _status(self):
        return self.site.mount_.status()

    def _checkpointed(self):
        self.site.mount_.wait_status(lambda s: s["checkpoint"] == s["issued"], 20, "a checkpoint of everything")

    def _memory(self):
        for replica in self.site.replicas:
            replica.stop()
        try:
            return self.site.keep_memory()
        finally:
            for replica in self.site.replicas:
                replica.cont()

    def _write_back(self):
        """Does a write-back that a kernel may choose: writes a file's pages, with or without a
        flush."""
        choice = self._rng.random()
        if choice < 0.5:
            return
        files = [os.path.join(folder, name) for folder, dirs, names in os.walk(self.site.backing)
                 if ".salius" not in folder for name in names]
        if not files:
            return
        _write_back(self._rng.choice(files), flush=choice >= 0.85)


def _write_back(path, flush, wait=False):
    """Writes the file's pages. Without a flush the write is only begun, unless `wait`."""
    fd = os.open(path, os.O_RDWR)
    try:
        flags = _SYNC_FILE_RANGE_WRITE | (_SYNC_FILE_RANGE_WAIT if wait else 0)
        if flush:
            os.fsync(fd)
        elif _libc.sync_file_range(fd, ctypes.c_int64(0), ctypes.c_int64(0), flags) != 0:
            raise HarnessError("sync_file_range: " + os.strerror(ctypes.get_errno()))
    finally:
        os.close(fd)


class _Process(OpWriter):
    """A workload of class `kind` in a process of its own; do() asks for each step."""

    program = workload_process.__file__

    def __init__(self, kind, top, seed, wrapper):
        super().__init__(top, first=seed, style=kind.__name__.lower(), gated=True, wrapper=wrapper)


class Bare:
    """The same disk without Salius: a workload on plain ext4, in a process run by `wrapper`
    (eatmydata, for the control).

    self.acked: each acknowledgement, at the end of the window that begins with its step.
    self.windows: from each acknowledgement to the next, whose step may be done by then or not.
    Between the steps, in turn, the kernel writes the file back, another program syncs a file of its
    own, or nothing happens. self.player as above."""

    TOP = "data"

    def __init__(self, kind, seed, steps, wrapper=()):
        self.acked, self.windows = [], []
        with contextlib.ExitStack() as stack:
            image = small_image("bare")
            stack.callback(image.close)
            log = BlockLog(image)
            stack.callback(log.close)
            top, other = os.path.join(image.path, self.TOP), os.path.join(image.path, "other")
            os.mkdir(top)
            twin = self._twin(stack, kind, seed)
            process = _Process(kind, top, seed, wrapper)
            stack.callback(process.kill)
            for number in range(1, steps + 1):
                before = log.position()
                process.do(1)
                twin.step()
                position = log.position()
                if self.acked:
                    self.windows.append(Window("step %d" % number, self.acked[-1].end, position, None, twin.passed))
                self.acked.append(Window("step %d acknowledged" % number, before, position, None, [twin.model()]))
                if number % 3 == 1:
                    _write_back(os.path.join(top, "file"), flush=False, wait=True)
                elif number % 3 == 2:
                    with open(other, "ab") as f:
                        f.write(b"x")
                    _write_back(other, flush=True)
            self.player = Player(log.base, log.requests())

    @staticmethod
    def _twin(stack, kind, seed):
        """Returns a workload that does the same elsewhere, and knows the required state."""
        top = "/dev/shm/%s-twin" % current().id
        os.mkdir(top)
        stack.callback(shutil.rmtree, top)
        twin = kind(top, random.Random(seed))
        stack.callback(twin.close)
        return twin
