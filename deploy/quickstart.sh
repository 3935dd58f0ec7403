#!/usr/bin/env bash
# Salius in one go, on a new Debian 12 machine, as root:
#
#   deploy/quickstart.sh [--no-install] [--no-build]
#
# It builds Salius, makes a disk image on a loop device, starts three replicas, each in a network
# namespace of its own, makes a volume (durable with two of three), mounts it, and runs SQLite on it, one
# transaction per row, with each acknowledged row noted outside the volume. Then it cuts the power for
# real: SIGKILL of the mount, shutdown of the image's file system (what was not on the disk is gone), and
# one replica killed as well. It mounts the image again, runs salius-recover, and proves that the
# database is whole and every acknowledged row is there. At the end it removes everything it made, but
# the installed packages and the build. Exit status 0: proven.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

install=1 build=1
for argument in "$@"; do
  case "$argument" in
    --no-install) install=0 ;;
    --no-build) build=0 ;;
    *)
      sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p}' "${BASH_SOURCE[0]}"
      [ "$argument" = --help ] && exit 0 || exit 2
      ;;
  esac
done

say() { printf '\n== %s\n' "$*"; }
die() {
  echo "quickstart: $*" >&2
  exit 1
}

# ---- What must be there

[ "$(id -u)" -eq 0 ] || die "needs root (loop device, network namespaces, mounts): sudo $0"
[ -e /dev/fuse ] || die "/dev/fuse is missing. Load FUSE with 'modprobe fuse'; in a container, start it" \
  "with --device /dev/fuse and --cap-add SYS_ADMIN"
[ -e /dev/loop-control ] || die "/dev/loop-control is missing. Load it with 'modprobe loop'"

# shellcheck source=deploy/packages.sh
source deploy/packages.sh
if [ $install -eq 1 ]; then
  say "Packages"
  salius_install "${salius_build_packages[@]}" "${salius_demo_packages[@]}"
fi
if [ $build -eq 1 ]; then
  say "Build"
  bazel build -c opt //replica:salius-replica //recovery:salius-recover //client/cli:salius \
    //client/fuse:salius-mount
fi
bin=$(bazel info -c opt bazel-bin 2>/dev/null) # the link bazel-bin points to whatever was built last
for program in replica/salius-replica recovery/salius-recover client/cli/salius client/fuse/salius-mount; do
  [ -x "$bin/$program" ] || die "$bin/$program is not built; run without --no-build"
done
salius=$bin/client/cli/salius

# ---- Clean-up: everything below registers what it made

id=$(printf '%04x' $((RANDOM)))
work=$(mktemp -d /var/tmp/salius-quickstart.XXXXXX)
replica_pids=() daemon='' loop='' bridge="sq$id" helper=/sbin/mount.salius made_helper=''

cleanup() {
  set +e
  [ -n "$daemon" ] && kill -KILL "$daemon" 2>/dev/null
  for pid in "${replica_pids[@]}"; do kill -KILL "$pid" 2>/dev/null; done
  wait 2>/dev/null
  mountpoint -q "$work/mnt" && umount -l "$work/mnt"
  mountpoint -q "$work/disk" && umount -l "$work/disk"
  [ -n "$loop" ] && losetup -d "$loop"
  for i in 1 2 3; do ip netns del "sq$id-r$i" 2>/dev/null; done
  ip link del "$bridge" 2>/dev/null
  rm -rf /dev/shm/"sq$id"-r*
  [ -n "$made_helper" ] && rm -f "$helper"
  rm -rf "$work"
}
trap cleanup EXIT
trap 'exit 130' INT TERM HUP

wait_for() { # wait_for SECONDS WHAT COMMAND...: polls until the command succeeds
  local end=$((SECONDS + $1)) what=$2
  shift 2
  until "$@" >/dev/null 2>&1; do
    [ $SECONDS -lt "$end" ] || die "$what did not happen in time; logs: $(tail -n 5 "$work"/*.log 2>/dev/null)"
    sleep 0.05
  done
}

# ---- A disk and three replica hosts

say "A 2 GiB disk image with ext4 on a loop device"
truncate -s 2G "$work/disk.img"
mkfs.ext4 -q "$work/disk.img"
loop=$(losetup --find --show "$work/disk.img")
mkdir "$work/disk" "$work/mnt"
mount "$loop" "$work/disk"
mkdir "$work/disk/data" "$work/disk/bare"

subnet=''
routes=$(ip -4 route show table all)
for x in $(seq 0 255); do # of the addresses that are set aside for tests of networks (RFC 2544)
  if ! grep -qF -e "198.18.0.0/15" -e "198.18.0.0/16" -e "198.18.$x." <<<"$routes"; then
    subnet=198.18.$x
    break
  fi
done
[ -n "$subnet" ] || die "no free network in 198.18.0.0/16 for the replicas"

start_replica() { # start_replica I
  # setpriv: a replica never outlives this script. nsenter: only the network is another (ip netns exec would
  # also copy the mounts, and keep the dead disk alive).
  setpriv --pdeathsig KILL nsenter --net="/run/netns/sq$id-r$1" "$bin/replica/salius-replica" \
    --listen "$subnet.$((10 + $1)):7400" --memory 256MiB --shm-dir "/dev/shm/sq$id-r$1" --insecure \
    >>"$work/replica$1.log" 2>&1 &
  replica_pids[$1]=$!
  wait_for 20 "replica $1 answering" "$salius" status --replica "$subnet.$((10 + $1)):7400"
}

