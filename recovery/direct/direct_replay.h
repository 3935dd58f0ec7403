// Replay of a direct volume: writes and truncates its files as a plan says. It converges: cut off
// anywhere and run again with the same plan, it ends in the same bytes. Nothing is synced here.
//
// Threads: not thread safe; the caller holds the volume lock.
#pragma once

#include "absl/status/status.h"
#include "common/ids.h"
#include "recovery/direct/direct_plan.h"
#include "recovery/replay/replay.h"

namespace salius::recovery {

// Carries out the plan in the directory of `context`. Files that are gone are counted. Errors:
// those of DirectFiles::Scan; RESOURCE_EXHAUSTED when the disk is full; the file system's own. After
// an error the volume can still be recovered.
absl::Status ReplayDirect(const ReplayContext& context, const VolumeId& volume,
                          const DirectPlan& plan);

// Counts in the report what ReplayDirect would do, with a line for each file; changes nothing.
// Errors: those of DirectFiles::Scan.
absl::Status DescribeDirect(const ReplayContext& context, const VolumeId& volume,
                            const DirectPlan& plan);

}  // namespace salius::recovery
