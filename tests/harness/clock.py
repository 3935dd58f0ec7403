"""The wall clock of one simulated host, which a test can set forwards and back while processes
run."""
import os
import struct

from harness.run import current, sh

_SOURCE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "fake_clock.c")


class Clock:
    """A clock; give `env` to each process of the host."""

    _serial = 0

    def __init__(self):
        Clock._serial += 1
        library = os.path.join(current().dir, "fake_clock.so")
        if not os.path.exists(library):
            sh("cc", "-shared", "-fPIC", "-O1", "-Wall", "-o", library, _SOURCE, "-ldl")
        self.path = os.path.join(current().dir, "clock%d" % Clock._serial)
        with open(self.path, "wb") as f:
            f.write(struct.pack("<q", 0))
        self.env = dict(os.environ, LD_PRELOAD=library, FAKE_CLOCK=self.path)

    def set(self, seconds):
        """Sets the host's clock to `seconds` ahead of (negative: behind) the true time."""
        with open(self.path, "r+b") as f:  # in place: the processes have it mapped
            f.write(struct.pack("<q", int(seconds * 10**9)))
