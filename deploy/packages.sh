# shellcheck shell=bash
# The Debian packages that Salius needs, and a function that installs them. Sourced by tests/run.sh
# and deploy/quickstart.sh.

# To build and to run.
salius_build_packages=(
  bazel-bootstrap bazel-rules-java g++ pkg-config
  libabsl-dev libbenchmark-dev libcli11-dev libfuse3-dev libgmock-dev libgrpc++-dev libgtest-dev
  libisal-dev libpq-dev libprotobuf-dev librapidcheck-dev libspdlog-dev libsqlite3-dev libssl-dev libsystemd-dev nettle-dev
  libtomlplusplus-dev prometheus-cpp-dev protobuf-compiler protobuf-compiler-grpc uuid-dev
  etcd-client etcd-server golang-etcd-server-dev golang-github-gogo-protobuf-dev
  golang-github-grpc-ecosystem-grpc-gateway-dev nlohmann-json3-dev
  fuse3
)

# For deploy/quickstart.sh: namespaces, a file system, SQLite.
salius_demo_packages=(e2fsprogs iproute2 python3 sqlite3)

# For fuzzers, static checks, formatting, and the programs of tests/apps. None of them starts a
# service: redis-tools and mariadb-server-core are the programs alone.
salius_check_packages=(
  acl busybox-static clang clang-format clang-tidy libclang-rt-14-dev
  git gosu mariadb-client-core mariadb-server-core redis-tools rocksdb-tools runit
  btrfs-progs e2fsprogs eatmydata ethtool faketime iproute2 iptables openssl postgresql-15 python3 python3-pytest python3-pytest-subtests qemu-system-common qemu-system-x86 quota sqlite3 strace systemd util-linux xfsprogs
)

# For pjdfstest and fsx without cargo >= 1.85 (tests/stages/posix.sh): a newer Rust than rustc.
salius_rust_packages=(cargo-web rustc-web)

# salius_install PACKAGE...: installs missing packages. Fails, and names them, when that needs root.
salius_install() {
  local missing=() package
  for package in "$@"; do
    [ "$(dpkg-query -W -f='${Status}' "$package" 2>/dev/null)" = "install ok installed" ] ||
      missing+=("$package")
  done
  [ ${#missing[@]} -eq 0 ] && return 0
  if [ "$(id -u)" -ne 0 ]; then
    echo "missing packages: ${missing[*]}" >&2
    echo "run as root once, or: apt-get install --no-install-recommends ${missing[*]}" >&2
    return 1
  fi
  echo "installing: ${missing[*]}"
  apt-get update -q &&
    DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends "${missing[@]}"
}
