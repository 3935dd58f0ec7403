// One volume on this host. Two backing directories with the same UUID (one is a copy of the other)
// would fence each other at the replicas. So each user of a volume (the mount, salius-recover)
// claims its UUID for the life of its VolumeDir, before it sends a request to a replica.
//
// The claim is flock(2) of <run directory>/<uuid>.lock. So it does not depend on an answer of its
// holder (a stopped process keeps it) and ends with the process. The file stays, and names the last
// holder for messages: "PID DEVICE INODE PATH".
//
// The volume's own lock (.salius/lock) keeps two processes off one directory. The claim keeps them
// off two directories with one UUID. It is released before that lock.
//
// A process in a container with a /run of its own does not see the claims outside of it.
//
// Threads: any.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "storage/volume_config.h"

namespace salius {

inline constexpr char kClaimDirectory[] = "/run/salius";

// Returns the directory of this user's claims: root's, or one below /run/user or /tmp. Claims of
// different users do not see each other.
std::string ClaimDirectory();

// Claims the volume that `dir`, which must hold the volume's lock, belongs to; `dir` keeps the
// claim. UNAVAILABLE: another process holds a volume with this UUID from another directory. The
// message names both and the remedy. Where `run_directory` can neither be made nor used, no process
// can have claimed anything in it: that is logged.
absl::Status ClaimOnThisHost(VolumeDir& dir, const std::string& run_directory = ClaimDirectory());

}  // namespace salius
