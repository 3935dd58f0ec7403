"""Two suites by others, pjdfstest and fsx, built from crates.io at fixed versions. Their
dependencies have the versions of their release (--locked).

They need a newer Rust than Debian 12's own (1.63). Unless a newer cargo exists, the stage installs
Debian's rustc-web and cargo-web from the security archive. Built once; kept in SALIUS_CARGO_DIR, or
~/.cache/salius-crates.
"""
import os
import shutil
import subprocess

CRATES = {"pjdfstest": "0.2.2", "fsx": "0.3.2"}


def root():
    return os.environ.get("SALIUS_CARGO_DIR", os.path.expanduser("~/.cache/salius-crates"))


def program(name):
    """Returns the path of the built program; raises RuntimeError with the reason if there is
    none."""
    version = CRATES[name]
    place = os.path.join(root(), "%s-%s" % (name, version))
    path = os.path.join(place, "bin", name)
    if os.access(path, os.X_OK):
        return path
    cargo = shutil.which("cargo") or shutil.which("cargo", path=os.path.expanduser("~/.cargo/bin"))
    if cargo is None:
        raise RuntimeError("%s %s: no cargo; install rustc-web and cargo-web, or rustup" % (name, version))
    done = subprocess.run([cargo, "install", "--locked", "--root", place, "%s@%s" % (name, version)],
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode != 0:
        raise RuntimeError("cargo install %s@%s failed:\n%s" % (name, version, done.stdout[-4000:]))
    return path


if __name__ == "__main__":
    for crate in CRATES:
        print(program(crate))
