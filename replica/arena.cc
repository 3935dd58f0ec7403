#include "replica/arena.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_format.h"
#include "common/bytes.h"
#include "common/check.h"
#include "common/crc32c.h"
#include "common/limits.h"

namespace salius {
namespace {

constexpr uint64_t kArenaMagic = 0x3141'5355'494C'4153;  // "SALIUSA1"
constexpr uint32_t kArenaVersion = 1;

// Page 0.
constexpr size_t kMagicAt = 0;
constexpr size_t kVersionAt = 8;
constexpr size_t kHeaderCrcAt = 12;  // of [0, 12) and [16, 64)
constexpr size_t kTotalBytesAt = 16;
constexpr size_t kSegmentBytesAt = 24;
constexpr size_t kSegmentCountAt = 32;
constexpr size_t kSlotCountAt = 36;
constexpr size_t kFixedEnd = 64;
constexpr size_t kIncarnationAt = 64;
constexpr size_t kIncarnationCheckAt = 72;  // ~incarnation
constexpr size_t kProcessStartsAt = 80;

// One copy of a slot.
constexpr uint32_t kSlotMagic = 0x31564C53;  // "SLV1"
constexpr size_t kCopyMagicAt = 0;
constexpr size_t kCopyTakenAt = 4;
constexpr size_t kCopyGenerationAt = 8;
constexpr size_t kCopyVolumeAt = 16;
constexpr size_t kCopyFieldsAt = 32;
constexpr size_t kCopyMulticastAt = 124;  // length (u8) and text
constexpr size_t kCopySealedAt = kCopyMulticastAt + 1 + kMaxMulticastBytes;
constexpr size_t kCopyCrcAt = 252;
static_assert(kCopySealedAt < kCopyCrcAt);
static_assert(kCopyCrcAt + 4 == kSlotCopyBytes);

// One entry of the segment table.
constexpr size_t kTagAt = 0;
constexpr size_t kOwnerAt = 8;
constexpr size_t kUsedAt = 16;
constexpr size_t kNextAt = 24;
constexpr uint64_t kOwnerSalt = 0x6F77'6E65'7221'5F31;
constexpr uint64_t kUsedSalt = 0x7573'6564'215F'3131;
constexpr uint64_t kNextSalt = 0x6E65'7874'215F'3131;

// A segment must hold the largest record and its entry header.
constexpr uint64_t kSmallSegmentBytes = uint64_t{512} << 10;
constexpr uint64_t kSmallArenaBytes = uint64_t{32} << 20;
static_assert(kSmallSegmentBytes > 2 * kMaxRecordBody);

// Stores one aligned word after all earlier stores: a killed process leaves all or nothing.
void Publish(uint8_t* at, uint64_t value) {
  __atomic_store_n(reinterpret_cast<uint64_t*>(at), value, __ATOMIC_RELEASE);
}

// Returns a 32-bit value with a check of itself and of the segment's tag in the upper half.
uint64_t CheckedWord(uint32_t value, uint64_t tag, uint64_t salt) {
  uint8_t bytes[20];
  StoreU32(bytes, value);
  StoreU64(bytes + 4, tag);
  StoreU64(bytes + 12, salt);
  return uint64_t{Crc32c(bytes)} << 32 | value;
}

std::optional<uint32_t> ReadChecked(uint64_t word, uint64_t tag, uint64_t salt) {
  const uint32_t value = static_cast<uint32_t>(word);
  if (CheckedWord(value, tag, salt) != word) return std::nullopt;
  return value;
}

uint32_t HeaderCrc(const uint8_t* page) {
  return Crc32cExtend(Crc32c({page, kHeaderCrcAt}),
                      {page + kTotalBytesAt, kFixedEnd - kTotalBytesAt});
}

void EncodeCopy(const VolumeSlot* slot, uint64_t generation, uint8_t* out) {
  std::memset(out, 0, kSlotCopyBytes);
  StoreU32(out + kCopyMagicAt, kSlotMagic);
  StoreU32(out + kCopyTakenAt, slot != nullptr ? 1 : 0);
  StoreU64(out + kCopyGenerationAt, generation);
  if (slot != nullptr) {
    std::memcpy(out + kCopyVolumeAt, slot->volume.bytes.data(), slot->volume.bytes.size());
    ByteWriter writer(absl::MakeSpan(out + kCopyFieldsAt, kCopyMulticastAt - kCopyFieldsAt));
    for (const uint64_t field :
         {slot->epoch, slot->session, slot->base, slot->trimmed, slot->promise_epoch,
          slot->promise_token, slot->durable_mark, slot->checkpoint_mark, slot->tau_ms}) {
      writer.PutU64(field);
    }
    writer.PutU32(slot->k);
    writer.PutU32(slot->grant_segments);
    writer.PutU64(slot->memory_bytes);
    SALIUS_CHECK(writer.ok());
    SALIUS_CHECK(slot->multicast.size() <= kMaxMulticastBytes);
    StoreU8(out + kCopyMulticastAt, static_cast<uint8_t>(slot->multicast.size()));
    std::memcpy(out + kCopyMulticastAt + 1, slot->multicast.data(), slot->multicast.size());
    StoreU8(out + kCopySealedAt, slot->sealed ? 1 : 0);
  }
  StoreU32(out + kCopyCrcAt, Crc32c({out, kCopyCrcAt}));
}

struct DecodedCopy {
  std::optional<VolumeSlot> slot;
  uint64_t generation = 0;
};

std::optional<DecodedCopy> DecodeCopy(const uint8_t* in) {
  if (LoadU32(in + kCopyMagicAt) != kSlotMagic) return std::nullopt;
  if (LoadU32(in + kCopyCrcAt) != Crc32c({in, kCopyCrcAt})) return std::nullopt;
  DecodedCopy copy;
  copy.generation = LoadU64(in + kCopyGenerationAt);
  if (copy.generation > kMaxCount) return std::nullopt;
  if (LoadU32(in + kCopyTakenAt) == 0) return copy;
  VolumeSlot slot;
  std::memcpy(slot.volume.bytes.data(), in + kCopyVolumeAt, slot.volume.bytes.size());
  ByteReader reader(absl::MakeConstSpan(in + kCopyFieldsAt, kCopyCrcAt - kCopyFieldsAt));
  for (uint64_t* field :
       {&slot.epoch, &slot.session, &slot.base, &slot.trimmed, &slot.promise_epoch,
        &slot.promise_token, &slot.durable_mark, &slot.checkpoint_mark, &slot.tau_ms}) {
    *field = reader.U64();
  }
  slot.k = reader.U32();
  slot.grant_segments = reader.U32();
  slot.memory_bytes = reader.U64();
  static_assert(kCopyFieldsAt + 9 * 8 + 4 + 4 + 8 <= kCopyMulticastAt);
  const uint8_t length = LoadU8(in + kCopyMulticastAt);
  if (length > kMaxMulticastBytes) return std::nullopt;
  slot.multicast.assign(reinterpret_cast<const char*>(in + kCopyMulticastAt + 1), length);
  slot.sealed = LoadU8(in + kCopySealedAt) != 0;
  copy.slot = std::move(slot);
  return copy;
}

// Checks the conditions of every slot that a process writes. Without them a log over the slot could
// not be bounded.
bool Plausible(const VolumeSlot& slot, const ArenaGeometry& geometry) {
  return std::max({slot.epoch, slot.base, slot.trimmed, slot.promise_epoch, slot.durable_mark,
                   slot.checkpoint_mark}) <= kMaxCount &&
         (slot.epoch == 0 || slot.base > 0) && slot.grant_segments <= geometry.segment_count;
}

bool AllZero(const uint8_t* bytes, size_t n) {
  return std::all_of(bytes, bytes + n, [](uint8_t b) { return b == 0; });
}

}  // namespace

absl::StatusOr<ArenaGeometry> ArenaGeometry::For(uint64_t total_bytes) {
  if (total_bytes < kMinArenaBytes || total_bytes > kMaxArenaBytes ||
      total_bytes % kArenaPageBytes != 0) {
    return absl::InvalidArgumentError(
        absl::StrFormat("memory of %d bytes: allowed are %d to %d in multiples of %d", total_bytes,
                        kMinArenaBytes, kMaxArenaBytes, kArenaPageBytes));
  }
  ArenaGeometry g;
  g.total_bytes = total_bytes;
  g.segment_bytes = total_bytes < kSmallArenaBytes ? kSmallSegmentBytes : kSegmentBytes;
  // The slots allow far more volumes than could each have a segment of log. A slot also outlives
  // its log when it holds a promise.
  g.slot_count =
      static_cast<uint32_t>(std::clamp<uint64_t>(total_bytes / (uint64_t{256} << 10), 32, 4096));
  g.segment_table_at = kArenaPageBytes + uint64_t{g.slot_count} * kSlotBytes;
  const uint64_t most = total_bytes / g.segment_bytes;
  const uint64_t table_end = g.segment_table_at + most * kSegmentEntryBytes;
  g.segments_at = (table_end + kArenaPageBytes - 1) / kArenaPageBytes * kArenaPageBytes;
  g.segment_count = static_cast<uint32_t>((total_bytes - g.segments_at) / g.segment_bytes);
  return g;
}

absl::Status Arena::Format(absl::Span<uint8_t> memory, RandomSource random) {
  SALIUS_ASSIGN_OR_RETURN(const ArenaGeometry g, ArenaGeometry::For(memory.size()));
  uint8_t* const page = memory.data();
  Publish(page + kMagicAt, 0);
  std::memset(page, 0, g.segments_at);
  StoreU32(page + kVersionAt, kArenaVersion);
  StoreU64(page + kTotalBytesAt, g.total_bytes);
  StoreU64(page + kSegmentBytesAt, g.segment_bytes);
  StoreU32(page + kSegmentCountAt, g.segment_count);
  StoreU32(page + kSlotCountAt, g.slot_count);
  uint8_t head[kFixedEnd];
  std::memcpy(head, page, kFixedEnd);
  StoreU64(head + kMagicAt, kArenaMagic);
  StoreU32(page + kHeaderCrcAt, HeaderCrc(head));
  const Incarnation incarnation = random();
  StoreU64(page + kIncarnationAt, incarnation);
  StoreU64(page + kIncarnationCheckAt, ~incarnation);
  Publish(page + kMagicAt, kArenaMagic);
  return absl::OkStatus();
}

absl::StatusOr<Arena> Arena::Attach(absl::Span<uint8_t> memory, RandomSource random) {
  SALIUS_ASSIGN_OR_RETURN(const ArenaGeometry g, ArenaGeometry::For(memory.size()));
  uint8_t* const page = memory.data();
  if (LoadU64(page + kMagicAt) != kArenaMagic) return absl::NotFoundError("there is no arena");
  if (LoadU32(page + kVersionAt) != kArenaVersion) {
    return absl::FailedPreconditionError(
        absl::StrFormat("the arena has version %d, this program version %d",
                        LoadU32(page + kVersionAt), kArenaVersion));
  }
  if (LoadU32(page + kHeaderCrcAt) != HeaderCrc(page)) {
    return absl::DataLossError("the arena's header is damaged");
  }
  if (LoadU64(page + kTotalBytesAt) != g.total_bytes ||
      LoadU64(page + kSegmentBytesAt) != g.segment_bytes ||
      LoadU32(page + kSegmentCountAt) != g.segment_count ||
      LoadU32(page + kSlotCountAt) != g.slot_count) {
    return absl::FailedPreconditionError(
        absl::StrFormat("the arena was laid out for %d bytes, not for %d",
                        LoadU64(page + kTotalBytesAt), g.total_bytes));
  }
  Arena arena(memory, g, std::move(random));
  arena.LoadIncarnation();
  arena.LoadSlots();
  arena.LoadSegments();
  Publish(page + kProcessStartsAt, arena.process_starts() + 1);
  return arena;
}

Arena::Arena(absl::Span<uint8_t> memory, const ArenaGeometry& geometry, RandomSource random)
    : memory_(memory),
      geometry_(geometry),
      random_(std::move(random)),
      slots_(geometry.slot_count),
      owner_(geometry.segment_count, 0) {}

void Arena::LoadIncarnation() {
  incarnation_ = LoadU64(memory_.data() + kIncarnationAt);
  // They differ only when a process was killed while it changed the incarnation: change it again.
  if (LoadU64(memory_.data() + kIncarnationCheckAt) != ~incarnation_) ++damaged_;
}

void Arena::NewIncarnation() {
  Incarnation next = random_();
  while (next == incarnation_ || next == 0) next = random_();
  incarnation_ = next;
  Publish(memory_.data() + kIncarnationAt, next);
  Publish(memory_.data() + kIncarnationCheckAt, ~next);
}

uint64_t Arena::process_starts() const { return LoadU64(memory_.data() + kProcessStartsAt); }

void Arena::LoadSlots() {
  for (uint32_t i = 0; i < geometry_.slot_count; ++i) {
    const uint8_t* const at = memory_.data() + kArenaPageBytes + size_t{i} * kSlotBytes;
    SlotCopies& copies = slots_[i];
    bool any = false;
    for (int c = 0; c < 2; ++c) {
      std::optional<DecodedCopy> copy = DecodeCopy(at + static_cast<size_t>(c) * kSlotCopyBytes);
      if (!copy.has_value() || (any && copy->generation <= copies.generation)) continue;
      any = true;
      copies.slot = std::move(copy->slot);
      copies.generation = copy->generation;
      copies.current = c;
    }
    // The very first write of a slot may be cut off too: then the other copy is still all zero.
    const bool first = AllZero(at, kSlotCopyBytes) || AllZero(at + kSlotCopyBytes, kSlotCopyBytes);
    copies.damaged = any ? copies.slot.has_value() && !Plausible(*copies.slot, geometry_) : !first;
    if (!copies.damaged) continue;
    copies.slot.reset();
    ++damaged_;
  }
}

void Arena::LoadSegments() {
  for (uint32_t i = geometry_.segment_count; i-- > 0;) {
    const uint64_t word = LoadU64(entry(i) + kOwnerAt);
    std::optional<uint32_t> owner;
    if (word == 0) {
      owner = 0;
    } else {
      owner = ReadChecked(word, segment_tag(i), kOwnerSalt);
      if (!owner.has_value() || *owner > geometry_.slot_count) ++damaged_;
    }
    // A segment whose slot has no session was about to be freed.
    const bool owned = owner.has_value() && *owner != 0 && *owner <= geometry_.slot_count &&
                       slots_[*owner - 1].slot.has_value() && slots_[*owner - 1].slot->epoch != 0;
    owner_[i] = owned ? *owner : 0;
  }
  // G. Do it first: a process killed after the repair would leave no trace for the next one.
  if (damaged_ > 0) NewIncarnation();
  // Without the repair every later process would find the same damage and be another incarnation.
  for (uint32_t i = 0; i < geometry_.slot_count; ++i) {
    if (slots_[i].damaged) FreeSlot(i);
  }
  for (uint32_t i = geometry_.segment_count; i-- > 0;) {
    if (owner_[i] != 0) continue;
    Publish(entry(i) + kOwnerAt, 0);
    free_.push_back(i);
  }
}

const VolumeSlot* Arena::slot(uint32_t index) const {
  const std::optional<VolumeSlot>& slot = slots_[index].slot;
  return slot.has_value() ? &*slot : nullptr;
}

absl::StatusOr<uint32_t> Arena::NewSlot(const VolumeSlot& slot) {
  for (uint32_t i = 0; i < geometry_.slot_count; ++i) {
    if (slots_[i].slot.has_value()) continue;
    slots_[i].slot = slot;
    StoreCopy(i, &slot);
    return i;
  }
  return absl::ResourceExhaustedError(
      absl::StrFormat("all %d volume slots of this replica are taken", geometry_.slot_count));
}

void Arena::WriteSlot(uint32_t index, const VolumeSlot& slot) {
  SALIUS_CHECK(slots_[index].slot.has_value());
  slots_[index].slot = slot;
  StoreCopy(index, &slot);
}

void Arena::FreeSlot(uint32_t index) {
  slots_[index].slot.reset();
  StoreCopy(index, nullptr);
}

void Arena::StoreCopy(uint32_t index, const VolumeSlot* slot) {
  SlotCopies& copies = slots_[index];
  copies.current = 1 - copies.current;
  ++copies.generation;
  uint8_t encoded[kSlotCopyBytes];
  EncodeCopy(slot, copies.generation, encoded);
  uint8_t* const at = memory_.data() + kArenaPageBytes + size_t{index} * kSlotBytes +
                      static_cast<size_t>(copies.current) * kSlotCopyBytes;
  std::memcpy(at, encoded, kSlotCopyBytes - 8);
  // Store the checksum last. No later store into the arena (the other copy, a segment given back)
  // may come before it: hence an exchange, which no store passes in either direction.
  (void)__atomic_exchange_n(reinterpret_cast<uint64_t*>(at + kSlotCopyBytes - 8),
                            LoadU64(encoded + kSlotCopyBytes - 8), __ATOMIC_ACQ_REL);
}

std::optional<uint32_t> Arena::AllocateSegment(uint32_t slot) {
  SALIUS_CHECK(slot < geometry_.slot_count && slots_[slot].slot.has_value());
  if (free_.empty()) return std::nullopt;
  const uint32_t segment = free_.back();
  free_.pop_back();
  const uint64_t tag = random_();
  Publish(entry(segment) + kTagAt, tag);
  Publish(entry(segment) + kUsedAt, CheckedWord(0, tag, kUsedSalt));
  Publish(entry(segment) + kOwnerAt, CheckedWord(slot + 1, tag, kOwnerSalt));
  owner_[segment] = slot + 1;
  return segment;
}

void Arena::FreeSegment(uint32_t segment) {
  SALIUS_CHECK(owner_[segment] != 0);
  Publish(entry(segment) + kOwnerAt, 0);
  owner_[segment] = 0;
  free_.push_back(segment);
}

std::vector<uint32_t> Arena::SegmentsOf(uint32_t slot) const {
  std::vector<uint32_t> segments;
  for (uint32_t i = 0; i < geometry_.segment_count; ++i) {
    if (owner_[i] == slot + 1) segments.push_back(i);
  }
  return segments;
}

uint8_t* Arena::segment_data(uint32_t segment) {
  return memory_.data() + geometry_.segments_at + segment * geometry_.segment_bytes;
}
const uint8_t* Arena::segment_data(uint32_t segment) const {
  return memory_.data() + geometry_.segments_at + segment * geometry_.segment_bytes;
}

uint64_t Arena::segment_tag(uint32_t segment) const { return LoadU64(entry(segment) + kTagAt); }

std::optional<uint32_t> Arena::segment_used(uint32_t segment) const {
  const std::optional<uint32_t> used =
      ReadChecked(LoadU64(entry(segment) + kUsedAt), segment_tag(segment), kUsedSalt);
  if (!used.has_value() || *used > geometry_.segment_bytes) return std::nullopt;
  return used;
}

void Arena::SetSegmentUsed(uint32_t segment, uint32_t used) {
  Publish(entry(segment) + kUsedAt, CheckedWord(used, segment_tag(segment), kUsedSalt));
}

// Stores a word that depends on both tags. So it becomes invalid when either segment is given to
// another slot, or once more to the same slot.
void Arena::SetSegmentNext(uint32_t segment, uint32_t next) {
  SALIUS_CHECK(owner_[next] != 0 && owner_[next] == owner_[segment]);
  const uint64_t tags = segment_tag(segment) ^ segment_tag(next);
  Publish(entry(segment) + kNextAt, CheckedWord(next, tags, kNextSalt));
}

std::optional<uint32_t> Arena::segment_next(uint32_t segment) const {
  const uint64_t word = LoadU64(entry(segment) + kNextAt);
  const uint32_t next = static_cast<uint32_t>(word);
  if (next >= geometry_.segment_count || owner_[next] == 0 || owner_[next] != owner_[segment]) {
    return std::nullopt;
  }
  return ReadChecked(word, segment_tag(segment) ^ segment_tag(next), kNextSalt);
}

uint8_t* Arena::entry(uint32_t segment) {
  return memory_.data() + geometry_.segment_table_at + size_t{segment} * kSegmentEntryBytes;
}
const uint8_t* Arena::entry(uint32_t segment) const {
  return memory_.data() + geometry_.segment_table_at + size_t{segment} * kSegmentEntryBytes;
}

}  // namespace salius
