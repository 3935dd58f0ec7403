"""The program file_writer.c as a process with a ledger, and the check of what it left."""
import os

from harness import ops
from harness.run import current, sh

HOWS = ("osync", "fsync", "position", "append", "create")
SIZE, UNIT, SLOTS = 512, 32, 32


def build():
    """Compiles the program; call it once, before the first writer."""
    sh("cc", "-O1", "-Wall", "-Werror", "-o", _program(), os.path.join(os.path.dirname(__file__), "file_writer.c"))


def _program():
    return os.path.join(current().dir, "file_writer")


class FileWriter(ops.OpWriter):
    """A gated writer. `ident`: its letter; `first_slot`: of its SLOTS ones."""

    def __init__(self, directory, ledger, first, how, ident, first_slot, wrapper=()):
        self._more = [ident, str(first_slot)]
        super().__init__(directory, ledger, first, how, True, wrapper)

    def argv(self, directory, first, style, gated):
        return [_program(), directory, str(first), style, *self._more]

    def ask(self):
        """Asks for one operation, and does not wait."""
        self.asked += 1
        self.proc.popen.stdin.write("\n")


def body(ident, number):
    return (b"%s %*d\n" % (ident.encode(), UNIT - 2 - len(ident), number)) * (SIZE // UNIT)


class Wanted:
    """The operations that one writer was asked for: {number: how}."""

    def __init__(self, ident, first_slot):
        self.ident, self.first_slot = ident, first_slot
        self.asked = {}

    def _numbers(self, acked, *hows):
        """Returns (those acknowledged, the others) of these kinds."""
        mine = {n for n, how in self.asked.items() if how in hows}
        return mine & acked, mine - acked

    def check_slots(self, data, acked):
        done, others = self._numbers(acked, "osync", "fsync", "position")
        for slot in range(SLOTS):
            at = (self.first_slot + slot) * SIZE
            newest = max((n for n in done if n % SLOTS == slot), default=0)
            allowed = [newest] + [n for n in others if n % SLOTS == slot and n > newest]
            bodies = [body(self.ident, n) if n else b"" for n in allowed]
            if data[at:at + SIZE].rstrip(b"\0") not in bodies:
                raise ops.Damage("slot %d of %s holds %r, not one of %s" % (slot, self.ident, data[at:at + UNIT], allowed))

    def check_log(self, records, acked):
        done, _ = self._numbers(acked, "append")
        wrong = [n for n in done if records.count(body(self.ident, n)) != 1]
        if wrong:
            raise ops.Damage("of the records that %s appended these are not there once: %s" % (self.ident, wrong[:8]))

    def check_new(self, directory, acked):
        for n in self._numbers(acked, "create")[0]:
            with open(os.path.join(directory, "new-%s-%d" % (self.ident, n)), "rb") as f:
                if f.read() != body(self.ident, n):
                    raise ops.Damage("new-%s-%d has other bytes than were written" % (self.ident, n))


def check(directory, wanted):
    """Raises Damage unless everything acknowledged is in the directory. `wanted`: {Wanted:
    Ledger}."""
    content = {}
    for name in ("slots", "log"):
        path = os.path.join(directory, name)
        content[name] = b""
        if os.path.exists(path):
            with open(path, "rb") as f:
                content[name] = f.read()
    records = [content["log"][at:at + SIZE] for at in range(0, len(content["log"]), SIZE)]
    known = {body(each.ident, n) for each in wanted for n in each.asked}
    strange = [n for n, record in enumerate(records) if record.strip(b"\0") and record not in known]
    if strange:
        raise ops.Damage("record %d of the log is %r" % (strange[0], records[strange[0]][:UNIT]))
    for each, ledger in wanted.items():
        each.check_slots(content["slots"], ledger.acked())
        each.check_log(records, ledger.acked())
        each.check_new(directory, ledger.acked())
