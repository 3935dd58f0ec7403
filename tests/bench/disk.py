"""A disk's own figures, which are printed with every result on a model disk."""
from bench.tools import tool
from harness.run import HarnessError, sh


def measure(device, each_ms):
    """Measures a block device, whose content is lost, `each_ms` for each figure. Returns
    [(call, pattern, requests outstanding, bytes of a request, requests per second)]."""
    printed = sh(tool("disk_model/disk_figures"), "--each-ms", each_ms, device, timeout=60 + 8 * each_ms / 1000).stdout
    found = [line.split() for line in printed.splitlines()]
    if len(found) != 8:
        raise HarnessError("disk_figures printed %d lines:\n%s" % (len(found), printed))
    return [(call, pattern, int(depth), int(size), float(rate)) for call, pattern, depth, size, rate in found]


def rows(figures):
    """Returns rows of a table, its heading first: rates with one request outstanding and with 32."""
    table = [("the disk alone", "one request outstanding", "32 outstanding")]
    by = {(call, pattern, depth): (size, rate) for call, pattern, depth, size, rate in figures}
    for call, pattern in dict.fromkeys((call, pattern) for call, pattern, *_ in figures):
        cells = []
        for depth in (1, 32):
            size, rate = by[call, pattern, depth]
            cells.append("%.0f MiB/s" % (size * rate / (1 << 20)) if pattern == "sequential" else "%.0f a second" % rate)
        size, _ = by[call, pattern, 1]
        table.append(("%s %ss of %d KiB" % (pattern, call, size >> 10), *cells))
    return table
