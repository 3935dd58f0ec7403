// The first phase: the state file and the stable log of a locked volume, and what they say about
// earlier runs (docs/recovery.md, cases R1 to R18).
//
// Threads: runs on the calling thread.
#pragma once

#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "log/stable_log.h"
#include "log/state_file.h"
#include "recovery/agree/record_set.h"
#include "recovery/phases/decided.h"
#include "recovery/phases/run.h"

namespace salius::recovery {

// A volume that is not clean.
struct OpenVolume {
  StateFile file;
  std::optional<StableLog> stable;   // a direct volume has one from its pin to its commit only
  RecordSet stable_records;          // of any epoch
  std::optional<Decision> decision;  // of an earlier run, for the state's epoch

  const VolumeState& state() const { return file.state(); }
};

// Reads the volume. Returns nullopt when it is clean: then it was tidied, and the report says so.
// Errors: DATA_LOSS when a file is missing, damaged, or of another volume or time.
absl::StatusOr<std::optional<OpenVolume>> ReadVolume(Run& run);

// Returns the records of the earlier run's decision, which `volume` has. Errors:
// FAILED_PRECONDITION when `until` contradicts it; DATA_LOSS when the records do not match it.
absl::StatusOr<Decided> ResumeDecision(Run& run, const OpenVolume& volume);

// Returns the epoch after the recovery when no replica is asked: that of an earlier run, or the next.
absl::StatusOr<Epoch> NextEpoch(const Run& run, const VolumeState& state);

// Moves the checkpoint to the applied mark when only the process had died. Errors: those of
// NoteSameLife().
absl::Status UseSameLife(Run& run, StateFile* file);

// Returns whether only the processes of a direct volume had died, so that the page cache has all of
// its writes (R83). Then these are on the disk, and nothing is to be replayed. In a dry run nothing
// is synced. Errors: those of SyncSameLife().
absl::StatusOr<bool> UseDirectSameLife(Run& run, const StateFile& file);

}  // namespace salius::recovery
