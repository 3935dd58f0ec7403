// Offset of every field of a frame (docs/wire-format.md). For proto/frame_format.cc,
// proto/frame.cc, proto/sealed_frame.cc and their tests only.
#ifndef SALIUS_PROTO_LAYOUT_H_
#define SALIUS_PROTO_LAYOUT_H_

#include <cstddef>
#include <cstdint>

#include "proto/frame_format.h"
#include "proto/sealed_frame.h"

namespace salius::frame_layout {

// The fixed part of a record (kRecordHeaderBytes; log/ and proto/ do not see each other).
inline constexpr size_t kLeastRecordBytes = 112;
// The shortest form of that in a compact frame (transport/compact_records.h).
inline constexpr size_t kLeastCompactBytes = 14;

inline constexpr size_t kFrameMagicAt = 0;
inline constexpr size_t kFrameVersionAt = 4;
inline constexpr size_t kFrameTypeAt = 5;
inline constexpr size_t kFrameCountAt = 6;
inline constexpr size_t kFramePayloadBytesAt = 8;
inline constexpr size_t kFrameReserved0At = 12;
inline constexpr size_t kFrameVolumeAt = 16;
inline constexpr size_t kFrameEpochAt = 32;
inline constexpr size_t kFrameSessionAt = 40;
inline constexpr size_t kFrameSendTimeAt = 48;
inline constexpr size_t kFrameTrimAt = 56;
inline constexpr size_t kFrameDurableAt = 64;
inline constexpr size_t kFrameIssuedAt = 72;
inline constexpr size_t kFrameReserved1At = 80;
inline constexpr size_t kFrameCrcAt = 84;
static_assert(kFrameCrcAt + 4 == kFrameHeaderBytes);

inline constexpr size_t kFragmentSeqAt = 0;
inline constexpr size_t kFragmentRecordBytesAt = 8;
inline constexpr size_t kFragmentOffsetAt = 12;
inline constexpr size_t kFragmentReservedAt = 16;
inline constexpr size_t kFragmentCrcAt = 20;
static_assert(kFragmentCrcAt + 4 == kFragmentHeaderBytes);

inline constexpr size_t kAckIncarnationAt = 0;
inline constexpr size_t kAckBaseAt = 8;
inline constexpr size_t kAckContiguousAt = 16;
inline constexpr size_t kAckTrimmedAt = 24;
inline constexpr size_t kAckFreeBytesAt = 32;
inline constexpr size_t kAckPromiseAt = 40;
inline constexpr size_t kAckFlagsAt = 48;
inline constexpr size_t kAckRangeCountAt = 50;
inline constexpr size_t kAckCrcAt = 52;
static_assert(kAckCrcAt + 4 == kAckFixedBytes);
inline constexpr size_t kAckRangeBytes = 16;
static_assert(kAckFixedBytes + kAckRangeBytes * kMaxAckRanges == kMaxAckBytes);

// Magic and version of a sealed frame are where a plain one has them.
inline constexpr size_t kSealKindAt = 5;
inline constexpr size_t kSealReservedAt = 6;
inline constexpr size_t kSealKeyIdAt = 8;
inline constexpr size_t kSealSenderAt = 12;
inline constexpr size_t kSealCounterAt = 16;
static_assert(kSealCounterAt + 8 == kSealPrefixBytes);

inline constexpr uint16_t kAllAckFlags =
    kAckMemoryFull | kAckUnknownSession | kAckFenced | kAckOverdue;

}  // namespace salius::frame_layout

#endif  // SALIUS_PROTO_LAYOUT_H_
