#!/bin/sh
# Builds the programs and runs the benchmarks; docs/performance.md explains them. Needs root.
#
#   tests/bench/run.sh [--smoke] [floor|slow-disk|recovery]...     (--help for the rest)
set -eu
cd "$(dirname "$0")/../.."
if [ -z "${SALIUS_BIN:-}" ]; then
  bazel build --color=no --noshow_progress //client/cli:salius //client/fuse:salius-mount \
    //replica:salius-replica //recovery:salius-recover //tests/bench/...
fi
cd tests
exec /usr/bin/python3 -m bench "$@"
