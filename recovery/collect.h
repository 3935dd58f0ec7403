// Collect: brings the records of the unrecovered epoch here (docs/recovery.md). What is missing is
// cut into pieces; the replicas that hold most are asked at once, each for the next piece when it
// has brought one, so that the fast ones bring more. Then one after the other is asked for what is
// still missing of what it says it holds: all of it when there is little. So each record crosses
// the network about once. Count first, then chunks with checksums; a stream that breaks goes on
// where it stopped. Who stands still while the others are done with their pieces is not waited for;
// like who failed it is asked again at last, for what nobody else had.
//
// Threads: one for each replica that is asked at once, all ended when CollectAll returns; the
// callbacks are called on the calling thread.
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
  // Records, or 16 MiB if those are fewer; what is no more than one piece is not shared.
  uint64_t least_piece = 1;
  bool one_thread = false;  // the pieces one after the other, on the calling thread
};

// What one peer brought; parallel to the peers.
struct Collected {
  RecordSet records;
  absl::Status status;  // why it was given up
  // Everything it says it holds is in hand, from it or from others, and its memory is the one that
  // answered: it may count.
  bool complete = false;
};

// `coverage` holds what the stable log has and ends with everything in hand. `on_records(done,
// total)` reports progress, in records; `on_peer` is called for each replica that holds records of
// the epoch, when it will not be asked any more, and an error from it ends the collection and is
// returned; no other error is.
absl::Status CollectAll(const CollectRequest& request, std::vector<Peer>* peers,
                        const std::function<void(uint64_t, uint64_t)>& on_records,
                        const std::function<absl::Status()>& on_peer, Coverage* coverage,
                        std::vector<Collected>* collected);

}  // namespace salius::recovery
