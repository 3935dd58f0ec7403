// Collect: brings the records of the unrecovered epoch here (docs/recovery.md).
//
// 1. The missing records are cut into pieces. The replicas that hold most are asked at once, each
//    for the next piece when it has brought one, so that fast ones bring more. A replica that
//    stalls while the others are done with their pieces is not waited for.
// 2. Then one replica after the other is asked for the records that are still missing and that it
//    says it holds. When there are few records, this step brings all. Replicas that failed or
//    stalled come last.
//
// So each record crosses the network about once. A stream has the count first, then chunks with
// checksums; a stream that breaks is resumed where it stopped.
//
// Threads: one for each replica that is asked at once, all ended when CollectAll returns; the
// callbacks are called on the calling thread.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "absl/status/status.h"
#include "common/ids.h"
#include "recovery/agree/coverage.h"
#include "recovery/agree/fence.h"
#include "recovery/agree/record_set.h"

namespace salius::recovery {

struct CollectRequest {
  VolumeId volume{};
  Epoch epoch = 0;
  Seq checkpoint = 0;
  uint64_t timeout_ms = 0;  // per stream, plus 1 s for each 4 MiB that the replica holds
  int attempts = 1;         // streams in a row without a record before a replica is given up
  // Least size of a piece, in records (16 MiB if that is less). One piece alone is not shared.
  uint64_t least_piece = 1;
  bool one_thread = false;  // fetch the pieces one after the other, on the calling thread
};

// The records that one peer brought; parallel to the peers.
struct Collected {
  RecordSet records;
  absl::Status status;  // why it was given up
  // Whether the replica may count: all that it says it holds is in hand, from it or from others,
  // and its memory is the one that answered.
  bool complete = false;
};

// Collects the records. `coverage` has the stable log's seqs and ends with all those in hand.
// `on_records(done, total)` reports progress, in records. `on_peer` is called once for each replica
// that holds records of the epoch, after the last request to it. An error from `on_peer` ends the
// collection and is returned; no other error is.
absl::Status CollectAll(const CollectRequest& request, std::vector<Peer>* peers,
                        const std::function<void(uint64_t, uint64_t)>& on_records,
                        const std::function<absl::Status()>& on_peer, Coverage* coverage,
                        std::vector<Collected>* collected);

}  // namespace salius::recovery
