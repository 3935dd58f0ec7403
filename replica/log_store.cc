#include "replica/log_store.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "common/bytes.h"
#include "common/check.h"
#include "common/crc32c.h"
#include "common/limits.h"
#include "common/stream_copy.h"

namespace salius {
namespace {

constexpr size_t kFirstIndex = 256;
// The least that a record takes: an entry, a header without a body, no padding.
constexpr uint64_t kLeastEntry = kLogEntryBytes + kRecordHeaderBytes;
constexpr uint64_t kReadSeqs = 65536;

// Returns the bytes of records that `bytes` of segments take for sure, whatever the records' sizes.
// Entries take at most 23 of 136 bytes, and at most 143 are lost between one segment and the next.
uint64_t UsableBytes(uint64_t bytes) { return bytes / 5 * 4; }

uint32_t EntryCheck(uint64_t tag, uint32_t offset, uint32_t word) {
  uint8_t bytes[16];
  StoreU64(bytes, tag);
  StoreU32(bytes + 8, offset);
  StoreU32(bytes + 12, word);
  return Crc32c(bytes);
}

uint64_t Location(uint32_t segment, uint32_t offset) {
  return (uint64_t{segment} + 1) << 32 | offset;
}

}  // namespace

uint32_t VolumeLog::GrantSegments(uint64_t memory_bytes, uint64_t segment_bytes) {
  const uint64_t usable = UsableBytes(segment_bytes);
  const uint64_t segments = memory_bytes / usable + (memory_bytes % usable != 0 ? 1 : 0) + 1;
  return static_cast<uint32_t>(std::min<uint64_t>(segments, UINT32_MAX));
}

VolumeLog::VolumeLog(Arena& arena, uint32_t slot_index, const VolumeSlot& slot)
    : arena_(arena),
      slot_(slot_index),
      volume_(slot.volume),
      epoch_(slot.epoch),
      grant_(slot.grant_segments),
      window_(std::bit_ceil(std::max<uint64_t>(
          kFirstIndex, slot.grant_segments * arena.geometry().segment_bytes / kLeastEntry))),
      floor_(std::max(slot.base - 1, slot.trimmed)),
      held_(slot.base),
      index_(kFirstIndex, 0) {
  SALIUS_CHECK(epoch_ != 0);
  held_.TrimTo(floor_);
}

// ---- storing ------------------------------------------------------------------------------------

// Returns why `seq` cannot be taken now, kDuplicate when it is held; nothing when it can.
std::optional<VolumeLog::Result> VolumeLog::Refusal(Seq seq) const {
  if (seq < held_.base()) return Result::kBelowBase;
  if (seq <= floor_) return Result::kTrimmed;
  switch (held_.Check(seq)) {
    case AckSet::AddResult::kBelowBase:
      return Result::kBelowBase;
    case AckSet::AddResult::kHeld:
      return Result::kDuplicate;
    case AckSet::AddResult::kTooManyRanges:
      return Result::kOutOfWindow;
    case AckSet::AddResult::kAdded:
      break;
  }
  if (!FitsIndex(seq)) return Result::kOutOfWindow;
  return std::nullopt;
}

VolumeLog::Result VolumeLog::Append(const RecordHeader& header, absl::Span<const uint8_t> bytes) {
  const std::optional<Result> refusal = Refusal(header.seq);
  if (refusal == Result::kDuplicate) {
    return Equals(PlaceOf(header.seq), bytes) ? Result::kDuplicate : Result::kConflict;
  }
  if (refusal.has_value()) return *refusal;
  const uint32_t size = static_cast<uint32_t>(bytes.size());
  std::optional<Place> place;
  if (const auto pieces = in_progress_.find(header.seq); pieces != in_progress_.end()) {
    // The space reserved for its pieces takes the whole record.
    if (pieces->second.record_bytes == size) place = pieces->second.place;
    in_progress_.erase(pieces);
  }
  if (!place.has_value()) place = Reserve(header.seq, size);
  if (!place.has_value()) return Result::kMemoryFull;
  ForEachSpan(*place, size, 0, size, [&](uint32_t at, absl::Span<uint8_t> here) {
    StreamCopy(here.data(), &bytes[at], here.size());
  });
  WriteEntry(*place, {size, EntryIs::kComplete});
  AddToIndex(header.seq, *place);
  FetchNext();
  return Result::kStored;
}

VolumeLog::InProgress VolumeLog::Unreceived(Place place, uint32_t record_bytes) {
  return {place, record_bytes, {}, kRecordHeaderBytes, 0};
}

VolumeLog::Result VolumeLog::AddPiece(const FragmentHeader& fragment,
                                      absl::Span<const uint8_t> piece, RecordHeader* completed) {
  if (const std::optional<Result> refusal = Refusal(fragment.seq)) return *refusal;
  auto it = in_progress_.find(fragment.seq);
  if (it == in_progress_.end()) {
    if (in_progress_.size() >= kMaxInProgress) return Result::kOutOfWindow;
    const std::optional<Place> place = Reserve(fragment.seq, fragment.record_bytes);
    if (!place.has_value()) return Result::kMemoryFull;
    it = in_progress_.emplace(fragment.seq, Unreceived(*place, fragment.record_bytes)).first;
  }
  InProgress& record = it->second;
  const uint32_t begin = fragment.offset;
  const uint32_t end = begin + static_cast<uint32_t>(piece.size());
  if (fragment.record_bytes != record.record_bytes || end > record.record_bytes) {
    return Result::kForeign;
  }
  if (!record.received.Add(begin, end)) return Result::kOutOfWindow;
  StorePiece(record, begin, piece);
  if (record.received.bytes() < record.record_bytes) return Result::kPending;
  return FinishPieces(fragment.seq, record, completed);
}

// Stores a piece. The header's bytes are checked when the record is whole. The body's checksum
// grows with the pieces in their order; a piece that came before its turn is read again then.
void VolumeLog::StorePiece(InProgress& record, uint32_t begin, absl::Span<const uint8_t> piece) {
  const uint32_t end = begin + static_cast<uint32_t>(piece.size());
  const auto store = [&](uint32_t from, uint32_t to) {
    ForEachSpan(record.place, record.record_bytes, from, to,
                [&](uint32_t at, absl::Span<uint8_t> here) {
                  StreamCopy(here.data(), &piece[at - begin], here.size());
                });
  };
  store(begin, std::min<uint32_t>(end, kRecordHeaderBytes));
  store(std::max(begin, record.summed), end);
  if (begin <= record.summed && end > record.summed) {
    record.body_crc = Crc32cExtend(record.body_crc, piece.subspan(record.summed - begin));
    record.summed = end;
  }
}

VolumeLog::Result VolumeLog::FinishPieces(Seq seq, InProgress& record, RecordHeader* completed) {
  const absl::StatusOr<RecordHeader> header = HeaderAt(record.place, record.record_bytes);
  Result result = Result::kStored;
  if (!header.ok()) {
    result = Result::kCorrupt;
  } else if (header->volume != volume_ || header->epoch != epoch_ || header->seq != seq ||
             header->total_bytes() != record.record_bytes) {
    result = Result::kForeign;
  } else if (ExtendCrc(record.body_crc, record.place, record.record_bytes, record.summed) !=
             header->body_crc) {
    result = Result::kCorrupt;
  }
  if (result != Result::kStored) {
    // Keep the place: wrong pieces that come repeatedly cost no memory.
    record = Unreceived(record.place, record.record_bytes);
    return result;
  }
  WriteEntry(record.place, {record.record_bytes, EntryIs::kComplete});
  AddToIndex(seq, record.place);
  in_progress_.erase(seq);
  *completed = *header;
  return Result::kStored;
}

// ---- space --------------------------------------------------------------------------------------

bool VolumeLog::AddSegment() {
  if (segments_.size() >= grant_) return false;
  const std::optional<uint32_t> index = arena_.AllocateSegment(slot_);
  if (index.has_value()) segments_.push_back(Segment{*index, 0, 0, 0});
  return index.has_value();
}

// Makes room for a record, entered as reserved. Returns nothing when the grant is used up.
std::optional<VolumeLog::Place> VolumeLog::Reserve(Seq seq, uint32_t record_bytes) {
  const uint64_t segment_bytes = arena_.geometry().segment_bytes;
  if (segments_.empty() || segments_.back().used + kLeastEntry > segment_bytes) {
    if (!AddSegment()) return std::nullopt;
  }
  const size_t at = segments_.size() - 1;
  const Place place{segments_[at].index, segments_[at].used};
  const uint32_t here = BytesHere(place, record_bytes);
  if (here < record_bytes) {
    if (!AddSegment()) return std::nullopt;
    const Place rest{segments_.back().index, 0};
    WriteEntry(rest, {record_bytes - here, EntryIs::kRest});
    Take(segments_.back(), seq, record_bytes - here);
    arena_.SetSegmentNext(place.segment, rest.segment);
  }
  WriteEntry(place, {record_bytes, EntryIs::kReserved});
  Take(segments_[at], seq, here);
  record_bytes_ += record_bytes;
  return place;
}

void VolumeLog::Take(Segment& segment, Seq seq, uint32_t bytes) {
  segment.used += EntrySpan(bytes);
  segment.max_seq = std::max(segment.max_seq, seq);
  segment.record_bytes += bytes;
  arena_.SetSegmentUsed(segment.index, segment.used);
}

void VolumeLog::FetchNext() const {
  constexpr uint32_t kCacheLine = 64;
  const Segment& segment = segments_.back();
  // Fetch the entry's own header and the record's; the body goes past the caches (StreamCopy).
  if (segment.used + 2 * kCacheLine > arena_.geometry().segment_bytes) return;
  const uint8_t* const next = std::as_const(arena_).segment_data(segment.index) + segment.used;
  __builtin_prefetch(next, 1);
  __builtin_prefetch(next + kCacheLine, 1);
}

void VolumeLog::WriteEntry(Place place, Entry entry) {
  uint8_t* const at = arena_.segment_data(place.segment) + place.offset;
  const uint64_t tag = arena_.segment_tag(place.segment);
  const uint32_t word = entry.bytes << 1 | (entry.is == EntryIs::kComplete ? 1 : 0) |
                        (entry.is == EntryIs::kRest ? kEntryIsRest : 0);
  StoreU64(at, tag);
  const uint64_t second = uint64_t{EntryCheck(tag, place.offset, word)} << 32 | word;
  // Store it after the record, and after the tag: a killed process leaves an entry whole or not at
  // all.
  __atomic_store_n(reinterpret_cast<uint64_t*>(at + 8), second, __ATOMIC_RELEASE);
}

std::optional<VolumeLog::Entry> VolumeLog::ReadEntry(Place place, uint32_t limit) const {
  const uint8_t* const at = arena_.segment_data(place.segment) + place.offset;
  const uint64_t tag = arena_.segment_tag(place.segment);
  if (LoadU64(at) != tag) return std::nullopt;
  const uint32_t word = LoadU32(at + 8);
  if (LoadU32(at + 12) != EntryCheck(tag, place.offset, word)) return std::nullopt;
  Entry entry{(word & ~kEntryIsRest) >> 1, EntryIs::kReserved};
  if ((word & 1) != 0) entry.is = EntryIs::kComplete;
  if ((word & kEntryIsRest) != 0) entry.is = EntryIs::kRest;
  if (entry.bytes > kRecordHeaderBytes + kMaxRecordBody) return std::nullopt;
  const uint32_t here = BytesHere(place, entry.bytes);
  if (here < entry.bytes && here < kRecordHeaderBytes) return std::nullopt;
  if (EntrySpan(here) > limit - place.offset) return std::nullopt;
  return entry;
}

void VolumeLog::AddToIndex(Seq seq, Place place) {
  if (seq - floor_ > index_.size()) GrowIndex(seq);
  IndexAt(seq) = Location(place.segment, place.offset);
  SALIUS_CHECK(held_.Add(seq) == AckSet::AddResult::kAdded) << seq;
}

void VolumeLog::GrowIndex(Seq seq) {
  std::vector<uint64_t> larger(std::bit_ceil(seq - floor_), 0);
  const Seq highest = std::max(held_.highest(), floor_);
  for (Seq s = floor_ + 1; s <= highest; ++s) larger[s & (larger.size() - 1)] = IndexAt(s);
  index_ = std::move(larger);
}

uint64_t VolumeLog::free_bytes() const {
  const uint64_t segment_bytes = arena_.geometry().segment_bytes;
  const uint64_t left = grant_ > segments_.size() ? grant_ - segments_.size() : 0;
  const uint64_t used = segments_.empty() ? segment_bytes : segments_.back().used;
  return UsableBytes(left * segment_bytes + segment_bytes - used);
}

// ---- dropping -----------------------------------------------------------------------------------

void VolumeLog::TrimTo(Seq seq) {
  if (seq <= floor_) return;
  floor_ = seq;
  held_.TrimTo(seq);
  in_progress_.erase(in_progress_.begin(), in_progress_.upper_bound(seq));
  const auto dead = [&](const Segment& segment) {
    if (segment.max_seq > seq) return false;
    record_bytes_ -= segment.record_bytes;
    arena_.FreeSegment(segment.index);
    return true;
  };
  segments_.erase(std::remove_if(segments_.begin(), segments_.end(), dead), segments_.end());
}

void VolumeLog::DropAll() {
  for (const Segment& segment : segments_) arena_.FreeSegment(segment.index);
  segments_.clear();
  in_progress_.clear();
  record_bytes_ = 0;
}

// ---- reading ------------------------------------------------------------------------------------

VolumeLog::Place VolumeLog::PlaceOf(Seq seq) const {
  const uint64_t location = IndexAt(seq);
  return {static_cast<uint32_t>(location >> 32) - 1, static_cast<uint32_t>(location)};
}

uint32_t VolumeLog::RecordBytes(Place place) const {
  return LoadU32(std::as_const(arena_).segment_data(place.segment) + place.offset + 8) >> 1;
}

template <typename One>
void VolumeLog::ForEachSpan(Place place, uint32_t record_bytes, uint32_t from, uint32_t to,
                            One one) const {
  const uint32_t here = BytesHere(place, record_bytes);
  if (from < std::min(to, here)) {
    uint8_t* const bytes = arena_.segment_data(place.segment) + place.offset + kLogEntryBytes;
    one(from, absl::MakeSpan(bytes + from, std::min(to, here) - from));
  }
  from = std::max(from, here);
  if (from >= to) return;
  const std::optional<uint32_t> next = arena_.segment_next(place.segment);
  SALIUS_CHECK(next.has_value()) << "the memory of segment " << place.segment << " was changed";
  one(from, absl::MakeSpan(arena_.segment_data(*next) + kLogEntryBytes + (from - here), to - from));
}

void VolumeLog::ReadRecord(Place place, std::string* out) const {
  const uint32_t bytes = RecordBytes(place);
  ForEachSpan(place, bytes, 0, bytes, [&](uint32_t, absl::Span<const uint8_t> here) {
    out->append(reinterpret_cast<const char*>(here.data()), here.size());
  });
}

bool VolumeLog::Equals(Place place, absl::Span<const uint8_t> record) const {
  const uint32_t bytes = RecordBytes(place);
  bool equal = record.size() == bytes;
  if (!equal) return false;
  ForEachSpan(place, bytes, 0, bytes, [&](uint32_t at, absl::Span<const uint8_t> here) {
    equal = equal && record.subspan(at, here.size()) == here;
  });
  return equal;
}

// Extends the checksum by the record's bytes from `from` to its end.
uint32_t VolumeLog::ExtendCrc(uint32_t crc, Place place, uint32_t record_bytes,
                              uint32_t from) const {
  ForEachSpan(place, record_bytes, from, record_bytes,
              [&](uint32_t, absl::Span<const uint8_t> here) { crc = Crc32cExtend(crc, here); });
  return crc;
}

// Returns the record's header, which the end of a segment never cuts.
absl::StatusOr<RecordHeader> VolumeLog::HeaderAt(Place place, uint32_t record_bytes) const {
  return DecodeRecordHeader(
      {std::as_const(arena_).segment_data(place.segment) + place.offset + kLogEntryBytes,
       BytesHere(place, record_bytes)});
}

uint64_t VolumeLog::Read(Seq after, Seq upto, size_t max_bytes, std::string* out,
                         Seq* cursor) const {
  Seq seq = std::max(after, floor_);
  const Seq end = std::min(upto, held_.highest());
  uint64_t looked = 0;
  uint64_t records = 0;
  while (seq < end && out->size() < max_bytes && looked < kReadSeqs) {
    ++seq;
    ++looked;
    if (held_.Contains(seq)) {
      ReadRecord(PlaceOf(seq), out);
      ++records;
    }
  }
  *cursor = seq >= end ? upto : seq;
  return records;
}

VolumeLog::Accounting VolumeLog::accounting() const {
  Accounting a;
  a.segments = segments_.size();
  a.record_bytes = record_bytes_;
  for (const Segment& segment : segments_) {
    a.entry_bytes += segment.used - segment.record_bytes;
    const bool current = &segment == &segments_.back();
    if (!current) a.tail_bytes += arena_.geometry().segment_bytes - segment.used;
  }
  a.index_bytes = index_.capacity() * sizeof(uint64_t);
  a.table_bytes = segments_.capacity() * sizeof(Segment) + segments_.size() * kSegmentEntryBytes;
  return a;
}

}  // namespace salius
