"""Attempts of another user, to whom nothing of Salius belongs, to reach its files and sockets."""
import contextlib
import json
import os
import stat
import sys

from harness.run import sh
from harness.volume import in_netns

AS_STRANGER = ["setpriv", "--reuid", "nobody", "--regid", "nogroup", "--clear-groups"]

_ATTEMPTS = """
import errno, json, os, socket, sys
done = []
for path, kind in json.load(sys.stdin):
    if kind == "socket":
        for type_ in (socket.SOCK_STREAM, socket.SOCK_SEQPACKET):
            with socket.socket(socket.AF_UNIX, type_) as s:
                try:
                    s.connect(path)
                    done.append("connects to " + path)
                except OSError as error:
                    if error.errno not in (errno.EACCES, errno.EPROTOTYPE, errno.ECONNREFUSED, errno.ENOENT):
                        raise
        continue
    for what, flags in (("reads ", os.O_RDONLY), ("writes ", os.O_WRONLY)):
        if kind == "directory" and flags == os.O_RDONLY:
            continue  # names tell nothing
        try:
            if kind == "directory":
                os.close(os.open(os.path.join(path, "of-a-stranger"), os.O_CREAT | os.O_EXCL | os.O_WRONLY))
            else:
                os.close(os.open(path, flags | os.O_NONBLOCK | os.O_NOFOLLOW))
            done.append(what + path)
        except (PermissionError, FileNotFoundError):
            pass  # programs remove temporary files
print(json.dumps(done))
"""


def files_below(*folders):
    """Returns (path, kind) of all below the folders, and of the folders. Kinds: file, directory,
    socket."""
    found = []
    for folder in folders:
        found.append((folder, "directory"))
        for parent, folders_in, names in os.walk(folder):
            found += [(os.path.join(parent, name), "directory") for name in folders_in]
            for name in names:
                path = os.path.join(parent, name)
                with contextlib.suppress(FileNotFoundError):  # a temporary file
                    found.append((path, "socket" if stat.S_ISSOCK(os.lstat(path).st_mode) else "file"))
    return found


def open_files(pid):
    """Returns (path, "file") of the regular files that a process has open and that have a name."""
    found = set()
    for name in os.listdir("/proc/%d/fd" % pid):
        link = "/proc/%d/fd/%s" % (pid, name)
        try:
            path = os.readlink(link)
            if path.startswith("/") and os.path.samestat(os.stat(link), os.lstat(path)) and os.path.isfile(path):
                found.add((path, "file"))
        except FileNotFoundError:
            pass  # closed meanwhile, or without a name
    return sorted(found)


def reached(entries):
    """Returns what the other user can do with them, a text for each: reads, writes, connects."""
    done = sh(*AS_STRANGER, sys.executable, "-c", _ATTEMPTS, input=json.dumps(entries))
    return json.loads(done.stdout)


def run(*words, netns=None):
    """Runs a program as the other user; returns CompletedProcess."""
    return sh(*in_netns(netns), *AS_STRANGER, *words, check=False)
