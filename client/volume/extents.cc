#include "client/volume/extents.h"

#include <fcntl.h>
#include <string.h>

#include <algorithm>

#include "common/check.h"
#include "storage/apply.h"

namespace salius {
namespace {

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
  across->second.end = at;
  map_.emplace_hint(next, at, std::move(rest));
}

Extents::Map::iterator Extents::Erase(Map::iterator extent) {
  if (extent->second.record->header().op == Op::kWrite) {
    bytes_ -= extent->second.end - extent->first;
  }
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
  if (record->header().op == Op::kWrite) bytes_ += range.end - range.begin;
  map_.emplace(range.begin, Value{range.end, std::move(record)});
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
  for (auto extent = map_.lower_bound(range.begin);
       extent != map_.end() && extent->first < range.end;) {
    extent = extent->second.record == record ? Erase(extent) : std::next(extent);
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
    if (from < to) found.push_back({from, to, extent->second.record});
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
      const uint64_t at = begin - extent.record->header().arg0;
      memcpy(to, extent.record->body().data() + at, end - begin);
    } else {
      memset(to, 0, end - begin);
    }
  }
}

}  // namespace salius
