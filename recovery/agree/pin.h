// Pin: writes the decided log into the stable log and ends it with one synced decision record. From
// then on no replica is needed and T never changes (I7).
//
// Threads: runs on the calling thread.
#pragma once

#include <cstdint>
#include <functional>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "common/ids.h"
#include "log/stable_log.h"
#include "recovery/agree/record_set.h"

namespace salius::recovery {

struct PinRequest {
  Epoch epoch = 0;
  Seq checkpoint = 0;
  Seq last = 0;                                 // T
  absl::Span<const RecordView* const> records;  // (checkpoint, last], ascending
  // Whether the stable log already has a seq on disk.
  std::function<bool(Seq)> in_stable;
};

// Appends the records that are not there yet, in batches with one sync each, then the decision.
// `on_batch` is called after each batch; its error ends the pinning. RESOURCE_EXHAUSTED when the
// log is too small for the decided records, before anything is appended.
absl::Status Pin(
    const PinRequest& request, StableLog& stable,
    const std::function<absl::Status(uint64_t done_bytes, uint64_t total_bytes)>& on_batch);

}  // namespace salius::recovery
