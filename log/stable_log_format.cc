#include "log/stable_log_format.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "absl/strings/str_format.h"
#include "common/bytes.h"
#include "common/check.h"
#include "common/crc32c.h"
#include "common/limits.h"

namespace salius::stable {
namespace {

constexpr uint32_t kFileMagic = 0x314C4C53;   // "SLL1"
constexpr uint32_t kEntryMagic = 0x31454C53;  // "SLE1"
constexpr uint16_t kVersion = 2;

// File header.
constexpr size_t kMagicAt = 0;
constexpr size_t kVersionAt = 4;
constexpr size_t kVolumeAt = 8;
constexpr size_t kCapacityAt = 24;
constexpr size_t kGenerationAt = 32;
constexpr size_t kStartAt = 40;
constexpr size_t kSaltAt = 48;
constexpr size_t kReachAt = 56;
constexpr size_t kUsedHeaderBytes = 64;
constexpr size_t kHeaderCrcAt = kHeaderSlotBytes - 4;

// Entry header.
constexpr size_t kEntryMagicAt = 0;
constexpr size_t kEntryKindAt = 4;
constexpr size_t kEntryReservedAt = 6;
constexpr size_t kEntryPayloadBytesAt = 8;
constexpr size_t kEntryPayloadCheckAt = 12;
constexpr size_t kEntryPositionAt = 16;
constexpr size_t kEntrySyncedAt = 24;
constexpr size_t kEntryReserved1At = 32;
constexpr size_t kEntryCrcAt = 36;
static_assert(kEntryCrcAt + 4 == kEntryHeaderBytes);

// Decision.
constexpr size_t kDecisionEpochAt = 0;
constexpr size_t kDecisionLastAt = 8;
constexpr size_t kDecisionCheckpointAt = 16;
constexpr size_t kDecisionCountAt = 24;
constexpr size_t kDecisionDigestAt = 32;
constexpr size_t kDecisionCrcAt = 36;
static_assert(kDecisionCrcAt + 4 == kDecisionBytes);

absl::Status Malformed(const std::string& why) {
  return absl::InvalidArgumentError("stable log: " + why);
}

// Returns the checksum of an entry header, over the salt and the header up to the checksum.
uint32_t EntryCrc(const uint8_t* header, uint64_t salt) {
  uint8_t salt_bytes[8];
  StoreU64(salt_bytes, salt);
  return Crc32cExtend(Crc32c(salt_bytes), {header, kEntryCrcAt});
}

}  // namespace

std::string EncodeFileHeader(const FileHeader& header) {
  SALIUS_CHECK(header.generation > 0);
  std::string slot(kHeaderSlotBytes, '\0');
  auto* const out = reinterpret_cast<uint8_t*>(slot.data());
  StoreU32(out + kMagicAt, kFileMagic);
  StoreU16(out + kVersionAt, kVersion);
  std::memcpy(out + kVolumeAt, header.volume.bytes.data(), header.volume.bytes.size());
  StoreU64(out + kCapacityAt, header.capacity);
  StoreU64(out + kGenerationAt, header.generation);
  StoreU64(out + kStartAt, header.start);
  StoreU64(out + kSaltAt, header.salt);
  StoreU64(out + kReachAt, header.reach);
  StoreU32(out + kHeaderCrcAt, Crc32c({out, kHeaderCrcAt}));
  return slot;
}

absl::StatusOr<FileHeader> DecodeFileHeader(absl::Span<const uint8_t> slot) {
  if (slot.size() != kHeaderSlotBytes) {
    return absl::DataLossError(absl::StrFormat("stable log: header of %d bytes, expected %d",
                                               slot.size(), kHeaderSlotBytes));
  }
  const uint8_t* const in = slot.data();
  if (LoadU32(in + kHeaderCrcAt) != Crc32c({in, kHeaderCrcAt})) {
    return absl::DataLossError("stable log: header checksum does not match");
  }
  if (LoadU32(in + kMagicAt) != kFileMagic) {
    return Malformed(absl::StrFormat("magic %08x", LoadU32(in + kMagicAt)));
  }
  if (LoadU16(in + kVersionAt) != kVersion) {
    return Malformed(
        absl::StrFormat("version %d, this program knows %d", LoadU16(in + kVersionAt), kVersion));
  }
  FileHeader header;
  std::memcpy(header.volume.bytes.data(), in + kVolumeAt, header.volume.bytes.size());
  header.capacity = LoadU64(in + kCapacityAt);
  header.generation = LoadU64(in + kGenerationAt);
  header.start = LoadU64(in + kStartAt);
  header.salt = LoadU64(in + kSaltAt);
  header.reach = LoadU64(in + kReachAt);
  if (header.capacity < kMinCapacity || header.capacity > kMaxCapacity ||
      header.capacity % kCapacityUnit != 0) {
    return Malformed(absl::StrFormat("capacity %d", header.capacity));
  }
  if (header.generation == 0 || header.generation > kMaxCount) {
    return Malformed(absl::StrFormat("generation %d", header.generation));
  }
  // Positions count bytes ever written.
  if (header.start % kEntryAlign != 0 || header.start > kMaxCount) {
    return Malformed(absl::StrFormat("start position %d", header.start));
  }
  if (header.reach % kEntryAlign != 0 || header.reach < header.start ||
      header.reach - header.start > header.capacity) {
    return Malformed(
        absl::StrFormat("reach %d of a log that starts at %d", header.reach, header.start));
  }
  const absl::Span<const uint8_t> unused =
      slot.subspan(kUsedHeaderBytes, kHeaderCrcAt - kUsedHeaderBytes);
  if (LoadU16(in + kVersionAt + 2) != 0 ||
      std::any_of(unused.begin(), unused.end(), [](uint8_t b) { return b != 0; })) {
    return Malformed("reserved bytes are not zero");
  }
  return header;
}

void EncodeEntryHeader(const EntryHeader& header, uint64_t salt, uint8_t* out) {
  std::memset(out, 0, kEntryHeaderBytes);
  StoreU32(out + kEntryMagicAt, kEntryMagic);
  StoreU16(out + kEntryKindAt, static_cast<uint16_t>(header.kind));
  StoreU32(out + kEntryPayloadBytesAt, header.payload_bytes);
  StoreU32(out + kEntryPayloadCheckAt, header.payload_check);
  StoreU64(out + kEntryPositionAt, header.position);
  StoreU64(out + kEntrySyncedAt, header.synced);
  StoreU32(out + kEntryCrcAt, EntryCrc(out, salt));
}

absl::StatusOr<EntryHeader> DecodeEntryHeader(absl::Span<const uint8_t> bytes, uint64_t salt) {
  if (bytes.size() < kEntryHeaderBytes) {
    return absl::OutOfRangeError(
        absl::StrFormat("stable log: entry header cut off after %d bytes", bytes.size()));
  }
  const uint8_t* const in = bytes.data();
  if (LoadU32(in + kEntryCrcAt) != EntryCrc(in, salt)) {
    return absl::DataLossError("stable log: entry checksum does not match");
  }
  if (LoadU32(in + kEntryMagicAt) != kEntryMagic) {
    return Malformed(absl::StrFormat("entry magic %08x", LoadU32(in + kEntryMagicAt)));
  }
  const uint16_t kind = LoadU16(in + kEntryKindAt);
  if (kind < static_cast<uint16_t>(EntryKind::kRecord) ||
      kind > static_cast<uint16_t>(EntryKind::kPad)) {
    return Malformed(absl::StrFormat("unknown kind of entry %d", kind));
  }
  if (LoadU16(in + kEntryReservedAt) != 0 || LoadU32(in + kEntryReserved1At) != 0) {
    return Malformed("reserved bytes of an entry are not zero");
  }
  EntryHeader header;
  header.kind = static_cast<EntryKind>(kind);
  header.payload_bytes = LoadU32(in + kEntryPayloadBytesAt);
  header.payload_check = LoadU32(in + kEntryPayloadCheckAt);
  header.position = LoadU64(in + kEntryPositionAt);
  header.synced = LoadU64(in + kEntrySyncedAt);
  if (header.position % kEntryAlign != 0 || header.synced > header.position ||
      header.position > 2 * kMaxCount) {
    return Malformed(
        absl::StrFormat("entry at %d, synced up to %d", header.position, header.synced));
  }
  return header;
}

size_t FindEntryMagic(absl::Span<const uint8_t> bytes, size_t from) {
  // Most bytes searched are not an entry header. So look at whole blocks at a time, without a
  // branch for each place, and pass never-written space (zeros) at the speed of memcmp.
  constexpr size_t kPlaces = 128;
  constexpr size_t kBlock = kPlaces * kEntryAlign;
  static constexpr std::array<uint8_t, kBlock> kZeros = {};
  size_t at = from;
  for (; at + kBlock <= bytes.size(); at += kBlock) {
    if (std::memcmp(bytes.data() + at, kZeros.data(), kBlock) == 0) continue;
    uint32_t found = 0;
    for (size_t i = 0; i < kPlaces; ++i) {
      found |= LoadU32(bytes.data() + at + i * kEntryAlign) == kEntryMagic ? 1u : 0u;
    }
    if (found != 0) break;
  }
  for (; at + sizeof(kEntryMagic) <= bytes.size(); at += kEntryAlign) {
    if (LoadU32(bytes.data() + at) == kEntryMagic) return at;
  }
  return std::max(at, bytes.size());
}

std::string EncodeDecision(const Decision& decision) {
  std::string bytes(kDecisionBytes, '\0');
  auto* const out = reinterpret_cast<uint8_t*>(bytes.data());
  StoreU64(out + kDecisionEpochAt, decision.epoch);
  StoreU64(out + kDecisionLastAt, decision.last);
  StoreU64(out + kDecisionCheckpointAt, decision.checkpoint);
  StoreU64(out + kDecisionCountAt, decision.count);
  StoreU32(out + kDecisionDigestAt, decision.digest);
  StoreU32(out + kDecisionCrcAt, Crc32c({out, kDecisionCrcAt}));
  return bytes;
}

absl::StatusOr<Decision> DecodeDecision(absl::Span<const uint8_t> bytes) {
  if (bytes.size() != kDecisionBytes) {
    return Malformed(absl::StrFormat("decision of %d bytes", bytes.size()));
  }
  const uint8_t* const in = bytes.data();
  if (LoadU32(in + kDecisionCrcAt) != Crc32c({in, kDecisionCrcAt})) {
    return absl::DataLossError("stable log: checksum of a decision does not match");
  }
  Decision decision;
  decision.epoch = LoadU64(in + kDecisionEpochAt);
  decision.last = LoadU64(in + kDecisionLastAt);
  decision.checkpoint = LoadU64(in + kDecisionCheckpointAt);
  decision.count = LoadU64(in + kDecisionCountAt);
  decision.digest = LoadU32(in + kDecisionDigestAt);
  if (std::max({decision.epoch, decision.last, decision.checkpoint, decision.count}) > kMaxCount) {
    return Malformed(absl::StrFormat("decision for epoch %d: %d records above %d up to %d",
                                     decision.epoch, decision.count, decision.checkpoint,
                                     decision.last));
  }
  return decision;
}

}  // namespace salius::stable
