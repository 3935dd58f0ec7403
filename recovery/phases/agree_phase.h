// The phases "collect", "merge" and "pin": bring the records here, choose T, and write the decision
// (docs/recovery.md, cases R33 to R53).
//
// Threads: runs on the calling thread; CollectAll() fetches from threads of its own.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "recovery/agree/collect.h"
#include "recovery/agree/coverage.h"
#include "recovery/phases/decided.h"
#include "recovery/phases/fence_phase.h"
#include "recovery/phases/given_up.h"
#include "recovery/phases/open_volume.h"
#include "recovery/phases/run.h"

namespace salius::recovery {

// The records at hand, beside those of the stable log.
struct Gathered {
  std::vector<Collected> collected;  // parallel to the peers; empty in mode local
  Coverage in_stable;                // seqs of the state's epoch in the stable log
  std::string shortfall;             // as in Fenced, counted again
};

// Fetches what the stable log lacks. Errors: as CheckQuorum(), for replicas that brought less than
// they said they hold.
absl::StatusOr<Gathered> CollectRecords(Run& run, const OpenVolume& volume, Fenced* fenced);

// Chooses T and its records, which lie in `volume` and `gathered`. `given_up` receives the records
// that are left out. With `force` the fence epoch may rise: then `fenced` has it, and it is noted.
// Errors: DATA_LOSS, or FAILED_PRECONDITION and INVALID_ARGUMENT for `until`.
absl::StatusOr<Decided> MergeRecords(Run& run, const OpenVolume& volume, const Gathered& gathered,
                                     Fenced* fenced, GivenUp* given_up);

// Writes the decided records and the decision into the stable log. From then on no run needs a
// replica, and T never changes.
absl::Status PinDecision(const Run& run, const Decided& decided, const Coverage& in_stable,
                         OpenVolume* volume);

}  // namespace salius::recovery
