#!/bin/sh
# Programs, and SQLite and PostgreSQL through real power cuts. Arguments go to the harness (--long, --seed N,
# -k NAME). Needs root and the built binaries (SALIUS_BIN or bazel-bin).
set -eu
cd "$(dirname "$0")/.."
exec /usr/bin/python3 -m harness apps "$@"
