// salius-mount: from a backing directory to a mount that answers, and back.
//
//     lock -> claim -> configure -> recover -> open -> mount -> serve -> unmount -> drain
//
// After OK the volume is clean and nothing depends on a replica. After an error while draining, or
// a kill at any instruction, it stays open and the next mount (or salius-recover) recovers it.
//
// Threads: Serve runs on the main thread, which waits for signals; the FUSE workers, gRPC and the
// pipeline have theirs.
#pragma once

#include "absl/status/status.h"
#include "client/mount/launcher.h"
#include "client/mount/mount_command.h"

namespace salius {

// The directory of a volume's log, UUID.log, unless an option names another file.
inline constexpr char kLogDir[] = "/var/log/salius";

// Serves until the volume is unmounted or a signal comes. Calls launcher.Ready when the mount
// answers. The caller reports an earlier error to the launcher.
absl::Status Serve(const MountCommand& command, Launcher& launcher);

}  // namespace salius
