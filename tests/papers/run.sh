#!/usr/bin/env bash
# Repeats the measurements of the papers that Salius carries. Needs root; installs what is missing.
#
#   tests/papers/run.sh [--short] [--rounds N] [--results DIR] [--only PATTERN]
#                       [xsyncfs|xsyncfs-direct|xsyncfs-cuts|optfs|nbw]...
#
# --short takes minutes and judges no bar. --only: works of nbw whose names match. Without a name: all.
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
cd "$root"
# shellcheck source=deploy/packages.sh
source deploy/packages.sh
salius_install "${salius_build_packages[@]}" eatmydata git iproute2 make postmark python3 python3-matplotlib sqlite3
if [ -z "${SALIUS_BIN:-}" ]; then
  bazel build -c opt --color=no --noshow_progress //client/... //replica:salius-replica //recovery:salius-recover \
    //tests/bench/disk_model/...
fi
PYTHONPATH=$root/tests exec /usr/bin/python3 -m papers "$@"
