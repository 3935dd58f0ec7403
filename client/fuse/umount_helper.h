// /sbin/umount.fuse.salius, which umount(8) calls for a volume: unmounts and waits until the daemon
// has drained the volume and gone. The kernel's own umount of a FUSE file system returns at once
// (it sends no DESTROY), so only this way "umount has returned" means "nothing depends on a
// replica".
//
// Threads: one.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"

namespace salius {

// MOUNTPOINT [-flnrv] [-t type], as umount(8) calls it. With -l it does not wait. Errors:
// INVALID_ARGUMENT for the command line, NOT_FOUND when no volume is mounted there, umount(2)'s
// own, DEADLINE_EXCEEDED or DATA_LOSS when the volume is unmounted but was not drained: it will be
// recovered at its next mount.
absl::Status RunUmount(const std::vector<std::string>& words);

}  // namespace salius
