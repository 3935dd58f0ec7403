// The lock of a volume that is to be mounted, and the wait for a predecessor.
//
// Threads: any.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "storage/volume_config.h"

namespace salius {

// Locks the volume with the backing directory `backing`. While the lock's holder does not serve the
// volume (it drains, ends or recovers) this waits, for a minute at most. UNAVAILABLE: the holder
// serves, or the minute has passed. FAILED_PRECONDITION: it is a direct volume. Other errors:
// VolumeDir::Open's.
absl::StatusOr<VolumeDir> LockVolume(const std::string& backing);

}  // namespace salius
