// Bytes of the stable log (log/stable_log.h): file header, entry header, decision. Every field is
// in docs/log-format.md.
//
// pure: no thread, lock, socket or clock.
#ifndef SALIUS_LOG_STABLE_LOG_FORMAT_H_
#define SALIUS_LOG_STABLE_LOG_FORMAT_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/ids.h"
#include "log/stable_log.h"

namespace salius::stable {

inline constexpr size_t kHeaderSlotBytes = 4096;
inline constexpr size_t kHeaderSlots = 2;
inline constexpr size_t kRingAt = kHeaderSlots * kHeaderSlotBytes;  // file offset of the ring
inline constexpr uint64_t kCapacityUnit = 4096;
inline constexpr uint64_t kMinCapacity = uint64_t{1} << 20;
inline constexpr uint64_t kMaxCapacity = uint64_t{1} << 40;

// Returns how far a header lets a log of `capacity` bytes be written ahead. It is small, because
// all of it is searched when the log is opened. It is not too small, because every step costs a
// synced write of the header.
constexpr uint64_t ReachStep(uint64_t capacity) {
  constexpr uint64_t kMost = uint64_t{4} << 20;
  return capacity / 4 < kMost ? capacity / 4 : kMost;
}

inline constexpr size_t kEntryHeaderBytes = 40;
inline constexpr uint64_t kEntryAlign = 8;
inline constexpr size_t kDecisionBytes = 40;

// The file's header, in the slot `generation % 2`.
struct FileHeader {
  VolumeId volume{};
  uint64_t capacity = 0;
  uint64_t generation = 0;  // > 0; the valid slot with the larger one counts
  uint64_t start = 0;       // position of the first entry that is kept
  // Nothing was ever written at or beyond this position; from `start` to one lap after it.
  uint64_t reach = 0;
  // Random, per file. It goes into the checksum of every entry, so that no bytes that a user stores
  // can pass for an entry.
  uint64_t salt = 0;
  bool operator==(const FileHeader&) const = default;
};
std::string EncodeFileHeader(const FileHeader& header);  // kHeaderSlotBytes
// Decodes a slot. DATA_LOSS: bad checksum. INVALID_ARGUMENT: unknown version, or content that no
// encoder writes.
absl::StatusOr<FileHeader> DecodeFileHeader(absl::Span<const uint8_t> slot);

// Numbers are on disk and never reused.
enum class EntryKind : uint16_t { kRecord = 1, kDecision = 2, kPad = 3 };

struct EntryHeader {
  EntryKind kind = EntryKind::kRecord;
  uint32_t payload_bytes = 0;
  uint64_t position = 0;
  uint64_t synced = 0;  // all before this position was on disk when this entry was written
  // Ties the payload to this header: a record's header checksum, a decision's checksum, 0 for a
  // pad.
  uint32_t payload_check = 0;
  bool operator==(const EntryHeader&) const = default;

  uint64_t total_bytes() const {
    return kEntryHeaderBytes + (payload_bytes + kEntryAlign - 1) / kEntryAlign * kEntryAlign;
  }
};
void EncodeEntryHeader(const EntryHeader& header, uint64_t salt, uint8_t* out);
// Decodes an entry header. Errors as DecodeFileHeader; OUT_OF_RANGE when cut off.
absl::StatusOr<EntryHeader> DecodeEntryHeader(absl::Span<const uint8_t> bytes, uint64_t salt);
// Returns the smallest multiple of kEntryAlign, from `from` on, at which `bytes` look like an entry
// header; bytes.size() or more when there is none. A cheap test that comes before a decode.
size_t FindEntryMagic(absl::Span<const uint8_t> bytes, size_t from);

std::string EncodeDecision(const Decision& decision);  // kDecisionBytes
absl::StatusOr<Decision> DecodeDecision(absl::Span<const uint8_t> bytes);

}  // namespace salius::stable

#endif  // SALIUS_LOG_STABLE_LOG_FORMAT_H_
