#include "client/volume/extents.h"

#include <fcntl.h>
#include <string.h>

#include <algorithm>

#include "common/check.h"
#include "storage/apply.h"

namespace salius {
namespace {

// The least room of a joined extent, in bytes.
constexpr uint64_t kLeastJoined = 256;
// The most records of one extent: a change of it costs their number.
constexpr size_t kMostSeqs = 64;

// The part of a file that a record sets, to its body or to zeros.
struct Range {
  uint64_t begin = 0, end = 0;
};

Range RangeOf(const RecordHeader& header) {
  switch (header.op) {
    case Op::kWrite:
      return {header.arg0, header.arg0 + header.body_bytes};
    case Op::kTruncate:  // bytes beyond the new end are gone for good
      return {header.arg0, UINT64_MAX};
    case Op::kFallocate:
      if ((header.arg2 & (FALLOC_FL_PUNCH_HOLE | FALLOC_FL_ZERO_RANGE)) == 0) return {};
      return {header.arg0, header.arg0 + header.arg1};
    default:
      return {};
  }
}

}  // namespace

void Extents::Split(uint64_t at) {
  auto next = map_.lower_bound(at);
  if (next == map_.begin()) return;
  const auto across = std::prev(next);
  if (across->second.end <= at) return;
  Value rest = across->second;
  if (rest.data != nullptr) rest.data += at - across->first;
  across->second.end = at;
  map_.emplace_hint(next, at, std::move(rest));
}

Extents::Map::iterator Extents::Erase(Map::iterator extent) {
  if (extent->second.data != nullptr) bytes_ -= extent->second.end - extent->first;
  return map_.erase(extent);
}

void Extents::Add(RecordRef record) {
  SALIUS_CHECK(IsDataOp(record->header().op));
  SALIUS_CHECK(records_.empty() || records_.back().first < record->seq());
  records_.emplace_back(record->seq(), record);
  ++count_;
  const Range range = RangeOf(record->header());
  if (range.begin == range.end) return;
  if (!map_.empty()) {
    Split(range.begin);
    Split(range.end);
    for (auto old = map_.lower_bound(range.begin); old != map_.end() && old->first < range.end;) {
      old = Erase(old);
    }
  }
  Value value;
  value.end = range.end;
  value.seq = record->seq();
  if (record->header().op == Op::kWrite) {
    bytes_ += range.end - range.begin;
    if (Join(*record)) return;
    value.data = record->body().data();
    value.owner = std::move(record);
  }
  map_.emplace(range.begin, std::move(value));
}

void Extents::Joined::Append(std::string_view data) {
  memcpy(bytes.get() + (end - begin), data.data(), data.size());
  end += data.size();
}

void Extents::AddSeqs(const Value& from, Value& to) {
  const auto add = [&](Seq seq) {
    if (seq == to.seq || std::find(to.more.begin(), to.more.end(), seq) != to.more.end()) return;
    to.more.push_back(seq);
  };
  add(from.seq);
  for (const Seq seq : from.more) add(seq);
}

bool Extents::TakeSeq(Value& value, Seq seq) {
  if (value.seq == seq) {
    if (value.more.empty()) return true;
    value.seq = value.more.back();
    value.more.pop_back();
  } else {
    std::erase(value.more, seq);
  }
  return false;
}

bool Extents::Join(const Record& write) {
  const uint64_t begin = write.header().arg0, end = begin + write.body().size();
  const uint64_t page = begin / kPageBytes * kPageBytes;
  if (end > page + kPageBytes || end - begin == kPageBytes || map_.empty()) return false;
  const auto right = map_.lower_bound(begin);
  const auto left = right == map_.begin() ? map_.end() : std::prev(right);
  const auto joins = [&](Map::iterator extent) {
    return extent != map_.end() && extent->second.data != nullptr && extent->first >= page &&
           extent->second.end <= page + kPageBytes && extent->second.more.size() + 2 <= kMostSeqs;
  };
  const bool after = joins(left) && left->second.end == begin;
  const size_t records = after ? left->second.more.size() + 2 : 1;
  const bool before = joins(right) && right->first == end &&
                      records + right->second.more.size() + 1 <= kMostSeqs;
  if (!after && !before) return false;
  const uint64_t from = after ? left->first : begin;
  const uint64_t to = before ? right->second.end : end;
  Joined* const old = after ? left->second.joined : nullptr;
  Value value;
  if (old != nullptr && old->end == begin && old->limit >= to) {
    value = std::move(left->second);
    old->Append(write.body());
  } else {
    // Appends are likely: they find room.
    auto joined = std::make_shared<Joined>();
    joined->begin = joined->end = from;
    joined->limit = std::min(from + std::max<uint64_t>(2 * (to - from), kLeastJoined),
                             page + kPageBytes);
    joined->bytes = std::make_unique<char[]>(joined->limit - from);
    if (after) joined->Append({left->second.data, static_cast<size_t>(begin - from)});
    joined->Append(write.body());
    if (after) value = std::move(left->second);
    value.joined = joined.get();
    value.data = joined->bytes.get();
    value.owner = std::move(joined);
  }
  if (value.seq == 0) {
    value.seq = write.seq();
  } else {
    value.more.push_back(write.seq());
  }
  if (before) {
    value.joined->Append({right->second.data, static_cast<size_t>(to - end)});
    AddSeqs(right->second, value);
  }
  value.end = to;
  if (after) {
    left->second = std::move(value);
    if (before) map_.erase(right);
  } else {
    map_.emplace_hint(map_.erase(right), from, std::move(value));
  }
  return true;
}

void Extents::Remove(Seq seq) {
  const auto found =
      std::lower_bound(records_.begin(), records_.end(), seq,
                       [](const auto& entry, Seq wanted) { return entry.first < wanted; });
  if (found == records_.end() || found->first != seq || found->second == nullptr) return;
  const RecordRef record = std::move(found->second);
  found->second = nullptr;
  --count_;
  while (!records_.empty() && records_.front().second == nullptr) records_.pop_front();
  const Range range = RangeOf(record->header());
  if (range.begin == range.end) return;
  // An extent of several records is inside of a page that each of them touches.
  const uint64_t begin = range.begin / kPageBytes * kPageBytes;
  const uint64_t end =
      range.end > UINT64_MAX - kPageBytes ? UINT64_MAX : range.end + kPageBytes - 1;
  for (auto extent = map_.lower_bound(begin); extent != map_.end() && extent->first < end;) {
    extent = TakeSeq(extent->second, seq) ? Erase(extent) : std::next(extent);
  }
}

std::vector<Extent> Extents::In(uint64_t offset, uint64_t length) const {
  std::vector<Extent> found;
  if (length == 0 || map_.empty()) return found;
  const uint64_t end = offset + length;
  auto extent = map_.upper_bound(offset);
  if (extent != map_.begin()) --extent;
  for (; extent != map_.end() && extent->first < end; ++extent) {
    const uint64_t from = std::max(extent->first, offset);
    const uint64_t to = std::min(extent->second.end, end);
    if (from >= to) continue;
    const char* const data = extent->second.data;
    found.push_back({from, to, data == nullptr ? nullptr : data + (from - extent->first),
                     extent->second.owner});
  }
  return found;
}

uint64_t SizeAfter(uint64_t size, const RecordHeader& header) {
  switch (header.op) {
    case Op::kWrite:
      // An empty write extends nothing.
      return header.body_bytes == 0 ? size : std::max(size, header.arg0 + header.body_bytes);
    case Op::kTruncate:
      return header.arg0;
    case Op::kFallocate:
      if ((header.arg2 & FALLOC_FL_KEEP_SIZE) != 0) return size;
      return std::max(size, header.arg0 + header.arg1);
    default:
      return size;
  }
}

bool AreWhole(absl::Span<const Extent> extents, uint64_t offset, uint64_t length) {
  uint64_t filled = offset;
  for (const Extent& extent : extents) {
    if (extent.begin != filled) return false;
    filled = extent.end;
  }
  return filled == offset + length;
}

void Overlay(absl::Span<const Extent> extents, uint64_t offset, absl::Span<char> buffer) {
  const uint64_t buffer_end = offset + buffer.size();
  for (const Extent& extent : extents) {
    const uint64_t begin = std::max(extent.begin, offset);
    const uint64_t end = std::min(extent.end, buffer_end);
    if (begin >= end) continue;
    char* const to = buffer.data() + (begin - offset);
    if (extent.is_data()) {
      memcpy(to, extent.data + (begin - extent.begin), end - begin);
    } else {
      memset(to, 0, end - begin);
    }
  }
}

}  // namespace salius
