#!/usr/bin/env bash
# Installs the programs that `bazel build -c opt //...` built, or removes them.
#
#   deploy/install.sh [--prefix DIR] [--destdir DIR] [--from DIR] [--uninstall]
#
# --prefix   where programs, man pages and bash completion go (default /usr/local)
# --destdir  put this in front of every path (for packages)
# --from     where the built programs are (default bazel-bin)
#
# mount(8) and umount(8) look for helpers only in /sbin, so these go there whatever the prefix:
# - /sbin/mount.salius: mount -t salius, fstab
# - /sbin/mount.fuse.salius: the type that /proc/mounts shows, and mount -o remount
# - /sbin/umount.fuse.salius: makes umount wait until the volume is drained
#
# Replicas run as the user salius, which the script makes with systemd-sysusers(8). It also raises the
# kernel's limit of socket buffers (deploy/salius.sysctl). --uninstall leaves the user: files may
# belong to it.
#
# The administrator owns /etc/salius: the script makes the directory and touches nothing in it.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

prefix=/usr/local destdir='' from=bazel-bin uninstall=0
while [ $# -gt 0 ]; do
  case "$1" in
    --prefix) prefix=${2:?--prefix needs a directory} && shift ;;
    --destdir) destdir=${2:?--destdir needs a directory} && shift ;;
    --from) from=${2:?--from needs a directory} && shift ;;
    --uninstall) uninstall=1 ;;
    *)
      sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p}' "${BASH_SOURCE[0]}"
      [ "$1" = --help ] && exit 0 || exit 2
      ;;
  esac
  shift
done

programs=(
  replica/salius-replica recovery/salius-recover client/cli/salius client/mount/salius-mount
  client/run/salius-run
)
library=client/preload/libsalius_preload.so # salius-run looks for it in ../lib
api=client/api/libsalius.so                 # its soname is libsalius.so.1
module=client/api/python/salius.py          # python3 of Debian looks in lib/python3/dist-packages of /usr
helpers=(mount.salius mount.fuse.salius umount.fuse.salius)
units=(deploy/*.service)
pages=(docs/man/*.[1-8])
samples=(deploy/*.sample)
completions=$destdir$prefix/share/bash-completion/completions # each file has the name of a command
sbin=$destdir/sbin
unit_dir=$destdir/etc/systemd/system
user_file=$destdir$prefix/lib/sysusers.d/salius.conf
sysctl_file=$destdir$prefix/lib/sysctl.d/60-salius.conf
sample_dir=$destdir$prefix/share/doc/salius
config_dir=$destdir/etc/salius

if [ $uninstall -eq 1 ]; then
  for program in "${programs[@]}"; do
    rm -f "$destdir$prefix/sbin/${program##*/}" "$completions/${program##*/}"
  done
  rm -f "$destdir$prefix/lib/${library##*/}" "$destdir$prefix/lib/libsalius.so"{,.1}
  rm -f "$destdir$prefix/include/salius.h" "$destdir$prefix/lib/pkgconfig/salius.pc"
  rm -f "$destdir$prefix/lib/python3/dist-packages/${module##*/}"
  for helper in "${helpers[@]}"; do rm -f "$sbin/$helper"; done
  # Remove links to units that no longer exist. Running units continue: unmount or stop them first.
  if [ -z "$destdir" ] && [ -d /run/systemd/system ]; then
    for unit in "${units[@]}"; do
      [ ! -e "$unit_dir/${unit##*/}" ] || systemctl disable "${unit##*/}"
    done
  fi
  for unit in "${units[@]}"; do rm -f "$unit_dir/${unit##*/}"; done
  rm -f "$user_file" "$sysctl_file"
  for page in "${pages[@]}"; do rm -f "$destdir$prefix/share/man/man${page##*.}/${page##*/}"; done
  for sample in "${samples[@]}"; do rm -f "$sample_dir/${sample##*/}"; done
  [ ! -d "$sample_dir" ] || rmdir --ignore-fail-on-non-empty "$sample_dir"
  exit 0
fi

for program in "${programs[@]}" "$library" "$api"; do
  [ -x "$from/$program" ] || {
    echo "install: $from/$program is not built: bazel build -c opt //..." >&2
    exit 1
  }
done

install -d "$destdir$prefix/sbin" "$sbin" "$unit_dir"
for program in "${programs[@]}"; do
  install -m 0755 "$from/$program" "$destdir$prefix/sbin/${program##*/}"
  install -D -m 0644 deploy/salius.bash-completion "$completions/${program##*/}"
done
install -D -m 0644 "$from/$library" "$destdir$prefix/lib/${library##*/}"
install -D -m 0644 "$from/$api" "$destdir$prefix/lib/libsalius.so.1"
ln -sfn libsalius.so.1 "$destdir$prefix/lib/libsalius.so"
install -D -m 0644 client/api/salius.h "$destdir$prefix/include/salius.h"
install -d "$destdir$prefix/lib/pkgconfig"
sed "s|^prefix=.*|prefix=$prefix|" client/api/salius.pc >"$destdir$prefix/lib/pkgconfig/salius.pc"
install -D -m 0644 "$module" "$destdir$prefix/lib/python3/dist-packages/${module##*/}"
for helper in "${helpers[@]}"; do
  ln -sfn "$prefix/sbin/salius-mount" "$sbin/$helper"
done
for unit in "${units[@]}"; do
  [ -e "$unit" ] || continue
  sed "s|/usr/local/sbin/|$prefix/sbin/|g" "$unit" | install -m 0644 /dev/stdin "$unit_dir/${unit##*/}"
done
for page in "${pages[@]}"; do
  [ -e "$page" ] || continue
  install -D -m 0644 "$page" "$destdir$prefix/share/man/man${page##*.}/${page##*/}"
done
for sample in "${samples[@]}"; do
  [ -e "$sample" ] || continue
  install -D -m 0644 "$sample" "$sample_dir/${sample##*/}"
done
[ -d "$config_dir" ] || install -d "$config_dir"
install -D -m 0644 deploy/salius.sysusers "$user_file"
install -D -m 0644 deploy/salius.sysctl "$sysctl_file"
if [ -z "$destdir" ]; then
  systemd-sysusers "$user_file" ||
    echo "install: the user salius is missing: the unit salius-replica needs it" >&2
  sysctl -q -p "$sysctl_file" ||
    echo "install: $sysctl_file was not applied: bursts of records may be lost and sent again" >&2
fi
# systemd sees new units only after this; a chroot or a container has no systemd to notify.
if [ -z "$destdir" ] && [ -d /run/systemd/system ]; then systemctl daemon-reload; fi
echo "installed below $destdir$prefix, helpers in $sbin"
