#!/bin/sh
# Builds the programs and runs the benchmarks; docs/performance.md explains them. Needs root.
#
#   tests/bench/run.sh [--smoke] [floor|patterns|writers|slow-disk|recovery|reattach|trees]...
#                                  the bars (--help for the rest)
#   tests/bench/run.sh matrix|compare|peers|applications ...
#                                  the others (each has --help)
#   tests/bench/run.sh all DIR     all of them except compare, their figures into DIR, and the bars
#                                  judged from them
#   tests/bench/run.sh bars DIR    judges them again
#   tests/bench/run.sh report DIR  writes the tables and plots of docs/results from them
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
case "${1:-}" in
  all | bars | matrix | compare | peers | applications | report)
    module=bench.$1
    shift
    ;;
  *) module=bench ;;
esac
case $module in
  bench.bars | bench.report) ;;
  *)
    if [ -z "${SALIUS_BIN:-}" ]; then
      (cd "$root" && bazel build --color=no --noshow_progress //client/cli:salius //client/mount:salius-mount \
        //replica:salius-replica //recovery:salius-recover //tests/bench/...)
    fi
    ;;
esac
PYTHONPATH=$root/tests exec /usr/bin/python3 -m "$module" "$@"
