#!/bin/sh
# Two hundred volumes on one replica, from as many sessions. Arguments go to the harness (--long,
# --seed N, -k NAME). Needs root and the built programs (SALIUS_BIN or bazel-bin).
set -eu
cd "$(dirname "$0")/.."
exec /usr/bin/python3 -m harness load "$@"
