// `mount -o remount,...` of a volume, as /sbin/mount.salius and /sbin/mount.fuse.salius get it.
//
// ro, rw, noatime, nosuid and the like are the kernel's, and mount(2) changes them; the daemon
// follows where they concern it (times of access). Every other option is fixed when a volume is
// mounted: another value is refused.
//
// Threads: one.
#pragma once

#include "absl/status/status.h"
#include "client/mount/mount_command.h"

namespace salius {

// Remounts. Errors: NOT_FOUND when no volume is mounted there; INVALID_ARGUMENT names an option
// that cannot change; FAILED_PRECONDITION when the volume has failed; those of a daemon that does
// not answer; mount(2)'s own, such as UNAVAILABLE (EBUSY) while files are open for writing.
absl::Status RunRemount(const MountCommand& command);

}  // namespace salius