say "Three replicas, each in its own network namespace"
ip link add "$bridge" type bridge
ip addr add "$subnet.1/24" dev "$bridge"
ip link set "$bridge" up
for i in 1 2 3; do
  ip netns add "sq$id-r$i"
  ip link add "sq$id-v$i" type veth peer name eth0 netns "sq$id-r$i"
  ip link set "sq$id-v$i" master "$bridge" up
  ip -n "sq$id-r$i" link set lo up
  ip -n "sq$id-r$i" addr add "$subnet.$((10 + i))/24" dev eth0
  ip -n "sq$id-r$i" link set eth0 up
  mkdir "/dev/shm/sq$id-r$i"
  start_replica "$i"
  echo "replica $i: $subnet.$((10 + i)):7400"
done

# ---- A volume

say "salius init: durable with two of the three"
"$salius" init "$work/disk/data" --acks 2 --allow-same-host \
  --replicas "$subnet.11:7400,$subnet.12:7400,$subnet.13:7400"

mount_salius=(mount -t salius)
if [ ! -e "$helper" ]; then
  ln -s "$bin/client/fuse/salius-mount" "$helper"
  made_helper=1
elif ! cmp -s "$bin/client/fuse/salius-mount" "$helper"; then # another version is installed
  mount_salius=("$bin/client/fuse/salius-mount")
fi
say "${mount_salius[*]}"
mount_volume() {
  "${mount_salius[@]}" "$work/disk/data" "$work/mnt" -o "insecure,log=$work/mount.log"
  uuid=$(grep -oE '[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}' "$work/disk/data/.salius/volume.toml")
  daemon=$(ss -xlpH "src = /run/salius/$uuid.sock" | grep -oE 'pid=[0-9]+' | head -n 1 | cut -d= -f2)
  [ -n "$daemon" ] || die "the mount's process was not found"
}
mount_volume
is_replicated() { { "$salius" status "$work/mnt" --json || true; } | grep -q '"mode": *"replicated"'; }
wait_for 30 "mode replicated" is_replicated
"$salius" status "$work/mnt" || true  # its exit code says how the volume is

# ---- Latency beside the bare disk

writer=$PWD/tests/harness/sqlite_writer.py # one row per transaction; prints "ROW MICROSECONDS" when committed
median() { sort -n -k2 "$1" | awk '{ t[NR] = $2 } END { print t[int((NR + 1) / 2)] }'; }

say "SQLite, synchronous=FULL, one transaction per row: the mount beside the bare image"
for round in 1 2 3; do # interleaved
  /usr/bin/python3 "$writer" "$work/disk/bare/speed.db" wal full "$((round * 1000))" 300 >>"$work/bare.rows"
  /usr/bin/python3 "$writer" "$work/mnt/speed.db" wal full "$((round * 1000))" 300 >>"$work/mount.rows"
done
bare=$(median "$work/bare.rows") mounted=$(median "$work/mount.rows")
echo "median of 900 transactions: bare image $bare us, salius $mounted us" \
  "($(awk "BEGIN { printf \"%.2f\", $bare / $mounted }") times as fast)"

# ---- Work, and the power cut

say "SQLite at work; every acknowledged row is noted outside the volume"
ledger=$work/acknowledged
/usr/bin/python3 "$writer" "$work/mnt/work.db" wal full 1 >"$ledger" 2>"$work/writer.log" &
writer_pid=$!
enough() { [ "$(wc -l <"$ledger")" -ge 500 ]; }
wait_for 60 "500 acknowledged rows" enough

say "POWER CUT"
kill -KILL "$daemon"
# EXT4_IOC_SHUTDOWN with NOLOGFLUSH: from here on nothing reaches the disk.
/usr/bin/python3 -c 'import fcntl, os, struct, sys
fcntl.ioctl(os.open(sys.argv[1], os.O_RDONLY), 0x8004587D, struct.pack("I", 2))' "$work/disk"
kill -KILL "${replica_pids[2]}"
rm -rf "/dev/shm/sq$id-r2"
kill -KILL "$writer_pid" 2>/dev/null || true
wait "$writer_pid" "${replica_pids[2]}" 2>/dev/null || true
daemon=''
unset 'replica_pids[2]'
umount -l "$work/mnt"
wait_for 20 "umount of the dead disk" umount "$work/disk"
echo "the mount is dead, the disk lost what was not on it, replica 2 is gone with its memory"
echo "$(wc -l <"$ledger") rows had been acknowledged, the last: $(tail -n 1 "$ledger" | cut -d' ' -f1)"

# ---- The machine is back

say "The disk comes back; what it has by itself:"
mount "$loop" "$work/disk"
on_disk=$(sqlite3 "file:$work/disk/data/work.db?mode=ro&immutable=1" 'SELECT count(*) FROM ledger' 2>/dev/null) ||
  on_disk='no readable database'
echo "rows in work.db before recovery: $on_disk"

say "salius-recover"
"$bin/recovery/salius-recover" "$work/disk/data"

say "The proof"
integrity=$(sqlite3 "$work/disk/data/work.db" 'PRAGMA integrity_check')
echo "PRAGMA integrity_check: $integrity"
[ "$integrity" = ok ] || die "the database is damaged"
sqlite3 "$work/disk/data/work.db" 'SELECT n FROM ledger' | sort >"$work/found"
cut -d' ' -f1 "$ledger" | sort >"$work/acked"
missing=$(comm -13 "$work/found" "$work/acked" | wc -l)
echo "acknowledged rows: $(wc -l <"$work/acked"); missing: $missing"
[ "$missing" -eq 0 ] || die "acknowledged rows are missing"

say "And on it goes: mount, status, umount"
mount_volume
{ "$salius" status "$work/mnt" || true; } | head -n 7
umount "$work/mnt"
daemon=''

say "Done. Nothing acknowledged was lost; median $mounted us a transaction, bare image $bare us."
