"""Rewrites large files without sync, then fsyncs them: data that goes past the log. See
harness/bulk.py.

usage: bulk_writer.py DIR FIRST

Operation n rewrites MIB MiB of file n % FILES, from a place that depends on n alone. Then it fsyncs
the file and prints "n". Any error ends the program with exit status 3 and the errno's name on
stderr. Stand-alone.
"""
import errno
import os
import sys

FILES, MIB, BLOCK = 2, 10, 4096
PLACES = 3  # a file is at most MIB + PLACES - 1 MiB long


def block(number):
    return (b"%016d" % number) * (BLOCK // 16)


def place(number):
    """Returns the first byte that operation `number` writes."""
    return (number * 7 % PLACES) << 20


def main():
    os.chdir(sys.argv[1])
    number = int(sys.argv[2])
    while True:
        fd = os.open("bulk%d" % (number % FILES), os.O_CREAT | os.O_WRONLY, 0o644)
        data = block(number) * (256 << 10 >> 12)
        for at in range(0, MIB << 20, len(data)):
            os.pwrite(fd, data, place(number) + at)
        os.fsync(fd)
        os.close(fd)
        os.write(1, b"%d\n" % number)
        number += 1


if __name__ == "__main__":
    try:
        main()
    except OSError as error:
        os.write(2, b"failed: %s\n" % errno.errorcode.get(error.errno, "?").encode())
        sys.exit(3)
