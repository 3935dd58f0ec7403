// The pages that replay has fetched, by examples and against a look at each byte (RapidCheck: a
// failure prints the smallest case that it finds).
#include "recovery/replay/fetch_plan.h"

#include <map>
#include <set>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "storage/backing.h"
#include "tests/unit/recovery/test_util.h"
// After gtest, which it needs.
#include <rapidcheck/gtest.h>

namespace salius::recovery {
namespace {

constexpr uint64_t kPage = Backing::kPageBytes;
constexpr FileId kFile = 50;
constexpr size_t kAll = SIZE_MAX;

using Ranges = std::vector<PageRange>;

TEST(FetchPlanTest, PartialPagesAreSortedAndJoined) {
  Stamper s(1);
  s.Write(kFile, 9 * kPage + 1, "a");
  s.Write(kFile, 2 * kPage, "b");
  s.Write(kFile, 3 * kPage - 1, "cd");
  s.Write(kFile, 2 * kPage + 7, "e");
  const RecordSet set = SetOf(s.all());
  const FetchBatch batch = NextFetch(PointersTo(set), 0, kAll);
  EXPECT_EQ(batch.end, 4u);
  EXPECT_EQ(batch.pages, (Ranges{{2 * kPage, 2 * kPage}, {9 * kPage, kPage}}));
}

TEST(FetchPlanTest, PagesThatAreFilledWholeNeedNoFetch) {
  Stamper s(1);
  s.Write(kFile, kPage, std::string(kPage / 2, 'a'));
  s.Write(kFile, kPage + kPage / 2, std::string(kPage / 2 + 1, 'b'));
  s.Write(kFile, 7 * kPage, std::string(2 * kPage, 'c'));
  s.Write(kFile, 7 * kPage, "");
  s.Truncate(kFile, 10 * kPage + 5);
  const RecordSet set = SetOf(s.all());
  EXPECT_EQ(NextFetch(PointersTo(set), 0, kAll).pages, (Ranges{{2 * kPage, kPage}}));
}

TEST(FetchPlanTest, BatchesEndAtTheMostPages) {
  Stamper s(1);
  for (uint64_t i = 0; i < 5; ++i) s.Write(kFile, 2 * i * kPage + 1, "x");
  const RecordSet set = SetOf(s.all());
  const std::vector<const RecordView*> ops = PointersTo(set);
  std::vector<size_t> ends;
  for (size_t from = 0; from < ops.size(); from = ends.back()) {
    ends.push_back(NextFetch(ops, from, 2).end);
  }
  EXPECT_EQ(ends, (std::vector<size_t>{2, 4, 5}));
}

size_t Below(size_t bound) {
  return *rc::gen::resize(rc::kNominalSize, rc::gen::inRange<size_t>(0, bound));
}

RC_GTEST_PROP(FetchPlanPropertyTest, BatchesHaveThePagesThatRunsFillInPart, ()) {
  Stamper s(1);
  uint64_t next = 0;
  for (size_t count = Below(30); count > 0; --count) {
    if (Below(6) == 0) {
      s.Truncate(kFile, Below(6 * kPage));
      continue;
    }
    const uint64_t at = Below(2) == 0 ? next : Below(12) * (kPage / 2) + Below(2);
    const size_t bytes = Below(3) == 0 ? Below(5) * (kPage / 2) : Below(100);
    s.Write(kFile, at, std::string(bytes, 'x'));
    next = at + bytes;
  }
  const RecordSet set = SetOf(s.all());
  const std::vector<const RecordView*> ops = PointersTo(set);
  // Byte by byte, of each run of writes that follow one another.
  std::set<uint64_t> wanted;
  for (size_t i = 0; i < ops.size();) {
    if (ops[i]->header.op != Op::kWrite) {
      ++i;
      continue;
    }
    std::set<uint64_t> bytes;
    uint64_t end = ops[i]->header.arg0;
    for (; i < ops.size() && ops[i]->header.op == Op::kWrite && ops[i]->header.arg0 == end; ++i) {
      for (uint32_t b = 0; b < ops[i]->header.body_bytes; ++b) bytes.insert(end++);
    }
    std::map<uint64_t, uint64_t> filled;
    for (const uint64_t byte : bytes) ++filled[byte / kPage * kPage];
    for (const auto& [page, count] : filled) {
      if (count < kPage) wanted.insert(page);
    }
  }
  std::set<uint64_t> found;
  const size_t most = 1 + Below(8);
  for (size_t from = 0; from < ops.size();) {
    const FetchBatch batch = NextFetch(ops, from, most);
    RC_ASSERT(batch.end > from);
    from = batch.end;
    uint64_t pages = 0, last = 0;
    for (const PageRange& range : batch.pages) {
      RC_ASSERT(pages == 0 || range.offset > last);
      last = range.offset + range.length;
      for (uint64_t page = range.offset; page < last; page += kPage) found.insert(page);
      pages += range.length / kPage;
    }
    RC_ASSERT(pages <= most + 1);
  }
  RC_ASSERT(found == wanted);
}

}  // namespace
}  // namespace salius::recovery
