// mount(2) and umount(2), with the entries in utab that mount(8) and umount(8) need.
//
// For a mount without an entry in /run/mount/utab umount(8) asks only statfs(2) for the type. It
// learns "fuse", and looks for no helper of ours. With an entry it reads the mount table, finds
// "fuse.salius" and calls /sbin/umount.fuse.salius. Only mount(8) writes that file safely. So it is
// asked to note the mount that exists already (-i -f), and umount(8) is asked to unmount without
// helper (-i), which removes the entry.
//
// Threads: any.
#pragma once

#include <string>

#include "absl/status/status.h"

namespace salius {

// Notes that `mountpoint` (mounted already, from `source`) is to be unmounted by
// /sbin/umount.fuse.salius. On failure it logs and returns false: umount then returns before the
// volume is drained.
bool AddUtabEntry(const std::string& source, const std::string& mountpoint);

// Removes the entry of AddUtabEntry, if there is one. Unmounts nothing.
void RemoveUtabEntry(const std::string& mountpoint);

// Unmounts; `flags` 0, MNT_DETACH, MNT_FORCE or both. Errors: umount(2)'s own.
absl::Status UnmountPath(const std::string& mountpoint, int flags);

// Removes dead mounts of `source` at `mountpoint`, which killed daemons leave on top of one
// another. The caller must hold the volume's lock: otherwise the mount's daemon may only be
// stopped, and this would wait for it.
void ClearDeadMounts(const std::string& source, const std::string& mountpoint);

}  // namespace salius
