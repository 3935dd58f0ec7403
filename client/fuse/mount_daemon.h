// salius-mount: from a backing directory to a mount that answers, and back.
//
//     lock -> configure -> recover -> open -> mount -> serve -> unmount -> drain
//
// After OK the volume is clean and nothing depends on a replica. After an error while draining, or
// a kill at any instruction, it stays open and the next mount (or salius-recover) recovers it.
//
// Threads: Serve runs on the main thread, which waits for signals; the FUSE workers, gRPC and the
// pipeline have theirs.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "client/fuse/launcher.h"
#include "client/fuse/mount_command.h"

namespace salius {

// Where the log of a volume is unless an option says otherwise: UUID.log.
inline constexpr char kLogDir[] = "/var/log/salius";

// Serves until the volume is unmounted or a signal comes. `launcher` is told once the mount
// answers. An error before that has not been told to it.
absl::Status Serve(const MountCommand& command, Launcher& launcher);

// The replicas' addresses must go together (ResolveReplicas); without `insecure` they must also be
// on this host, because records travel unencrypted. INVALID_ARGUMENT names the one that is not so.
// UNAVAILABLE: no name has an address (yet); one that has none may get it later.
absl::Status CheckReplicas(const std::vector<std::string>& replicas, bool insecure);

// The same of the address of the metrics, which may be empty.
absl::Status CheckMetrics(const std::string& metrics, bool insecure);

}  // namespace salius
