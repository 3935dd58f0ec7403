// One transmission that the session core asks for.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "client/session/record_draft.h"
#include "common/limits.h"
#include "proto/frame.h"

namespace salius {

// Records for some replicas, or (no records) a probe.
struct SendJob {
  uint8_t targets = 0;  // bit i: replica i
  std::vector<RecordRef> records;
  FrameHeader header;  // everything but type, count, payload_bytes
  bool first_time = false;
  // Targets that get it by the multicast group, all with one datagram; the others get their own.
  uint8_t grouped = 0;
  // Targets that take compact frames.
  uint8_t compact = 0;
  // The largest datagram to each.
  std::array<uint32_t, kMaxReplicas> datagram_bytes{};
};

}  // namespace salius
