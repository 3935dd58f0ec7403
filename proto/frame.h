// UDP frames between a primary and its replicas: codec with Status. frame_format.h has the formats.
// docs/wire-format.md gives every byte. One datagram is one frame: an 88-byte header and a payload.
//
//   kRecords   payload: `count` whole records (log/record.h), back to back
//   kCompact   payload: `count` records in the compact coding (transport/compact_records.h)
//   kFragment  payload: FragmentHeader (24 bytes) and a piece of one record's bytes
//   kProbe     no payload; carries the marks (trim, heartbeat) and asks for an acknowledgement now
//   kAck       payload: AckPayload
//
// The header has its own checksum, and so has each record (a fragmented record is verified when it
// is whole). Corrupt, foreign or malformed datagrams give a Status and a counter, never an effect.
//
// pure: no thread, lock, socket or clock.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/ids.h"
#include "proto/frame_format.h"

namespace salius {

// Verifies magic, version, type, checksum and reserved bytes. Verifies also that payload_bytes is
// the number of bytes that follow the header in `datagram`.
absl::StatusOr<FrameHeader> DecodeFrameHeader(absl::Span<const uint8_t> datagram);

absl::StatusOr<FragmentHeader> DecodeFragmentHeader(absl::Span<const uint8_t> payload);

struct AckPayload {
  Incarnation incarnation = 0;
  Seq base = 0;        // first seq of the session that this replica holds
  Seq contiguous = 0;  // every seq in [base, contiguous] is held or was trimmed; base-1: none
  Seq trimmed = 0;     // every record up to here was dropped
  uint64_t free_bytes = 0;
  Epoch promise_epoch = 0;  // largest epoch promised to a recovery, 0: none
  uint16_t flags = 0;
  // The seqs held above `contiguous`: ascending, disjoint, at most kMaxAckRanges ranges.
  std::vector<SeqRange> ranges;
  bool operator==(const AckPayload&) const = default;
};
// Returns the number of bytes written to `out` (room for kMaxAckBytes).
size_t EncodeAckPayload(const AckPayload& ack, uint8_t* out);
// Refuses ranges that overlap, touch, descend, or lie at or below `contiguous`.
absl::StatusOr<AckPayload> DecodeAckPayload(absl::Span<const uint8_t> payload);

}  // namespace salius
