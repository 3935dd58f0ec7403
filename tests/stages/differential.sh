#!/bin/sh
# The same random operations on a mount and on a bare ext4 and xfs; everything that programs see is
# compared. Arguments go to the harness (--long, --seed N, -k NAME). Needs root and the built
# programs (SALIUS_BIN or bazel-bin).
set -eu
cd "$(dirname "$0")/.."
exec /usr/bin/python3 -m harness differential "$@"
