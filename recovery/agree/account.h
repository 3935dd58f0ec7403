// Accounts for the replicas of a run: which answered, which count and why not. Explains the case
// that too few count.
//
// pure: no thread, lock, socket or clock.
#pragma once

#include <string>
#include <vector>

#include "absl/types/span.h"
#include "log/state_file.h"
#include "recovery/agree/collect.h"
#include "recovery/agree/fence.h"
#include "recovery/agree/quorum.h"
#include "recovery/agree/record_set.h"
#include "recovery/report.h"

namespace salius::recovery {

struct QuorumAccount {
  QuorumCount count;
  std::vector<RecoveryReplica> replicas;  // one per peer
  // When too few count: how many are needed, which are missing and why, how far the rest reaches.
  std::string text;
};

// Makes the account. `collected` is parallel to `peers`, or empty before the collection. A peer
// whose collection is not complete does not count. `stable` are the stable log's records, for the
// text only.
QuorumAccount AccountFor(const VolumeState& state, absl::Span<const Peer> peers,
                         absl::Span<const Collected> collected,
                         absl::Span<const RecordView> stable);

}  // namespace salius::recovery
