#include "recovery/replay/fetch_plan.h"

#include <algorithm>

#include "storage/backing.h"

namespace salius::recovery {
namespace {

constexpr uint64_t kPage = Backing::kPageBytes;

std::vector<PageRange> Joined(std::vector<uint64_t> pages) {
  std::sort(pages.begin(), pages.end());
  std::vector<PageRange> ranges;
  for (const uint64_t page : pages) {
    if (!ranges.empty() && page < ranges.back().offset + ranges.back().length) continue;
    if (!ranges.empty() && page == ranges.back().offset + ranges.back().length) {
      ranges.back().length += kPage;
    } else {
      ranges.push_back({page, kPage});
    }
  }
  return ranges;
}

}  // namespace

FetchBatch NextFetch(absl::Span<const RecordView* const> ops, size_t from, size_t most_pages) {
  FetchBatch batch;
  batch.end = from;
  std::vector<uint64_t> pages;  // that begin or end a run of writes in their middle
  while (batch.end < ops.size() && pages.size() < most_pages) {
    const RecordHeader& first = ops[batch.end++]->header;
    if (first.op != Op::kWrite) continue;
    // Replay makes one write of records that follow one another (WriteRun).
    uint64_t end = first.arg0 + first.body_bytes;
    while (batch.end < ops.size() && ops[batch.end]->header.op == Op::kWrite &&
           ops[batch.end]->header.arg0 == end) {
      end += ops[batch.end++]->header.body_bytes;
    }
    if (end == first.arg0) continue;
    const uint64_t head = first.arg0 / kPage * kPage, tail = end / kPage * kPage;
    if (first.arg0 != head) pages.push_back(head);
    if (end != tail && (tail != head || first.arg0 == head)) pages.push_back(tail);
  }
  batch.pages = Joined(std::move(pages));
  return batch;
}

}  // namespace salius::recovery
