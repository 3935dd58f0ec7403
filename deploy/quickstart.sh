#!/usr/bin/env bash
# Shows Salius from build to recovery on a new Debian 12 machine, as root:
#
#   deploy/quickstart.sh [--no-install] [--no-build]
#
# The steps:
# 1. Builds Salius and makes a disk image on a loop device.
# 2. Makes the keys of all hosts, and starts three replicas, each in a network namespace of its own.
# 3. Makes a volume (durable with two of three) and mounts it.
# 4. Measures SQLite on it beside the bare file system: on the disk of this machine, and on one
#    whose flush takes 8 ms. Salius pays where a flush is slower than the network; the script says
#    where it does not.
# 5. Lets SQLite write one transaction per row, and notes each acknowledged row outside the volume.
# 6. Cuts the power: SIGKILL of the mount, shutdown of the image's file system (all data not yet on
#    the disk is lost), and the loss of one replica.
# 7. Mounts the image again and runs salius-recover.
# 8. Proves that the database is whole and contains every acknowledged row.
#
# At the end it removes everything it made, except the installed packages and the build. Exit status
# 0 means proven.
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

# ---- Requirements

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
    //client/mount:salius-mount //client/run:salius-run //tests/bench/disk_model:disk_model_fs
fi
bin=$(bazel info -c opt bazel-bin 2>/dev/null) # the link bazel-bin points to whatever was built last
for program in replica/salius-replica recovery/salius-recover client/cli/salius client/mount/salius-mount \
  client/run/salius-run tests/bench/disk_model/disk_model_fs; do
  [ -x "$bin/$program" ] || die "$bin/$program is not built; run without --no-build"
done
salius=$bin/client/cli/salius
run=$bin/client/run/salius-run

# ---- Clean-up: everything below registers what it made

id=$(printf '%04x' $((RANDOM)))
work=$(mktemp -d /var/tmp/salius-quickstart.XXXXXX)
replica_pids=() daemon='' slow_daemon='' loop='' slow_loop='' slow_disk='' bridge="sq$id" helper=/sbin/mount.salius made_helper=''

