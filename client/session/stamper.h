// Stamps the records of one session: order and marks (docs/protocol.md, "A record").
//
// pure: no thread, lock, socket or clock. The caller serialises all calls.
#pragma once

#include <algorithm>
#include <cstdint>

#include "common/ids.h"
#include "log/record.h"

namespace salius {

class Stamper {
 public:
  // `last_timestamp_ns`: of the volume's last record, from its state.
  Stamper(const VolumeId& volume, Epoch epoch, uint64_t last_timestamp_ns)
      : volume_(volume), epoch_(epoch), last_timestamp_ns_(last_timestamp_ns) {}

  // Stamps all but the seq, which the policy gives. `realtime_ns`: of the wall clock, which may be
  // wrong in any way. `durable` and `checkpoint`: the watermarks now.
  void Stamp(RecordHeader& header, int64_t realtime_ns, Seq durable, Seq checkpoint) {
    last_timestamp_ns_ =
        NextTimestamp(last_timestamp_ns_, static_cast<uint64_t>(std::max<int64_t>(realtime_ns, 0)));
    header.volume = volume_;
    header.epoch = epoch_;
    header.timestamp_ns = last_timestamp_ns_;
    header.durable_mark = durable;
    header.checkpoint_mark = checkpoint;
  }
  uint64_t last_timestamp_ns() const { return last_timestamp_ns_; }

 private:
  VolumeId volume_;
  Epoch epoch_;
  uint64_t last_timestamp_ns_;
};

}  // namespace salius
