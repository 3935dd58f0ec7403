// The compact coding of record headers in a frame (docs/wire-format.md, "Compact record"): each
// header as its differences from the one before. A record that follows another one of the same file
// needs 14 bytes in place of 112. Both checksums are kept, so that a rebuilt record is verified as
// any other: it has the bytes that the primary stamped.
//
// A frame needs no other frame to be decoded: its first record differs from the frame's own header.
//
// pure: no thread, lock, socket or clock.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "absl/types/span.h"
#include "log/record_header.h"
#include "proto/frame_format.h"

namespace salius {

// Bytes that a compact header has at least, and at most.
inline constexpr size_t kLeastCompactHeader = 14;
inline constexpr size_t kMostCompactHeader = 96;

// Returns what the first record of a frame differs from.
RecordHeader BeforeFirst(const FrameHeader& frame);

// Encodes `header`, which is of the volume and epoch of `before`. `header_crc`: the checksum in its
// full form. Returns the number of bytes written to `out` (room for kMostCompactHeader).
size_t EncodeCompactHeader(const RecordHeader& before, const RecordHeader& header,
                           uint32_t header_crc, uint8_t* out);

// Decodes the compact header at the beginning of `bytes`. Sets `*header`, and writes its full form
// to `full` (kRecordHeaderBytes). Returns the number of bytes read; nothing when they are cut off,
// are not a compact header, or when the checksum of the full form is another one.
std::optional<size_t> DecodeCompactHeader(const RecordHeader& before,
                                          absl::Span<const uint8_t> bytes, RecordHeader* header,
                                          uint8_t* full);

}  // namespace salius
