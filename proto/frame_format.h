// The formats of UDP frames, and the only encoders and decoders of their headers and of
// acknowledgements. They need the standard library and ISA-L only: processes of a direct volume use
// them (client/direct/window). proto/frame.h explains the frames and has the forms with a Status.
//
// pure: no thread, lock, socket or clock.
#pragma once

#include <cstddef>
#include <cstdint>

#include "common/id_types.h"

namespace salius {

enum class FrameType : uint8_t { kRecords = 1, kFragment = 2, kAck = 3, kProbe = 4, kCompact = 5 };

// Whether frames of this type carry whole records, which `FrameHeader::count` counts.
constexpr bool HasRecords(FrameType type) {
  return type == FrameType::kRecords || type == FrameType::kCompact;
}

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
  uint16_t count = 0;   // records in the payload (kRecords and kCompact, else 0)
  bool operator==(const FrameHeader&) const = default;
};

struct FragmentHeader {
  Seq seq = 0;
  uint32_t record_bytes = 0;  // of the whole record
  uint32_t offset = 0;        // of this piece; all pieces but the last are equally long
  bool operator==(const FragmentHeader&) const = default;
};
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

inline constexpr size_t kAckFixedBytes = 56;
inline constexpr size_t kMaxAckBytes = kAckFixedBytes + 16 * kMaxAckRanges;

// An acknowledgement in memory of fixed size.
struct AckBytes {
  Incarnation incarnation;
  Seq base;
  Seq contiguous;
  Seq trimmed;
  uint64_t free_bytes;
  Epoch promise_epoch;
  uint16_t flags;
  uint16_t range_count;
  SeqRange ranges[kMaxAckRanges];  // the first `range_count` are set
};

// Writes exactly kFrameHeaderBytes, checksum included.
void EncodeFrameHeader(const FrameHeader& header, uint8_t* out);
// Writes exactly kFragmentHeaderBytes, checksum included.
void EncodeFragmentHeader(const FragmentHeader& header, uint8_t* out);

// The first check that bytes failed, in the order of the checks.
enum class FrameFault : uint8_t {
  kNone,
  kShort,  // fewer bytes than the fixed part
  kMagic,  // frame header only
  kChecksum,
  kVersion,   // frame header only
  kType,      // frame header only
  kReserved,  // bytes that must be zero; of an acknowledgement: unknown flags
  kMarks,     // a number that is too large to be true
  kLength,    // the size and the sizes inside do not agree
  kCount,     // records in a frame of another type, or none in one of records
  kPayload,   // a payload that a frame of this type may not have
  kBase,      // of an acknowledgement: `contiguous` is below the base
  kRange,     // of an acknowledgement: a range that overlaps, touches or descends
};

// Bytes of payload that a frame with this header's type and count may have.
struct PayloadBounds {
  size_t least = 0, most = 0;
};
PayloadBounds BoundsOf(const FrameHeader& header);

// Decodes and verifies the header of a datagram of `size` bytes. Sets `*header` unless the fault is
// before kMarks.
FrameFault DecodeFrameHeader(const uint8_t* datagram, size_t size, FrameHeader* header);
// Decodes and verifies the payload of an acknowledgement. Unless the fault is before kReserved,
// sets the fields of `*ack` up to the one with the fault; with kRange, ranges[range_count] is it.
FrameFault DecodeAck(const uint8_t* payload, size_t size, AckBytes* ack);

}  // namespace salius
