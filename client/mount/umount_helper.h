// /sbin/umount.fuse.salius, which umount(8) calls for a volume. It unmounts and waits until the
// daemon has drained the volume and ended. The kernel's own umount of a FUSE file system returns at
// once (it sends no DESTROY). So only the helper makes "umount has returned" mean "nothing depends
// on a replica".
//
// Threads: one.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"

namespace salius {

// Runs the helper with MOUNTPOINT [-flnrv] [-t type], as umount(8) calls it. With -l it does not
// wait. Errors: INVALID_ARGUMENT for the command line, NOT_FOUND when no volume is mounted there,
// umount(2)'s own, DEADLINE_EXCEEDED or DATA_LOSS when the volume is unmounted but was not drained:
// its next mount recovers it.
absl::Status RunUmount(const std::vector<std::string>& words);

}  // namespace salius
