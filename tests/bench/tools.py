"""Finds the programs of //tests/bench."""
import os

from harness.run import REPO, HarnessError


def tool(name):
    """Returns the path of a program of //tests/bench: the same one whatever build is measured
    (SALIUS_TOOLS)."""
    root = os.environ.get("SALIUS_TOOLS") or os.environ.get("SALIUS_BIN") or os.path.join(REPO, "bazel-bin")
    for path in (os.path.join(root, "tests/bench", name), os.path.join(root, os.path.basename(name))):
        if os.access(path, os.X_OK):
            return path
    raise HarnessError("%s is not built under %s: bazel build //tests/bench/..." % (name, root))
