"""Files of figures: results, and what they were measured with, so that nothing is set beside what was measured on another
machine or with other programs.

A file is one JSON object: `kind` (the benchmark that wrote it), `made` (commit, cpu, cpus, kernel, day, command),
`complete` (false: the run was ended; most go on where they were) and `results`, as that benchmark says.
"""
import json
import os
import re
import subprocess
import sys
import time

from harness.run import REPO, HarnessError

SAME = ("commit", "cpu", "cpus", "kernel")  # of `made`, in figures that may stand beside each other


def _git(*words):
    done = subprocess.run(["git", "-C", REPO, *words], capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else None


def _commit():
    """Of the programs that are measured, as far as it is known."""
    built = os.path.realpath(os.path.join(REPO, "bazel-out"))
    if not os.path.realpath(os.environ.get("SALIUS_BIN") or built).startswith(built):
        return "of other programs (SALIUS_BIN)"
    commit = _git("rev-parse", "--short=7", "HEAD")
    return commit and commit + ("-changed" if _git("status", "--porcelain") else "")


def made():
    """What a run that begins now measures, and on what."""
    with open("/proc/cpuinfo") as f:
        cpu = re.search(r"^model name\s*: (.*)$", f.read(), re.M)
    words = [w for i, w in enumerate(sys.argv[1:]) if "--json" not in (w, sys.argv[i]) and not w.startswith("--json=")]
    return {"commit": _commit(), "cpu": cpu.group(1) if cpu else os.uname().machine, "cpus": os.cpu_count(),
            "kernel": os.uname().release, "day": time.strftime("%Y-%m-%d"), "command": " ".join(words)}


def difference(one, other):
    """What forbids to set them beside each other, in words; None when nothing does."""
    for name in SAME:
        if one[name] != other[name]:
            return "%s %s and %s" % (name, one[name], other[name])
    return None


def read(path):
    """The object in a file. HarnessError when it is none of figures."""
    try:
        with open(path) as f:
            read_ = json.load(f)
    except (OSError, ValueError) as error:
        raise HarnessError("%s: %s" % (path, error)) from None
    if not isinstance(read_, dict) or not {"kind", "made", "complete", "results"} <= set(read_):
        raise HarnessError("%s does not hold figures of a benchmark" % path)
    return read_


class File:
    """Where a run writes its results as it gets them; nowhere when `path` is None."""

    def __init__(self, path, kind):
        self._path, self._kind, self._made = path, kind, made()

    def earlier(self):
        """The results of a run like this one that was ended; [] when there was none. HarnessError when the file is another's."""
        if self._path is None or not os.path.exists(self._path):
            return []
        found = read(self._path)
        other = difference(found["made"], self._made)
        if found["kind"] != self._kind or other:
            raise HarnessError("%s has figures of %s; name another file" % (self._path, other or found["kind"]))
        return found["results"]

    def save(self, results, complete=False):
        if self._path is None:
            return
        with open(self._path + ".new", "w") as f:
            json.dump({"kind": self._kind, "made": self._made, "complete": complete, "results": results}, f, indent=1)
        os.replace(self._path + ".new", self._path)
