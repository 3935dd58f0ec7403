#!/bin/sh
# Whole machines as QEMU guests, whose plug is pulled. Arguments go to the harness (--long, --seed
# N, -k NAME). Needs root, the built binaries (SALIUS_BIN or bazel-bin), and Debian's cloud kernel
# (it is downloaded).
set -eu
cd "$(dirname "$0")/.."
exec /usr/bin/python3 -m harness machine "$@"
