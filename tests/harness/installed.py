"""deploy/install.sh with the programs that were built."""
import os

from harness.run import binary

SCRIPT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../deploy/install.sh")
PLACES = ("replica/salius-replica", "recovery/salius-recover", "client/cli/salius", "client/mount/salius-mount",
          "client/run/salius-run", "client/preload/libsalius_preload.so", "client/api/libsalius.so")


def link_built(place):
    """Makes what `install.sh --from` expects in the directory `place`, wherever the programs are."""
    for path in PLACES:
        os.makedirs(os.path.join(place, os.path.dirname(path)), exist_ok=True)
        os.symlink(binary(os.path.basename(path)), os.path.join(place, path))
