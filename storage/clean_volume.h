// Checks of a volume whose note says that it is clean, beyond the note itself.
#pragma once

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/ids.h"
#include "log/stable_log.h"
#include "log/state_file.h"

namespace salius {

// Returns DATA_LOSS when the note is not that of volume `volume`, but was put there from another.
absl::Status CheckVolume(const VolumeState& state, const VolumeId& volume);

// Opens the stable log of the volume whose clean note is `state`. Errors: as StableLog::Open.
// DATA_LOSS when there is none, or when it has an entry of a later session than the note. In the
// latter case the note is an older one: a copy, or the latest has become unreadable. The records
// that the later session acknowledged would be lost.
absl::StatusOr<StableLog> OpenCleanLog(Files& files, int salius_fd, const VolumeState& state);

}  // namespace salius
