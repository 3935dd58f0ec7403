// Tells good acknowledgements from other datagrams.
//
// pure: no thread, lock, socket or clock.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "absl/types/span.h"
#include "common/ids.h"
#include "proto/frame.h"

namespace salius {

// A datagram as it came from the network.
struct AckDatagram {
  absl::Span<const uint8_t> bytes;
  int replica = -1;  // at whose address it came from; -1: at no replica's
  bool truncated = false;
};

// The session that an acknowledgement must name.
struct SessionKey {
  VolumeId volume{};
  Epoch epoch = 0;
  uint64_t session = 0;
};

enum class AckVerdict : uint8_t { kGood, kTruncated, kMalformed, kForeign, kUnknownSender };
inline constexpr size_t kAckVerdicts = 5;
// Returns the verdict's name in the metrics.
std::string_view AckVerdictName(AckVerdict verdict);

struct ReceivedAck {
  int64_t sent_ns = 0;  // the send time of the frame that it answers, as it echoes it
  AckPayload payload;
};

// Decodes a datagram. Sets `*ack` when the verdict is kGood.
AckVerdict FilterAck(const SessionKey& key, const AckDatagram& datagram, ReceivedAck* ack);

}  // namespace salius
