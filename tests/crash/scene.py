"""The changes that the crash tests make on a volume, and the comparison of two trees."""
import hashlib
import os


def name_changes(site):
    """Puts names on the disk that the log then changes: a removed one, a file that moves, two
    directories that exchange places, one taken over by another, attributes, a file made shorter."""
    for name in ("a", "b", "old"):
        os.mkdir(site.file(name))
        with open(site.file(name + "/in-" + name), "w"):
            pass
    for name in ("doomed", "left", "long"):
        with open(site.file(name), "w") as f:
            f.write(name * 500)
    site.wait_applied()
    site.sync_disk()
    os.rename(site.file("left"), site.file("right"))
    os.unlink(site.file("doomed"))
    os.rename(site.file("a"), site.file("swap"))
    os.rename(site.file("b"), site.file("a"))
    os.rename(site.file("swap"), site.file("b"))
    os.rename(site.file("old"), site.file("moved"))
    os.mkdir(site.file("old"))
    os.symlink("right", site.file("symbolic"))
    os.link(site.file("right"), site.file("hard"))
    os.truncate(site.file("long"), 700)
    os.setxattr(site.file("long"), "user.crash", b"test")
    os.chmod(site.file("long"), 0o604)
    with open(site.file("empty"), "w"):
        pass
    site.sync_dir()


def check_name_changes(top):
    """Raises AssertionError unless the result of name_changes() is complete."""
    inside = {name: os.listdir(os.path.join(top, name)) for name in ("a", "b", "old", "moved")}
    assert inside == {"a": ["in-b"], "b": ["in-a"], "old": [], "moved": ["in-old"]}, inside
    for name in ("doomed", "swap", "left"):
        assert not os.path.lexists(os.path.join(top, name)), name
    for name in ("right", "hard", "symbolic"):
        with open(os.path.join(top, name)) as f:
            assert f.read() == "left" * 500, name
    path = os.path.join(top, "long")
    with open(path) as f:
        assert f.read() == ("long" * 500)[:700]
    assert os.stat(path).st_mode & 0o7777 == 0o604
    assert os.getxattr(path, "user.crash") == b"test"


def tree(top, times=True):
    """Returns {path: all facts about it} of a backing directory without `.salius/`. The times of
    directories are left out: recovery sets them where it corrects names. Without `times` those of
    files are left out too."""
    found = {}
    for folder, dirs, files in os.walk(top):
        if folder == top and ".salius" in dirs:
            dirs.remove(".salius")
        for name in dirs + files:
            path = os.path.join(folder, name)
            st = os.lstat(path)
            what = [st.st_mode, st.st_uid, st.st_gid]
            if os.path.islink(path):
                what.append(os.readlink(path))
            elif os.path.isfile(path):
                with open(path, "rb") as f:
                    what += [st.st_size, st.st_nlink, times and st.st_mtime_ns, hashlib.sha256(f.read()).hexdigest()]
            what += [(x, os.getxattr(path, x, follow_symlinks=False))
                     for x in sorted(os.listxattr(path, follow_symlinks=False))]
            found[os.path.relpath(path, top)] = what
    return found


def difference(want, got):
    """Returns text that names the differences; empty when there are none."""
    lines = ["%s: %s, not %s" % (path, got.get(path, "missing"), want.get(path, "missing"))
             for path in sorted(set(want) | set(got)) if want.get(path) != got.get(path)]
    return "\n".join(lines[:8])
