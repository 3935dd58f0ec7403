// Recovery of a volume after its primary died (docs/recovery.md):
//
//     lock -> fence -> collect -> merge -> pin -> replay -> sync -> commit
//
// The same code runs in `salius-recover` and at mount. docs/recovery.md has every case with its
// reason, and what a crash at each step leaves.
//
// Invariants
// - The caller holds the volume lock for the whole run (VolumeDir with lock), so that no other
//   process writes this disk.
// - Nothing below the backing directory but `.salius/` changes before the decision is pinned.
// - It may be cut off at any instruction and run again, with any quorum (I7). Until the decision
//   record is on disk another T may be chosen, afterwards never.
// - A failed sync ends the run with an error; the state stays open.
//
// Threads: one call runs on the calling thread. It asks replicas from threads of its own, all ended
// when it returns. Paper: salius.txt, "The Disk Recovery Procedure".
#pragma once

#include "absl/status/statusor.h"
#include "recovery/options.h"
#include "recovery/report.h"
#include "storage/volume_config.h"

namespace salius {

// Recovers the volume in `dir`, which must hold the lock. Opens its state and stable log, and
// closes them before it returns. A clean volume is OK at once.
//
// After OK (and not dry_run) the state is clean, with an epoch larger than every session and
// recovery before; a session may start. The outcome is also in options.partial_report. Errors:
//
//   UNAVAILABLE           too few members answer (names them)
//   DATA_LOSS             the records or the disk contradict each other or are incomplete
//   FAILED_PRECONDITION   another recovery holds the replicas, or `until` contradicts a pinned
//                         decision or would leave records out
//   INVALID_ARGUMENT      the options
//   RESOURCE_EXHAUSTED    the disk or the stable log is full
//   others                as the file system gives them
absl::StatusOr<RecoveryReport> Recover(VolumeDir& dir, const RecoveryOptions& options);

}  // namespace salius
