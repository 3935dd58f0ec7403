#include "client/volume/patches.h"

#include <fcntl.h>
#include <string.h>

#include <algorithm>
#include <utility>

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

void PatchList::Add(RecordRef record) {
  SALIUS_CHECK(IsDataOp(record->header().op));
  SALIUS_CHECK(patches_.empty() || patches_.back()->seq() < record->seq());
  patches_.push_back(std::move(record));
}

void PatchList::RemoveThrough(Seq seq) {
  while (!patches_.empty() && patches_.front()->seq() <= seq) patches_.pop_front();
}

std::vector<RecordRef> PatchList::Touching(uint64_t offset, uint64_t length) const {
  std::vector<RecordRef> found;
  if (length == 0) return found;
  for (const RecordRef& patch : patches_) {
    const Range range = RangeOf(patch->header());
    if (range.begin < offset + length && offset < range.end) found.push_back(patch);
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

void Overlay(absl::Span<const RecordRef> patches, uint64_t offset, absl::Span<char> buffer) {
  const uint64_t buffer_end = offset + buffer.size();
  for (const RecordRef& patch : patches) {
    const RecordHeader& header = patch->header();
    const Range range = RangeOf(header);
    const uint64_t begin = std::max(range.begin, offset);
    const uint64_t end = std::min(range.end, buffer_end);
    if (begin >= end) continue;
    char* const to = buffer.data() + (begin - offset);
    if (header.op == Op::kWrite) {
      memcpy(to, patch->body().data() + (begin - range.begin), end - begin);
    } else {
      memset(to, 0, end - begin);
    }
  }
}

}  // namespace salius
