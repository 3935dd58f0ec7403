// The phase "fence": replicas promise the fence epoch, and enough members count (docs/recovery.md,
// cases R19 to R32).
//
// Threads: runs on the calling thread; FenceAll() asks the replicas from threads of its own.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "log/state_file.h"
#include "recovery/agree/collect.h"
#include "recovery/agree/fence.h"
#include "recovery/agree/record_set.h"
#include "recovery/phases/run.h"
#include "recovery/run_file.h"

namespace salius::recovery {

// The fenced replicas.
struct Fenced {
  std::unique_ptr<ReplicaConnector> connector;  // null: that of the options
  RunNote note;                                 // fence epoch and token
  std::vector<Peer> peers;
  std::string shortfall;  // why too few members count, which --force overrides; "": enough do
};

// Notes the run on the disk, and fences the replicas. Errors: UNAVAILABLE when too few members
// count; FAILED_PRECONDITION when another recovery holds a replica; DATA_LOSS when a replica knows
// what this disk does not have. With `force` these are reported, and the run continues.
absl::StatusOr<Fenced> FenceReplicas(Run& run, const VolumeState& state,
                                     absl::Span<const RecordView> stable);

// Writes the fence epoch and token to the disk, before any replica is asked with them.
absl::Status NoteRun(const Run& run, const RunNote& note);

// Counts the members that answered and, once `collected` is not empty, brought their records. Puts
// them into the report. Returns why they are too few, which only --force lets pass; "" when enough
// count. UNAVAILABLE when they are too few.
absl::StatusOr<std::string> CheckQuorum(const Run& run, const VolumeState& state,
                                        absl::Span<const Peer> peers,
                                        absl::Span<const Collected> collected,
                                        absl::Span<const RecordView> stable);

}  // namespace salius::recovery
