// The two ends of a recovery: the same-life note before any replica is asked, and the commit after
// everything is on disk.
//
// Threads: run on the calling thread.
#pragma once

#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/ids.h"
#include "log/state_file.h"
#include "recovery/replay/replay.h"
#include "storage/volume_config.h"

namespace salius::recovery {

// Whether only the process that used the volume died: the state names this boot and this very mount
// of the backing file system. Then the page cache has everything that was applied.
absl::StatusOr<bool> IsSameLife(const VolumeDir& dir, const VolumeState& state);

// Prepares recovery in the same life. Syncs the file system, then notes the applied mark as
// checkpoint when it lies above the noted one. From then on those records count as checkpointed: a
// file that was edited in the plain directory meanwhile is not put back.
//
// Does nothing where the mark is not relied on (AppliedMark::IsReliedOn), and notes nothing when
// ext4 has new complaints. An error of the sync is final: no later run relies on the applied mark.
absl::Status NoteSameLife(const ReplayContext& context, StateFile* state);

// Syncs the file system when a session of this life left a mark that is relied on. Returns the
// applied mark: every record up to it, and all else that the page cache has of the session, is on
// the disk. Returns nullopt when the mark says nothing (R14 to R18). Errors: as above.
absl::StatusOr<std::optional<Seq>> SyncSameLife(const ReplayContext& context,
                                                const VolumeState& state);

// Returns the state after recovery: clean, in epoch `next_epoch`, which no session and no recovery
// ever used. `max_file_id` and `last_timestamp_ns` are the largest in the replayed records.
VolumeState CommittedState(const VolumeState& state, Epoch next_epoch, Seq decided,
                           FileId max_file_id, uint64_t last_timestamp_ns);

}  // namespace salius::recovery
