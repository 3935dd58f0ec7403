// mount(2) and umount(2) with what mount(8) and umount(8) want to know of it.
//
// umount(8) takes a short cut for a mount that has no entry in /run/mount/utab: it asks statfs(2)
// for the type, learns only "fuse", and looks for no helper of ours. With an entry it reads the
// mount table, finds "fuse.salius" and calls /sbin/umount.fuse.salius. mount(8) is the only writer
// of that file that is safe to use, so it is asked to note the mount that is already there (-i -f),
// and umount(8) is asked to unmount without helper (-i), which takes the entry away.
//
// Threads: any.
#pragma once

#include <string>

#include "absl/status/status.h"

namespace salius {

// Notes that `mountpoint` (mounted already, from `source`) is to be unmounted by
// /sbin/umount.fuse.salius. False, and logged: umount then returns before the volume is drained.
bool NoteUmountHelper(const std::string& source, const std::string& mountpoint);

// Takes away what NoteUmountHelper noted, if it is there. Nothing is unmounted.
void ForgetUmountHelper(const std::string& mountpoint);

// Unmounts; `flags` 0, MNT_DETACH, MNT_FORCE or both. Errors: umount(2)'s own.
absl::Status UnmountPath(const std::string& mountpoint, int flags);

// Takes away mounts of `source` at `mountpoint` that answer nothing any more: what a killed daemon
// leaves, on top of one another. Only for who holds the volume's lock: a daemon that is stopped
// answers nothing for as long, and would be waited for.
void ClearDeadMounts(const std::string& source, const std::string& mountpoint);

}  // namespace salius
