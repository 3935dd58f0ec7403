"""Runs the checks of ops.py and sqlite.py as a program, for use inside a guest.

usage: guest_check.py {ops DIRECTORY | torn-ops DIRECTORY | sqlite DATABASE} LAST

LAST is the last acknowledged number, from 1 on. With torn-ops the operation after it may be torn.
Prints the number of the last operation (row) that it found. If the state is wrong, it prints the
difference and exits with status 1.
"""
import functools
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from harness import ops, sqlite  # noqa: E402
from harness.ledger import Ledger  # noqa: E402


def main():
    what, path, last = sys.argv[1], sys.argv[2], int(sys.argv[3])
    ledger = Ledger()
    for number in range(1, last + 1):
        ledger.ack(number)
    check = {"ops": ops.check, "torn-ops": functools.partial(ops.check, torn=True), "sqlite": sqlite.check}[what]
    try:
        print(check(path, ledger))
    except (ops.Damage, sqlite.Damage, OSError) as error:
        print("%s: %s" % (type(error).__name__, error))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
