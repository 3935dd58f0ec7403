"""Files of figures: results, and what they were measured with, so that nothing is set beside what was measured on another
machine or with other programs.

A file is one JSON object: `kind` (the benchmark that wrote it), `made` (commit, cpu, cpus, kernel, day, command),
`complete` (false: the run was ended) and `results`, as that benchmark says.
"""
import hashlib
import json
import os
import re
import subprocess
import sys
import time

from harness.run import REPO, HarnessError

SAME = ("commit", "cpu", "cpus", "kernel")  # of `made`, in figures that may stand beside each other


COMMIT = "SALIUS_BENCH_COMMIT"  # in the environment: what `bench.all` found when it began


def _git(*words):
    try:
        done = subprocess.run(["git", "-C", REPO, *words], capture_output=True, text=True, check=False)
    except OSError:
        return None
    return done.stdout if done.returncode == 0 else None


def commit():
    """Of the programs that are measured; None when it is not known. Documents do not count as changes."""
    built = os.path.realpath(os.path.join(REPO, "bazel-out"))
    programs = os.path.realpath(os.environ.get("SALIUS_BIN") or built)
    if not programs.startswith(built):
        return "of the programs in " + programs
    head = _git("rev-parse", "--short=7", "HEAD")
    changes = _git("diff", "HEAD", "--", ".", ":!docs")
    if not head or changes is None:
        return None
    return head.strip() + ("-changed-" + hashlib.sha256(changes.encode()).hexdigest()[:7] if changes else "")


def cpu(text):
    """The CPU that /proc/cpuinfo tells of, with what a hypervisor may leave out of its name."""
    found = dict(reversed(re.findall(r"^(.*?)\s*: (.*)$", text, re.M)))  # of the first one
    if "model name" not in found:
        return os.uname().machine
    vectors = "AVX-512" if " avx512f " in " %s " % found.get("flags", "") else "no AVX-512"
    return "%s (family %s, model %s, %s)" % (found["model name"], found.get("cpu family"), found.get("model"), vectors)


def made():
    """What a run that begins now measures, and on what."""
    with open("/proc/cpuinfo") as f:
        about = f.read()
    words = [w for i, w in enumerate(sys.argv[1:]) if "--json" not in (w, sys.argv[i]) and not w.startswith("--json=")]
    return {"commit": os.environ.get(COMMIT) or commit(), "cpu": cpu(about),
            "cpus": os.cpu_count(), "kernel": os.uname().release, "day": time.strftime("%Y-%m-%d"),
            "command": " ".join(words)}


def difference(one, other):
    """What forbids to set them beside each other, in words; None when nothing does."""
    for name in SAME:
        if one.get(name) != other.get(name) or one.get(name) is None:
            return "%s %s and %s" % (name, one.get(name), other.get(name))
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
        if not other and (found["kind"], found["made"]["command"]) != (self._kind, self._made["command"]):
            other = "%s %s" % (found["kind"], found["made"]["command"])
        if other:
            raise HarnessError("%s has figures of %s; name another file" % (self._path, other))
        return found["results"]

    def save(self, results, complete=False):
        if self._path is None:
            return
        with open(self._path + ".new", "w") as f:
            json.dump({"kind": self._kind, "made": self._made, "complete": complete, "results": results}, f, indent=1)
        os.replace(self._path + ".new", self._path)
