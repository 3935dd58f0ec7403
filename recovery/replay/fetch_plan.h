// The pages of a file that replay has to read from the disk, because its writes fill them in part
// only. Replay has them fetched together, ahead of the writes: one by one, each write would wait for
// its page.
//
// pure: no thread, lock, socket or clock.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "recovery/agree/record_set.h"

namespace salius::recovery {

struct PageRange {
  uint64_t offset = 0, length = 0;  // whole pages, at least one
  bool operator==(const PageRange&) const = default;
};

// A part of a file's operations, up to `end`, and the pages to be fetched for its writes, by offset.
// No two ranges touch. Some may lie behind the end of the file.
struct FetchBatch {
  size_t end = 0;
  std::vector<PageRange> pages;
};

// Returns the batch that begins with operation `from`. It ends with the operations, or with the one
// that reaches `most_pages` pages.
FetchBatch NextFetch(absl::Span<const RecordView* const> ops, size_t from, size_t most_pages);

}  // namespace salius::recovery
