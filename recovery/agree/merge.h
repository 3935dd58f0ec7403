// Merge: chooses T and the list of records from those of the stable log and the replicas
// (docs/recovery.md).
//
// Rules, each with a test named for it:
// - Only records of the state's epoch above its checkpoint count; older epochs are leftovers.
// - Duplicates are dropped; two different records with one seq are DATA_LOSS.
// - T is the last seq before the first gap. A record after a gap that lies above every durable mark
//   was never acknowledged. A gap at or below a durable mark is DATA_LOSS.
// - The state must be the newest. DATA_LOSS when a replica or the stable log knows a larger epoch,
//   a checkpoint or a trim beyond the state's, or another volume. (A disk restored from a snapshot,
//   or a damaged newer state slot, looks like this.)
// - In mode local the stable log alone is the log; replicas' marks are still checked.
//
// pure: no thread, lock, socket or clock.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/ids.h"
#include "log/stable_log.h"
#include "log/state_file.h"
#include "recovery/agree/inventory.h"
#include "recovery/agree/record_set.h"
#include "recovery/report.h"

namespace salius::recovery {

// One replica's part.
struct ReplicaEvidence {
  std::string address;
  Inventory inventory;
  absl::Span<const RecordView> records;  // any epochs, any order
};

struct MergeInput {
  VolumeId volume{};
  Epoch epoch = 0;
  Seq checkpoint = 0;
  Mode mode = Mode::kReplicated;
  absl::Span<const RecordView> stable;
  std::vector<ReplicaEvidence> replicas;
  bool force = false;  // report gaps and larger epochs, do not refuse them
  std::optional<Seq> until;
};

struct MergeResult {
  Seq last = 0;                              // T
  Seq last_there = 0;                        // T without `until`
  std::vector<const RecordView*> records;    // (checkpoint, T], one per seq, ascending
  Seq durable_mark = 0;                      // largest seen
  Seq highest = 0;                           // largest seq seen
  Epoch highest_epoch = 0;                   // largest epoch seen (promises included)
  std::vector<std::pair<Seq, Seq>> missing;  // gaps in (checkpoint, max(durable_mark, highest)]
};

// Merges the records. Errors: DATA_LOSS with an explanation for the user; INVALID_ARGUMENT when
// `until` lies below the checkpoint.
absl::StatusOr<MergeResult> Merge(const MergeInput& input);

// Checks one replica's inventory against the state, before any record is fetched: larger epochs,
// trims and checkpoint marks beyond the state's. A promise of `epoch` + 1 is normal (an earlier
// run's).
absl::Status CheckInventory(Epoch epoch, Seq checkpoint, const std::string& address,
                            const Inventory& inventory);

// Returns the records (decision.checkpoint, decision.last] of the stable log, verified against the
// decision's count and digest. DATA_LOSS when they do not match.
absl::StatusOr<std::vector<const RecordView*>> RecordsOfDecision(
    const Decision& decision, absl::Span<const RecordView> stable);

// Returns the decision for `epoch` among those in the stable log; nullopt when there is none.
// DATA_LOSS when there are two different ones, or one of a later epoch.
absl::StatusOr<std::optional<Decision>> FindDecision(Epoch epoch,
                                                     absl::Span<const Decision> decisions);

}  // namespace salius::recovery
