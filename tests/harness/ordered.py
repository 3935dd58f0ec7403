"""The ordered writer as a process, and the check that a directory is a prefix of its operations."""
import os
import sys
import threading

from harness import ordered_writer as writer
from harness.ops import Damage
from harness.proc import Proc, tail
from harness.run import HarnessError, current, wait_until


class OrderedWriter:
    """Runs operations `first`, … in `directory` until it is killed. `done`, `dsync` and `told` are
    the last numbers that it printed for each; 0: none."""

    _serial = 0

    def __init__(self, directory, first=1):
        OrderedWriter._serial += 1
        self.log = os.path.join(current().dir, "ordered%d.log" % OrderedWriter._serial)
        self.last = {"done": first - 1, "dsync": 0, "told": 0}
        self.times = {"done": 0, "dsync": 0, "told": 0}
        self.proc = Proc([sys.executable, writer.__file__, directory, str(first)], self.log, pipe_out=True)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self):
        for line in self.proc.popen.stdout:
            if line.endswith("\n"):
                word, number = line.split()
                self.last[word] = max(self.last[word], int(number))
                self.times[word] += 1

    def wait(self, word, count, timeout_s=60):
        """Waits until it has printed `word` `count` times."""
        wait_until(lambda: self.times[word] >= count or not self.proc.alive(), timeout_s,
                   lambda: "%d of %d %s; %s" % (self.times[word], count, word, tail(self.log, 3)), 0.005)
        if not self.proc.alive():
            raise HarnessError("the writer ended: " + tail(self.log, 3))

    def durable(self):
        """Returns the last operation that a dsync or a notification said to be durable."""
        return max(self.last["dsync"], self.last["told"])

    def kill(self):
        self.proc.kill()
        self._reader.join(30)
        self.proc.popen.stdout.close()


class _Model:
    """The content of the directory after operations 1…t."""

    def __init__(self, t):
        self.slots, self.new, self.kept = {}, set(), set()
        self.log = b"".join(map(writer.record, range(5, t + 1, 5)))
        for n in range(1, t + 1):
            what = writer.kind(n)
            if what == "slot":
                self.slots[n % writer.SLOTS] = n
            elif what == "create":
                self.new.add(n)
            elif what == "rename":
                self.new.discard(n - 1)
                self.kept.add(n - 1)
            elif what == "remove":
                self.kept.discard(n - writer.REMOVED_AFTER)

    def differences(self, directory, beyond):
        """Returns how the directory differs, a line for each. The file `beyond` of new/ may be
        there, with a part of its content."""
        found = []
        if _content(directory, "log") != self.log:
            found.append("log")
        slots = _content(directory, "slots")
        for at in range(writer.SLOTS):
            want = writer.slot(self.slots[at]) if at in self.slots else b""
            got = slots[at * writer.SLOT:(at + 1) * writer.SLOT]
            if got.rstrip(b"\0") != want:
                found.append("slot %d holds %r" % (at, got[:16]))
        for folder, want in (("new", self.new), ("kept", self.kept)):
            have = set(map(int, os.listdir(os.path.join(directory, folder))))
            if folder == "new":
                have.discard(beyond)
            found += ["%s/%d" % (folder, n) for n in sorted(have ^ want)]
            found += ["content of %s/%d" % (folder, n) for n in sorted(have & want)
                      if _content(directory, "%s/%d" % (folder, n)) != writer.content(n)]
        return found


def _content(directory, name):
    with open(os.path.join(directory, name), "rb") as f:
        return f.read()


def check(directory):
    """Returns the T for which the directory is the result of operations 1…T. Operation T+1 may be
    done in part: its file created and not yet written. Raises Damage when there is no such T."""
    appended = len(_content(directory, "log")) // writer.RECORD
    problems = []
    for t in range(5 * appended + 4, 5 * appended - 1, -1):
        beyond = t + 1 if writer.kind(t + 1) == "create" else None
        found = _Model(t).differences(directory, beyond)
        if not found:
            partial = os.path.join(directory, "new/%s" % beyond)
            if beyond and os.path.exists(partial) and not writer.content(beyond).startswith(
                    _content(directory, "new/%d" % beyond)):
                raise Damage("new/%d has foreign content" % beyond)
            return t
        problems.append("%d: %s" % (t, ", ".join(found[:6])))
    raise Damage("no prefix of the operations; differences by the last operation: " + "; ".join(problems))
