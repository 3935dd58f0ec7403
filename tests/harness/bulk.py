"""The bulk writer as a process with a ledger, and the check of the files it left."""
import os

from harness import bulk_writer
from harness.bulk_writer import BLOCK, FILES, MIB, PLACES
from harness.ops import Damage, OpWriter


class BulkWriter(OpWriter):
    """Runs operations `first`, … in `directory` until it is killed or an operation fails."""

    program = bulk_writer.__file__


def check(directory, ledger):
    """Raises Damage unless every block holds allowed data. That is the data of the last
    acknowledged operation on it, or of a later one that was not acknowledged (its data was not
    synced: any subset of it may be there). Returns the number of the last acknowledged
    operation."""
    acked = ledger.acked()
    last = max(acked, default=0)
    if acked != set(range(1, last + 1)):
        raise Damage("harness: acknowledgements have gaps")
    for name in range(FILES):
        path = os.path.join(directory, "bulk%d" % name)
        if last < FILES and not os.path.exists(path):
            continue
        with open(path, "rb") as f:
            data = f.read()
        for at in range(0, (MIB + PLACES - 1) << 20, BLOCK):
            mine = [n for n in range(max(1, last - FILES * PLACES * 2), last + 1)
                    if n % FILES == name and bulk_writer.place(n) <= at < bulk_writer.place(n) + (MIB << 20)]
            want = {bulk_writer.block(mine[-1]) if mine else b""}
            if (last + 1) % FILES == name:
                want.add(bulk_writer.block(last + 1))
            got = data[at:at + BLOCK]
            if got in want or (b"" in want and not got.strip(b"\0")):
                continue
            raise Damage("%s at %d holds operation %r, not %s" % (path, at, got[:16], sorted(w[:16] for w in want)))
    return last
