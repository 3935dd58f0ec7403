"""Files of figures: results, with their origin, so that figures of different machines or programs
are never compared.

A file is one JSON object: `kind` (the benchmark that wrote it), `made` (commit, cpu, cpus, kernel,
day, command), `complete` (false: the run was interrupted) and `results`, in that benchmark's form.
"""
import hashlib
import json
import os
import re
import subprocess
import sys
import time

from harness.run import REPO, HarnessError

# Fields of `made` that must be equal in figures that are compared.
SAME = ("commit", "cpu", "cpus", "kernel")


COMMIT = "SALIUS_BENCH_COMMIT"  # in the environment: the commit when `bench.all` began


def _git(*words):
    try:
        done = subprocess.run(["git", "-C", REPO, *words], capture_output=True, text=True, check=False)
    except OSError:
        return None
    return done.stdout if done.returncode == 0 else None


def commit():
    """Returns the commit of the measured programs; None when it is unknown. Documents do not count
    as changes."""
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
    """Returns the CPU that /proc/cpuinfo describes, with facts that a hypervisor may leave out of
    its name."""
    found = dict(reversed(re.findall(r"^(.*?)\s*: (.*)$", text, re.M)))  # of the first CPU
    if "model name" not in found:
        return os.uname().machine
    vectors = "AVX-512" if " avx512f " in " %s " % found.get("flags", "") else "no AVX-512"
    return "%s (family %s, model %s, %s)" % (found["model name"], found.get("cpu family"), found.get("model"), vectors)


def made():
    """Returns the programs, machine and command of a run that begins now."""
    with open("/proc/cpuinfo") as f:
        about = f.read()
    words = [w for i, w in enumerate(sys.argv[1:]) if "--json" not in (w, sys.argv[i]) and not w.startswith("--json=")]
    return {"commit": os.environ.get(COMMIT) or commit(), "cpu": cpu(about),
            "cpus": os.cpu_count(), "kernel": os.uname().release, "day": time.strftime("%Y-%m-%d"),
            "command": " ".join(words)}


def difference(one, other):
    """Returns why two sets of figures must not be compared, in words; None when they may."""
    for name in SAME:
        if one.get(name) != other.get(name) or one.get(name) is None:
            return "%s %s and %s" % (name, one.get(name), other.get(name))
    return None


def read(path):
    """Returns the object in a file. HarnessError when it holds no figures."""
    try:
        with open(path) as f:
            read_ = json.load(f)
    except (OSError, ValueError) as error:
        raise HarnessError("%s: %s" % (path, error)) from None
    if not isinstance(read_, dict) or not {"kind", "made", "complete", "results"} <= set(read_):
        raise HarnessError("%s does not hold figures of a benchmark" % path)
    return read_


class File:
    """The file to which a run writes its results one by one; none when `path` is None."""

    def __init__(self, path, kind):
        self._path, self._kind, self._made = path, kind, made()

    def earlier(self):
        """Returns the results of an interrupted run like this one; [] when there is none.
        HarnessError when the file belongs to another run."""
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
