"""Numbered operations that wait for nothing, on a mount with commit=ordered.

usage: ordered_writer.py DIR FIRST

Operation n depends on n alone (harness/ordered.py holds the model and the check):

  n % 5 == 0  append to log
  n % 5 == 1  O_SYNC overwrite of slot n % SLOTS of slots
  n % 5 == 2  create new/n (it may be there in part, after a crash) with content, fsync
  n % 5 == 3  rename new/n-1 to kept/n-1, fsync of kept/
  n % 5 == 4  remove kept/n-12

Prints "done n" when the operation has returned, "dsync n" when a dsync after it has, and "told n"
when the eventfd of a notification after it was signalled. An osync follows some operations. Any
error ends the program with exit status 3. Stand-alone.
"""
import errno
import os
import select
import sys
import threading

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "client/api/python"))

import salius  # noqa: E402

RECORD, SLOTS, SLOT = 64, 16, 4096
REMOVED_AFTER = 12
OSYNC_EVERY, NOTIFY_EVERY, DSYNC_EVERY = 3, 7, 53
KINDS = ("append", "slot", "create", "rename", "remove")


def kind(number):
    return KINDS[number % 5]


def record(number):
    return (b"%016d" % number) * (RECORD // 16)


def slot(number):
    return (b"%016d" % number) * (SLOT // 16)


def content(number):
    """Returns the content of the file that operation `number` creates: one record of the log."""
    return (b"%016d" % number) * (1 + number * 31 % 200)


def run(number, log, slots, kept):
    what = kind(number)
    if what == "append":
        os.write(log, record(number))
    elif what == "slot":
        os.pwrite(slots, slot(number), number % SLOTS * SLOT)
    elif what == "create":
        fd = os.open("new/%d" % number, os.O_CREAT | os.O_TRUNC | os.O_WRONLY, 0o640)
        os.write(fd, content(number))
        os.fsync(fd)
        os.close(fd)
    elif what == "rename":
        os.rename("new/%d" % (number - 1), "kept/%d" % (number - 1))
        os.fsync(kept)
    elif number > REMOVED_AFTER:
        os.unlink("kept/%d" % (number - REMOVED_AFTER))


def say(word, number):
    os.write(1, b"%s %d\n" % (word, number))


class Notified(threading.Thread):
    """Reports the eventfds that were signalled, each after a wait that says whether it was a success."""

    def __init__(self):
        super().__init__(daemon=True)
        self._poll, self._waits = select.epoll(), {}

    def add(self, file, number):
        event = os.eventfd(0, os.EFD_NONBLOCK)
        ticket = salius.notify(file, event)
        self._waits[event] = (file, ticket, number)
        self._poll.register(event, select.EPOLLIN)

    def run(self):
        while True:
            for event, _ in self._poll.poll():
                assert os.eventfd_read(event) == 1
                file, ticket, number = self._waits.pop(event)
                os.close(event)
                try:
                    salius.wait(file, ticket, 0)
                except OSError as error:
                    if error.errno != errno.EIO:
                        raise
                    return  # the volume has failed: no success any more
                say(b"told", number)


def main():
    os.chdir(sys.argv[1])
    number = int(sys.argv[2])
    for name in ("new", "kept"):
        os.makedirs(name, exist_ok=True)
    log = os.open("log", os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o644)
    slots = os.open("slots", os.O_CREAT | os.O_WRONLY | os.O_SYNC, 0o644)
    kept = os.open("kept", os.O_RDONLY)
    files = (log, slots, kept)
    for file in files:
        salius.dsync(file)
    notified = Notified()
    notified.start()
    while True:
        run(number, log, slots, kept)
        say(b"done", number)
        file = files[number % 3]
        if number % OSYNC_EVERY == 0:
            salius.osync(file)
        if kind(number) in ("append", "slot", "rename"):
            touched = {"append": log, "slot": slots, "rename": kept}[kind(number)]
            if number % NOTIFY_EVERY == 0:
                notified.add(touched, number)
            if number % DSYNC_EVERY == 0:
                salius.dsync(touched)
                say(b"dsync", number)
        number += 1


if __name__ == "__main__":
    try:
        main()
    except OSError as error:
        os.write(2, b"failed: %s\n" % str(error).encode())
        sys.exit(3)
