"""The op writer as a process with a ledger, and the exact check of what it left (prefix, I2)."""
import os
import sys
import threading

from harness import bursts, op_writer
from harness.ledger import Ledger
from harness.op_writer import SLOT, SLOTS
from harness.proc import Proc, tail
from harness.run import current, wait_until

SECTOR = 512


class Damage(AssertionError):
    """The directory differs from its required content."""


class OpWriter:
    """Runs operations `first`, … in `directory` until it is killed or an operation fails. With
    `gated` it runs only as many as do() asks for. `wrapper`: words before the program's own,
    eatmydata for the controls, or salius-run."""

    _serial = 0
    program = op_writer.__file__

    def __init__(self, directory, ledger=None, first=1, style="mixed", gated=False, wrapper=()):
        OpWriter._serial += 1
        self.ledger = ledger or Ledger()
        self.first = first
        self.asked = first - 1  # the last operation that do() asked for
        self.log = os.path.join(current().dir, "ops%d.log" % OpWriter._serial)
        self.style = style
        self.proc = Proc([*wrapper, *self.argv(directory, first, style, gated)], self.log, pipe_in=gated, pipe_out=True, group=True)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def argv(self, directory, first, style, gated):
        return [sys.executable, self.program, directory, str(first), style] + ["gated"] * gated

    def _read(self):
        for line in self.proc.popen.stdout:
            if line.endswith("\n"):
                self.ledger.ack(int(line))

    def more(self, count, timeout_s=60):
        """Waits until `count` more operations are acknowledged; raises when the writer failed."""
        try:
            self.ledger.wait_total(self.ledger.total() + count, timeout_s, self.proc.alive)
        except Exception as error:
            raise type(error)("%s; writer: %s" % (error, tail(self.log, 3))) from None

    def do(self, count, timeout_s=60):
        """Makes a gated writer run exactly `count` more operations; raises when it failed."""
        self.asked += count
        want = self.ledger.total() + count
        try:
            self.proc.popen.stdin.write("\n" * count)
        except BrokenPipeError:
            pass  # it has failed, and the wait reports that
        self.ledger.wait_total(want, timeout_s, self.proc.alive)

    def wait_failed(self, timeout_s=30):
        """Waits until an operation fails; returns the errno's name."""
        wait_until(lambda: not self.proc.alive(), timeout_s, "no call failed; %d acknowledged" % self.ledger.total())
        self._reader.join(30)
        return tail(self.log, 1).rpartition("failed: ")[2].strip()

    def kill(self):
        self.proc.kill()
        self._reader.join(30)
        self.proc.popen.stdout.close()
        if self.proc.popen.stdin:
            try:
                self.proc.popen.stdin.close()
            except BrokenPipeError:
                pass  # operations that were still requested


class _Model:
    """The content of the directory after operations 1…t."""

    def __init__(self, t, style):
        self.slots, self.new, self.kept = {}, set(), set()
        for n in range(1, t + 1):
            what = op_writer.kind(n, style)
            if what in ("osync", "fsync"):
                self.slots[n % SLOTS] = n
            elif what == "create":
                self.new.add(n)
            elif what == "rename" and n - 1 in self.new:
                self.new.discard(n - 1)
                self.kept.add(n - 1)


def check(directory, ledger, style="mixed", torn=False):
    """Raises Damage unless the directory is exactly the result of operations 1…T, where T is the
    last acknowledged one. Operation T+1 may be done, not done or done in part (create, write and
    fsync are three calls; of a burst the first calls). With `torn` it may also be torn, sector by sector, as a bare file system
    leaves it. Returns T."""
    acked = ledger.acked()
    last = max(acked, default=0)
    if acked != set(range(1, last + 1)):
        raise Damage("harness: acknowledgements have gaps")
    now, after = _Model(last, style), _Model(last + 1, style)
    _check_slots(os.path.join(directory, "slots"), now, after, torn)
    new, kept = (set(map(int, os.listdir(os.path.join(directory, d)))) for d in ("new", "kept"))
    if new not in (now.new, after.new) or kept not in (now.kept, after.kept):
        raise Damage("after operation %d: new/ lacks %s and has too much: %s; kept/ lacks %s and has too much: %s" % (
            last, sorted(now.new - new)[:9], sorted(new - now.new)[:9], sorted(now.kept - kept)[:9],
            sorted(kept - now.kept)[:9]))
    for folder, names in (("new", new), ("kept", kept)):
        for n in names:
            path = os.path.join(directory, folder, str(n))
            with open(path, "rb") as f:
                data = f.read()
            want = op_writer.content(n)
            if data != want and not (n == last + 1 and (torn or want.startswith(data))):
                raise Damage("%s holds %r… (%d bytes), not %r… (%d)" % (
                    path, data[:16], len(data), want[:16], len(want)))
            if os.stat(path).st_mode & 0o7777 != 0o640:
                raise Damage("%s has mode %o" % (path, os.stat(path).st_mode))
    if style == "early":
        _check_bursts(os.path.join(directory, "burst"), last)
    return last


def _check_bursts(path, last):
    following = op_writer.kind(last + 1, "early") == "burst"
    number = last + 1 if following else last - (last - bursts.FIRST) % bursts.STEP
    if number < bursts.FIRST:
        return
    try:
        done = bursts.position(path, number)
    except ValueError as error:
        raise Damage("after operation %d: %s" % (last, error)) from None
    if not following and done < len(bursts.calls(number)):
        raise Damage("after operation %d: burst %d ends after call %d" % (last, number, done))


def _is_mixed(got, wholes):
    """Returns whether each sector of `got` comes from one of `wholes`."""
    return all(any(got[at:at + SECTOR] == whole.ljust(SLOT, b"\0")[at:at + SECTOR] for whole in wholes)
               for at in range(0, len(got), SECTOR))


def _check_slots(path, now, after, torn):
    if not now.slots and not os.path.exists(path):
        return
    with open(path, "rb") as f:
        data = f.read()
    for slot in range(SLOTS):
        got = data[slot * SLOT:(slot + 1) * SLOT]
        allowed = {op_writer.body(m.slots[slot]) if slot in m.slots else b"" for m in (now, after)}
        if got in allowed or (b"" in allowed and not got.strip(b"\0")):
            continue
        if torn and len(allowed) == 2 and _is_mixed(got, allowed):
            continue
        raise Damage("slot %d holds operation %r (%d bytes), not %s" % (
            slot, got[:16], len(got), sorted(a[:16] for a in allowed)))
