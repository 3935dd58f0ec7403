"""The gate of a mount with commit=external: a gated process's end of it, and processes that do one
thing at a time for a test, gated or not.

As a program: reads expressions of Python, one a line, and prints the result of each as JSON."""
import errno
import fcntl
import json
import mmap
import os
import socket
import struct
import sys
import threading

EARLY = 0x40045306  # SALIUS_IOC_EARLY, _IOW('S', 6, u32)
GATE = 0x806C5307   # SALIUS_IOC_GATE, _IOR('S', 7, char[108])

_HELLO = struct.pack("<QII", 0x314F4C4C45484753, 1, 0)
_WELCOME = struct.Struct("<QIi112s")
_MARKS = struct.Struct("<QQII")  # issued, durable, failed, news: at 16 of the page


class Gate:
    """A registration of this process; `path` is the gate socket."""

    def __init__(self, path):
        self.connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.connection.connect(path)
        self.connection.send(_HELLO)
        data, descriptors, _, _ = socket.recv_fds(self.connection, 256, 1)
        _, _, error, text = _WELCOME.unpack(data)
        if error:
            raise OSError(error, text.rstrip(b"\0").decode())
        self.page = mmap.mmap(descriptors[0], 4096, mmap.MAP_SHARED, mmap.PROT_READ)
        os.close(descriptors[0])

    def marks(self):
        """Returns issued, durable and whether the volume has failed."""
        issued, durable, failed, _ = _MARKS.unpack_from(self.page, 16)
        return issued, durable, failed

    def output_waits(self):
        """Tells the daemon that an output waits for all that was issued."""
        self.connection.send(struct.pack("<Q", self.marks()[0]))


def socket_of(fd):
    """Returns the gate socket of the mount of an open file."""
    return fcntl.ioctl(fd, GATE, bytes(108)).rstrip(b"\0").decode()


def early(fd, on=True):
    """Asks for early return of an open file, or gives it back."""
    fcntl.ioctl(fd, EARLY, struct.pack("<I", int(on)))


class Agent:
    """A process that does what it is asked. `ask` waits for the result; `start` does not: `done`
    tells whether it has come, and `result` waits for it. An OSError there is raised here."""

    def __init__(self, log):
        from harness.proc import Proc
        self._proc = Proc([sys.executable, "-u", __file__], log, pipe_in=True, pipe_out=True)
        self.pid = self._proc.pid
        self._answer = None

    def start(self, expression):
        self._proc.popen.stdin.write(expression + "\n")
        self._answer = []
        thread = threading.Thread(target=lambda out=self._answer: out.append(self._proc.popen.stdout.readline()))
        thread.daemon = True
        thread.start()

    def done(self):
        return bool(self._answer)

    def result(self, timeout_s=30):
        from harness.run import HarnessError, wait_until
        wait_until(self.done, timeout_s, lambda: "the agent does not answer; log:\n" + self._proc.tail())
        if not self._answer[0]:
            raise HarnessError("the agent ended; log:\n" + self._proc.tail())
        kind, value = json.loads(self._answer[0])
        if kind == "errno":
            raise OSError(value, os.strerror(value))
        return value

    def ask(self, expression, timeout_s=30):
        self.start(expression)
        return self.result(timeout_s)

    def close(self):
        self._proc.kill()
        self._proc.popen.stdin.close()
        self._proc.popen.stdout.close()


def _in_child(action):
    """Runs `action` in a child made by fork; returns 0 or its errno."""
    child = os.fork()
    if child == 0:
        try:
            action()
        except OSError as error:
            os._exit(error.errno)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def _in_thread(action):
    results = []
    thread = threading.Thread(target=lambda: results.append(action()))
    thread.start()
    thread.join()
    return results[0]


def _main():
    scope = {"os": os, "mmap": mmap, "Gate": Gate, "socket_of": socket_of, "early": early, "files": {},
             "in_child": _in_child, "in_thread": _in_thread, "errno": errno}
    for line in sys.stdin:
        try:
            value = eval(line, scope)  # of the test itself
            if isinstance(value, bytes):
                value = value.decode()
            answer = ["ok", value if isinstance(value, (str, int, float, list, tuple, type(None))) else str(value)]
        except OSError as error:
            answer = ["errno", error.errno]
        print(json.dumps(answer))


if __name__ == "__main__":
    _main()