cleanup() {
  set +e
  for pid in $daemon $slow_daemon; do kill -KILL "$pid" 2>/dev/null; done
  for pid in "${replica_pids[@]}"; do kill -KILL "$pid" 2>/dev/null; done
  [ ${#replica_pids[@]} -gt 0 ] && wait "${replica_pids[@]}" 2>/dev/null
  mountpoint -q "$work/mnt" && umount -l "$work/mnt"
  mountpoint -q "$work/disk" && umount -l "$work/disk"
  [ -n "$loop" ] && losetup -d "$loop"
  grep -q " $work/slow/mnt " /proc/mounts && umount -l "$work/slow/mnt"
  grep -q " $work/slow/fs " /proc/mounts && umount -l "$work/slow/fs"
  [ -n "$slow_loop" ] && losetup -d "$slow_loop"
  grep -q " $work/slow/disk " /proc/mounts && umount -l "$work/slow/disk"
  [ -n "$slow_disk" ] && kill "$slow_disk" 2>/dev/null
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
  # setpriv: a replica never outlives this script. nsenter: only the network differs (ip netns exec
  # would also copy the mounts, and keep the dead disk alive).
  setpriv --pdeathsig KILL nsenter --net="/run/netns/sq$id-r$1" "$bin/replica/salius-replica" \
    --listen "$subnet.$((10 + $1)):7400" --memory 512MiB --shm-dir "/dev/shm/sq$id-r$1" \
    --state-dir "$work/replica$1.state" --keys "$work/ca/replica-r$1.pem" \
    >>"$work/replica$1.log" 2>&1 &
  replica_pids[$1]=$!
  wait_for 20 "replica $1 answering" "$salius" status --replica "$subnet.$((10 + $1)):7400" \
    --keys "$work/ca/operator-me.pem"
}

say "salius keys init: an authority, and the keys of each host"
"$salius" keys init "$work/ca" client/primary operator/me \
  "replica/r1=$subnet.11" "replica/r2=$subnet.12" "replica/r3=$subnet.13"
keys=$work/ca/client-primary.pem

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
"$salius" init "$work/disk/data" --acks 2 --allow-same-host --keys "$keys" \
  --replicas "$subnet.11:7400,$subnet.12:7400,$subnet.13:7400"

mount_salius=(mount -t salius)
if [ ! -e "$helper" ]; then
  ln -s "$bin/client/mount/salius-mount" "$helper"
  made_helper=1
elif ! cmp -s "$bin/client/mount/salius-mount" "$helper"; then # another version is installed
  mount_salius=("$bin/client/mount/salius-mount")
fi
say "${mount_salius[*]}"
mount_volume() { # mount_volume BACKING MOUNTPOINT LOG: sets mounted_daemon
  "${mount_salius[@]}" "$1" "$2" -o "log=$3"
  local uuid
  uuid=$(grep -oE '[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}' "$1/.salius/volume.toml")
  mounted_daemon=$(ss -xlpH "src = /run/salius/$uuid.sock" | grep -oE 'pid=[0-9]+' | head -n 1 | cut -d= -f2)
  [ -n "$mounted_daemon" ] || die "the mount's process was not found"
}
is_replicated() { { "$salius" status "$1" --json || true; } | grep -q '"mode": *"replicated"'; }
mount_volume "$work/disk/data" "$work/mnt" "$work/mount.log"
daemon=$mounted_daemon
wait_for 30 "mode replicated" is_replicated "$work/mnt"
"$salius" status "$work/mnt" || true  # its exit code says how the volume is

say "salius doctor: the keys on both ends"
{ "$salius" doctor "$work/disk/data" || true; } | grep -E '^[A-Z]+ +(keys|authority|replica .* (keys|clock|owner)):' ||
  die "salius doctor has no finding about keys"

# ---- Latency beside the bare disk

writer=$PWD/tests/harness/sqlite_writer.py # one row per transaction; prints "ROW MICROSECONDS" when committed
median() { sort -n -k2 "$1" | awk '{ t[NR] = $2 } END { print t[int((NR + 1) / 2)] }'; }

flush_us() { # flush_us DIR: the median of 20 flushes of one block each, in microseconds
  /usr/bin/python3 -c 'import os, statistics, sys, time
fd = os.open(sys.argv[1] + "/flush", os.O_RDWR | os.O_CREAT)
took = []
for block in range(20):
    os.pwrite(fd, b"x" * 4096, 0)
    began = time.perf_counter_ns()
    os.fdatasync(fd)
    took.append((time.perf_counter_ns() - began) // 1000)
print(int(statistics.median(took)))' "$1"
}

# measure NAME BARE_DIR MOUNT_DIR DIRECT_DIR ROWS: sets bare, mounted, direct (us a transaction), verdict
measure() {
  local round
  for round in 1 2 3; do # interleaved
    /usr/bin/python3 "$writer" "$2/speed.db" wal full "$((round * 1000))" "$5" >>"$work/$1.bare.rows"
    /usr/bin/python3 "$writer" "$3/speed.db" wal full "$((round * 1000))" "$5" >>"$work/$1.mount.rows"
    "$run" --direct "$4" -- /usr/bin/python3 "$writer" "$4/speed.db" wal full "$((round * 1000))" "$5" \
      >>"$work/$1.direct.rows"
  done
  bare=$(median "$work/$1.bare.rows") mounted=$(median "$work/$1.mount.rows")
  direct=$(median "$work/$1.direct.rows")
  local ratio
  ratio=$(awk "BEGIN { r = $bare / $mounted; printf \"%.1f\", (r < 1 ? 1 / r : r) }")
  if [ "$mounted" -lt "$bare" ]; then
    verdict="Salius pays: $ratio times as fast"
  else
    verdict="Salius does not pay: it takes $ratio times as long as the bare disk, whose flush is that fast"
  fi
  verdict+=". Without FUSE, under salius-run: $direct us"
  echo "median of $((3 * $5)) transactions: bare $bare us, salius $mounted us. $verdict"
}
make_direct() { # make_direct DIR: makes a direct volume there
  mkdir "$1"
  "$salius" init --direct "$1" --acks 2 --keys "$keys" \
    --replicas "$subnet.11:7400,$subnet.12:7400,$subnet.13:7400" >/dev/null
}

say "SQLite, synchronous=FULL, one transaction per row: the mount beside the bare disk"
echo "the disk of this machine, on which a flush takes $(flush_us "$work/disk/bare") us:"
make_direct "$work/disk/direct"
measure this "$work/disk/bare" "$work/mnt" "$work/disk/direct" 300
this_bare=$bare this_mounted=$mounted this_verdict=$verdict

say "The same on a disk whose flush takes 8 ms, as that of a disk without a protected cache"
mkdir -p "$work/slow/disk" "$work/slow/fs" "$work/slow/mnt"
truncate -s 1G "$work/slow/disk.img"
mkfs.ext4 -q "$work/slow/disk.img"
"$bin/tests/bench/disk_model/disk_model_fs" --flush-ms 8 "$work/slow/disk.img" "$work/slow/disk" >"$work/slow.log" 2>&1 &
slow_disk=$!
wait_for 20 "the slow disk" test -e "$work/slow/disk/disk"
slow_loop=$(losetup --find --show --direct-io=on "$work/slow/disk/disk")
mount "$slow_loop" "$work/slow/fs"
mkdir "$work/slow/fs/data" "$work/slow/fs/bare"
"$salius" init "$work/slow/fs/data" --acks 2 --keys "$keys" \
  --replicas "$subnet.11:7400,$subnet.12:7400,$subnet.13:7400" >/dev/null
mount_volume "$work/slow/fs/data" "$work/slow/mnt" "$work/slow-mount.log"
slow_daemon=$mounted_daemon
wait_for 30 "mode replicated on the slow disk" is_replicated "$work/slow/mnt"
echo "the slow disk, on which a flush with a file system's journal takes $(flush_us "$work/slow/fs/bare") us:"
make_direct "$work/slow/fs/direct"
measure slow "$work/slow/fs/bare" "$work/slow/mnt" "$work/slow/fs/direct" 60
slow_bare=$bare slow_mounted=$mounted slow_verdict=$verdict
umount "$work/slow/mnt"
wait_for 180 "drain of the volume on the slow disk" umount "$work/slow/fs" # busy until the daemon has ended
slow_daemon=''
losetup -d "$slow_loop"
slow_loop=''
umount "$work/slow/disk"
wait "$slow_disk" || true
slow_disk=''

# ---- Work, and the power cut

say "SQLite at work; every acknowledged row is noted outside the volume"
ledger=$work/acknowledged
/usr/bin/python3 "$writer" "$work/mnt/work.db" wal full 1 >"$ledger" 2>"$work/writer.log" &
writer_pid=$!
enough() { [ "$(wc -l <"$ledger")" -ge 500 ]; }
wait_for 60 "500 acknowledged rows" enough

say "POWER CUT"
kill -KILL "$daemon"
# EXT4_IOC_SHUTDOWN with NOLOGFLUSH: from now on nothing reaches the disk.
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
mount_volume "$work/disk/data" "$work/mnt" "$work/mount.log"
daemon=$mounted_daemon
{ "$salius" status "$work/mnt" || true; } | head -n 7
umount "$work/mnt"
daemon=''

say "Done. Nothing acknowledged was lost."
echo "a transaction on the disk of this machine: bare $this_bare us, salius $this_mounted us. $this_verdict"
echo "a transaction on a disk with 8 ms a flush: bare $slow_bare us, salius $slow_mounted us. $slow_verdict"
