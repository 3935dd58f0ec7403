// The log in which a recovery of a direct volume pins its decision. A direct volume has no stable
// log of its own: this one is made for the decided records, under the stable log's name, and
// removed after the commit (docs/recovery.md, cases R84 to R86).
//
// It is made under another name, synced, and renamed. So the file is whole or absent after a crash.
// Only the decision record in it counts: a log without one is made again.
//
// Threads: not thread safe; the caller holds the volume lock.
#pragma once

#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/ids.h"
#include "log/stable_log.h"
#include "recovery/agree/record_set.h"
#include "storage/backing.h"

namespace salius::recovery {

// Makes an empty log with room for `records` and a decision, in the place of any that is there. On
// OK the file and its name are on the disk. RESOURCE_EXHAUSTED when the disk is full.
absl::StatusOr<StableLog> MakePinnedLog(Backing& backing, int salius_fd, const VolumeId& volume,
                                        const std::vector<const RecordView*>& records);

// Removes the log, and one that was being made. OK when there is none.
absl::Status RemovePinnedLog(Backing& backing, int salius_fd);

}  // namespace salius::recovery
