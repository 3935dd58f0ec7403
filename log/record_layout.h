// Offset of every field of a record's fixed part; docs/log-format.md has the same table. For the
// encoder and the decoder only.
#pragma once

#include <cstddef>

#include "log/record_header.h"

namespace salius::record_layout {

inline constexpr size_t kMagicAt = 0;
inline constexpr size_t kVersionAt = 4;
inline constexpr size_t kOpAt = 6;
inline constexpr size_t kBodyBytesAt = 8;
inline constexpr size_t kBodyCrcAt = 12;
inline constexpr size_t kVolumeAt = 16;
inline constexpr size_t kEpochAt = 32;
inline constexpr size_t kSeqAt = 40;
inline constexpr size_t kTimestampAt = 48;
inline constexpr size_t kDurableAt = 56;
inline constexpr size_t kCheckpointAt = 64;
inline constexpr size_t kFileIdAt = 72;
inline constexpr size_t kArg0At = 80;
inline constexpr size_t kArg1At = 88;
inline constexpr size_t kArg2At = 96;
inline constexpr size_t kReservedAt = 104;
inline constexpr size_t kHeaderCrcAt = 108;
static_assert(kHeaderCrcAt + 4 == kRecordHeaderBytes);

}  // namespace salius::record_layout
