#!/usr/bin/env bash
# POSIX behaviour of the mount: pjdfstest and fsx beside bare ext4, and our own tests. Arguments go
# to the harness (--long, --seed N, -k NAME). Needs root and the built binaries (SALIUS_BIN or
# bazel-bin).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# new_enough: true if cargo is at least 1.85, which pjdfstest and fsx need. Debian 12's own is 0.66;
# Debian keeps a newer one for its browsers, in packages of another name.
new_enough() {
  local version
  version=$(cargo --version 2>/dev/null | cut -d' ' -f2) || return 1
  [ "$(printf '%s\n1.85.0\n' "$version" | sort -V | head -n 1)" = 1.85.0 ]
}
export PATH=$PATH:$HOME/.cargo/bin
crates=${SALIUS_CARGO_DIR:-$HOME/.cache/salius-crates}
if ! { [ -x "$crates/pjdfstest-0.2.2/bin/pjdfstest" ] && [ -x "$crates/fsx-0.3.2/bin/fsx" ]; } && ! new_enough; then
  # shellcheck source=deploy/packages.sh
  source ../deploy/packages.sh
  salius_install "${salius_rust_packages[@]}" || echo "posix: no Rust: pjdfstest and fsx will be skipped" >&2
fi
python3 posix/posix_crates.py || echo "posix: pjdfstest and fsx cannot be built; their tests are skipped" >&2
exec /usr/bin/python3 -m harness posix "$@"
