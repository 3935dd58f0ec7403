"""Figure 3 of "Rethink the Sync" on a direct volume, and on the bare file system: a program writes,
syncs, and sends a datagram to a recorder outside. The power is cut at a random moment. Each write of
which the recorder has heard must be there after the recovery.

| row | program | what must be there |
|---|---|---|
| external | syncs, `--commit=external` | all that was recorded |
| sync | syncs | all that was recorded |
| none | does not sync | not all: the control |
| bare | opens with `O_SYNC` on bare ext4 | all that was recorded |
"""
import contextlib
import os
import socket
import sys

from harness.case import Case
from harness.direct import DirectCase
from harness.image import Image
from harness.proc import Proc
from harness.run import current, scratch

# Writes its n-th record, every tenth one into a new file, and sends n. Ends with the first error.
PROGRAM = """
import os, socket, sys
volume, recorder, how = sys.argv[1:]
syncs, flags = how == "sync", os.O_SYNC if how == "O_SYNC" else 0
s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
s.connect(recorder)
fd = os.open(volume + "/f", os.O_CREAT | os.O_RDWR | flags, 0o600)
n = 0
while True:
    n += 1
    if n % 10 == 0:
        new = os.open(volume + "/n%d" % n, os.O_CREAT | os.O_WRONLY | flags, 0o600)
        os.write(new, b"%15d\\n" % n)
        if syncs:
            os.fsync(new)
        if syncs or flags:
            folder = os.open(volume, os.O_RDONLY)
            os.fsync(folder)
            os.close(folder)
        os.close(new)
    else:
        os.pwrite(fd, b"%15d\\n" % n, n * 16)
        if syncs:
            os.fsync(fd)
    s.send(b"%d" % n)
"""


class Recorder:
    """A process outside. Here it is the test itself."""

    _serial = 0

    def __init__(self):
        Recorder._serial += 1
        self.path = os.path.join(current().dir, "recorder%d" % Recorder._serial)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(self.path)
        self.last = 0

    def hear(self, count):
        """Returns when the number `count` has come."""
        self._socket.settimeout(30)
        while self.last < count:
            self.last = int(self._socket.recv(64))

    def close(self):
        """Takes what has come, and ends."""
        self._socket.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            while True:
                self.last = int(self._socket.recv(64))
        self._socket.close()


def is_there(directory, n):
    """Returns whether the directory has the program's n-th record."""
    try:
        with open(os.path.join(directory, "n%d" % n if n % 10 == 0 else "f"), "rb") as f:
            return os.pread(f.fileno(), 16, 0 if n % 10 == 0 else n * 16) == b"%15d\n" % n
    except FileNotFoundError:
        return False


class PowerCuts(DirectCase):

    def lost(self, syncs, options):
        """Cuts the power once. Returns how many recorded writes are not there, and how many were
        recorded."""
        recorder = Recorder()
        for name in os.listdir(self.directory):
            if name != ".salius":
                os.unlink(self.path(name))
        run = self.start(sys.executable, "-c", PROGRAM, self.directory, recorder.path, syncs, options=options)
        recorder.hear(self.rng.randint(1, 120))
        self.cut(run)
        recorder.close()
        missing = [n for n in range(1, recorder.last + 1) if not is_there(self.directory, n)]
        return len(missing), recorder.last

    def cuts(self, what, syncs, *options):
        """Cuts the power again and again. Returns the cuts that lost something."""
        lossy, recorded = 0, 0
        for _ in self.rounds("cuts", self.count(20, 200), lambda: "%s: %d recorded" % (what, recorded)):
            missing, last = self.lost(syncs, options)
            lossy += missing > 0
            recorded += last
        self.report("%s: %d writes recorded; %d cuts lost a recorded write", what, recorded, lossy)
        return lossy

    def test_external_loses_nothing_that_was_recorded(self):
        self.assertEqual(self.cuts("external", "sync", "--commit=external"), 0)

    def test_external_sent_for_outputs_loses_nothing_that_was_recorded(self):
        self.assertEqual(self.cuts("external, trigger=output", "sync", "--commit=external", "--trigger=output"), 0)

    def test_sync_loses_nothing_that_was_recorded(self):
        self.assertEqual(self.cuts("sync", "sync"), 0)

    def test_control_loses_recorded_writes(self):
        self.assertGreater(self.cuts("no sync", "none"), 0)


class BareFileSystem(Case):

    def test_o_sync_loses_nothing_that_was_recorded(self):
        image, log, recorded = self.own(Image("bare", size_mb=128)), scratch("program.log"), 0
        for number in self.rounds("cuts", self.count(20, 200), lambda: "%d recorded" % recorded):
            recorder, directory = Recorder(), os.path.join(image.path, "cut%d" % number)
            os.mkdir(directory)
            os.sync()
            run = Proc(["unshare", "--net", sys.executable, "-c", PROGRAM, directory, recorder.path, "O_SYNC"], log)
            self.addCleanup(run.kill)
            recorder.hear(self.rng.randint(1, 120))
            image.power_cut(also=run.kill)
            recorder.close()
            self.assertEqual([n for n in range(1, recorder.last + 1) if not is_there(directory, n)], [])
            recorded += recorder.last
        self.report("O_SYNC on bare ext4: %d writes recorded, all there", recorded)
