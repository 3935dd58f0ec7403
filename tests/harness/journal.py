"""The progress of a long run, so that a run that was ended continues where it was.

With SALIUS_LONG_DIR set, tests keep their progress there. tests/run.sh --long sets it, to a
directory of the commit under test. Without it nothing is kept and nothing is found.
"""
import fcntl
import json
import os
import threading


class Journal:
    """Keys and JSON values, each on the disk when put() returns. One process at a time may use
    it."""

    def __init__(self, path=None):
        self._values, self._file, self._lock = {}, None, threading.Lock()
        if path is None:
            return
        os.makedirs(os.path.dirname(path), exist_ok=True)
        self._file = open(path, "a+", encoding="utf-8")
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise SystemExit("%s is in use by another run: let it end, or set another SALIUS_LONG_DIR" % path) from None
        self._file.seek(0)
        for line in self._file.read().splitlines():
            try:
                key, value = json.loads(line)
            except ValueError:  # cut off by the end of that run
                continue
            self._values[key] = value

    def get(self, key, default=None):
        return self._values.get(key, default)

    def put(self, key, value):
        with self._lock:
            self._values[key] = value
            if self._file is None:
                return
            # Begin a new line, in case the last one was cut off.
            self._file.write("\n" + json.dumps([key, value]) + "\n")
            self._file.flush()
            os.fsync(self._file.fileno())


def of_run(paths):
    """Returns the journal of a harness run of these tests."""
    folder = os.environ.get("SALIUS_LONG_DIR")
    return Journal(os.path.join(folder, "-".join(paths).replace("/", ".") + ".jsonl") if folder else None)
