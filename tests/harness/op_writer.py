"""Numbered operations on a directory, in order, each acknowledged on stdout when durable by
contract.

usage: op_writer.py DIR FIRST [STYLE [gated]]     STYLE: mixed (default), slots (overwrites only), early

`gated`: one operation for each line of stdin; the program ends with its input. Operation n depends
on n alone (harness/ops.py holds the model and the check):

  slots:  O_SYNC overwrite of slot n % SLOTS of one file
  mixed:  n % 4 == 0  O_SYNC overwrite of a slot
          n % 4 == 1  write of a slot through another open file, fsync
          n % 4 == 2  create new/N with content, fsync
          n % 4 == 3  rename new/N-1 to kept/N-1, fsync of kept/
  early:  the same for n % 5; and
          n % 5 == 4  a burst of names and attributes in burst/ (bursts.py), one fsync

Any error ends the program with exit status 3 and the errno's name on stderr. Stand-alone.
"""
import errno
import os
import sys

if __name__ == "__main__":
    sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from harness import bursts  # noqa: E402

SLOTS, SLOT = 48, 4096


def body(number):
    """Returns the data that operation `number` writes: exactly SLOT bytes, unique to it."""
    return (b"%016d" % number) * (SLOT // 16)


def content(number):
    """Returns the content of the file that operation `number` creates: 16 to 3,200 bytes."""
    return (b"%016d" % number) * (1 + number * 31 % 200)


def kind(number, style):
    if style == "slots":
        return "osync"
    if style == "early":
        return ("osync", "fsync", "create", "rename", "burst")[number % 5]
    return ("osync", "fsync", "create", "rename")[number % 4]


def run(number, style, slots, plain, kept):
    what = kind(number, style)
    if what == "osync":
        os.pwrite(slots, body(number), number % SLOTS * SLOT)
    elif what == "fsync":
        os.pwrite(plain, body(number), number % SLOTS * SLOT)
        os.fsync(plain)
    elif what == "create":
        fd = os.open("new/%d" % number, os.O_CREAT | os.O_TRUNC | os.O_WRONLY, 0o640)
        os.write(fd, content(number))
        os.fsync(fd)
        os.close(fd)
    elif what == "burst":
        bursts.run("burst", number)
    else:
        try:
            os.rename("new/%d" % (number - 1), "kept/%d" % (number - 1))
        except FileNotFoundError:  # a crash interrupted this operation after it was done
            os.stat("kept/%d" % (number - 1))
        os.fsync(kept)


def main():
    os.chdir(sys.argv[1])
    first, style = int(sys.argv[2]), sys.argv[3] if len(sys.argv) > 3 else "mixed"
    for name in ("new", "kept") + ("burst",) * (style == "early"):
        os.makedirs(name, exist_ok=True)
    slots = os.open("slots", os.O_CREAT | os.O_WRONLY | os.O_SYNC, 0o644)
    plain = os.open("slots", os.O_WRONLY)
    kept = os.open("kept", os.O_RDONLY)
    number = first
    for _ in sys.stdin if sys.argv[4:] == ["gated"] else iter(int, 1):
        run(number, style, slots, plain, kept)
        os.write(1, b"%d\n" % number)
        number += 1


if __name__ == "__main__":
    try:
        main()
    except OSError as error:
        os.write(2, b"failed: %s\n" % errno.errorcode.get(error.errno, "?").encode())
        sys.exit(3)
