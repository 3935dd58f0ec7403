// The patches of one file: data records that were issued but not yet applied, in seq order (the
// "patch" of the paper on non-blocking writes). A reader sees the backing file with the patches
// laid over it in order.
//
// pure: no thread, lock, socket or clock. The owner (Node) locks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

#include "absl/types/span.h"
#include "client/session/record_stream.h"

namespace salius {

class PatchList {
 public:
  // Adds `record`, a data op that is later than all others.
  void Add(RecordRef record);
  // Drops every patch with a seq <= `seq`.
  void RemoveThrough(Seq seq);
  bool empty() const { return patches_.empty(); }
  // Returns all patches, in order.
  const std::deque<RecordRef>& all() const { return patches_; }
  // Returns the latest patch; there must be one.
  const RecordRef& back() const { return patches_.back(); }
  // Returns the patches, in order, that change some byte of [offset, offset + length).
  std::vector<RecordRef> Touching(uint64_t offset, uint64_t length) const;

 private:
  std::deque<RecordRef> patches_;
};

// Returns the file's size after a data op, when it was `size` before.
uint64_t SizeAfter(uint64_t size, const RecordHeader& header);

// Lays `patches` over `buffer`, which holds the bytes [offset, offset + buffer.size()) of the
// backing file with zeros beyond its end. Afterwards bytes beyond the patched file's end are zero.
void Overlay(absl::Span<const RecordRef> patches, uint64_t offset, absl::Span<char> buffer);

}  // namespace salius
