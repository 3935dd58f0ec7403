// Collect: brings the records of the unrecovered epoch here (DESIGN.md §6). The fullest replica is
// asked for everything, the others only for what is still missing of what they say they hold, so
// that each record crosses the network about once. Count first, then chunks with checksums; a
// stream that breaks goes on where it stopped.
//
// Threads: runs on the calling thread.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "absl/status/status.h"
#include "common/ids.h"
#include "recovery/coverage.h"
#include "recovery/fence.h"
#include "recovery/record_set.h"

namespace salius::recovery {

struct CollectRequest {
  VolumeId volume{};
  Epoch epoch = 0;
  Seq checkpoint = 0;
  uint64_t timeout_ms = 0;  // per stream, plus 1 s for each 4 MiB that the replica holds
  int attempts = 1;         // streams in a row that bring nothing before a replica is given up
};

// What one peer brought; parallel to the peers.
struct Collected {
  RecordSet records;
  absl::Status status;  // why it was given up
  // Everything it says it holds is in hand, from it or from others: it may count.
  bool complete = false;
};

// `coverage` holds what the stable log has and ends with everything in hand. `on_records(done,
// total)` reports progress; `on_peer` is called after each replica that was asked and an error from
// it ends the collection and is returned; no other error is.
absl::Status CollectAll(const CollectRequest& request, std::vector<Peer>* peers,
                        const std::function<void(uint64_t, uint64_t)>& on_records,
                        const std::function<absl::Status()>& on_peer, Coverage* coverage,
                        std::vector<Collected>* collected);

}  // namespace salius::recovery
