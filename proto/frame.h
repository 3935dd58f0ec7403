// UDP frames between a primary and its replicas: layout and codec. docs/wire-format.md gives every
// byte. One datagram is one frame: an 88-byte header and a payload.
//
//   kRecords   payload: `count` whole records (log/record.h), back to back
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

namespace salius {

enum class FrameType : uint8_t { kRecords = 1, kFragment = 2, kAck = 3, kProbe = 4 };

inline constexpr uint32_t kFrameMagic = 0x31464C53;  // "SLF1"
inline constexpr uint8_t kFrameVersion = 1;
inline constexpr size_t kFrameHeaderBytes = 88;
inline constexpr size_t kFragmentHeaderBytes = 24;
inline constexpr size_t kMaxAckRanges = 32;

struct FrameHeader {
  FrameType type = FrameType::kProbe;
  uint32_t payload_bytes = 0;
  VolumeId volume{};
  Epoch epoch = 0;
  uint64_t session = 0;       // random number agreed when the session was opened
  uint64_t send_time_ns = 0;  // primary's monotonic clock; an ack echoes the newest one it answers
  Seq trim_mark = 0;          // primary's noted checkpoint: the replica may drop up to here
  Seq durable_mark = 0;
  Seq issued_mark = 0;  // highest seq sent by then: lets the replica see a gap at the tail
  uint16_t count = 0;   // records in the payload (kRecords only, else 0)
  bool operator==(const FrameHeader&) const = default;
};

// Writes exactly kFrameHeaderBytes, checksum included.
void EncodeFrameHeader(const FrameHeader& header, uint8_t* out);
// Verifies magic, version, type, checksum and reserved bytes. Verifies also that payload_bytes is
// the number of bytes that follow the header in `datagram`.
absl::StatusOr<FrameHeader> DecodeFrameHeader(absl::Span<const uint8_t> datagram);

struct FragmentHeader {
  Seq seq = 0;
  uint32_t record_bytes = 0;  // of the whole record
  uint32_t offset = 0;        // of this piece; all pieces but the last are equally long
  bool operator==(const FragmentHeader&) const = default;
};
void EncodeFragmentHeader(const FragmentHeader& header, uint8_t* out);
absl::StatusOr<FragmentHeader> DecodeFragmentHeader(absl::Span<const uint8_t> payload);

enum AckFlags : uint16_t {
  kAckMemoryFull = 1u << 0,      // a record was refused because memory is full
  kAckUnknownSession = 1u << 1,  // this replica lost the session's memory, or never had it
  kAckFenced = 1u << 2,          // a recovery with a larger epoch has begun: promise_epoch
  kAckOverdue = 1u << 3,         // holds a record older than k*tau that no trim covered (I6)
};

struct SeqRange {
  Seq first = 0;
  Seq last = 0;  // inclusive
  bool operator==(const SeqRange&) const = default;
};

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
inline constexpr size_t kAckFixedBytes = 56;
inline constexpr size_t kMaxAckBytes = kAckFixedBytes + 16 * kMaxAckRanges;

// Returns the number of bytes written to `out` (room for kMaxAckBytes).
size_t EncodeAckPayload(const AckPayload& ack, uint8_t* out);
// Refuses ranges that overlap, touch, descend, or lie at or below `contiguous`.
absl::StatusOr<AckPayload> DecodeAckPayload(absl::Span<const uint8_t> payload);

}  // namespace salius
