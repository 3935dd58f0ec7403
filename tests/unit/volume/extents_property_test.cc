// The extents of a file against a plain buffer (RapidCheck: a failure prints the smallest case that
// it finds). Random changes are added, and applied to a backing file in random order: but never
// before an earlier one that they overlap. After each step the backing file with the extents over
// it must be the buffer.
#include "client/volume/extents.h"

#include <fcntl.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "log/record.h"
// After gtest, which it needs.
#include <rapidcheck/gtest.h>

namespace salius {
namespace {

constexpr uint64_t kFileBytes = 64;

size_t Below(size_t bound) {
  return *rc::gen::resize(rc::kNominalSize, rc::gen::inRange<size_t>(0, bound));
}

RecordRef Make(Seq seq, Op op, uint64_t arg0, uint64_t arg1, uint64_t arg2, std::string body) {
  RecordDraft draft;
  draft.op = op;
  draft.arg0 = arg0;
  draft.arg1 = arg1;
  draft.arg2 = arg2;
  draft.body = std::move(body);
  auto record = std::make_shared<Record>(std::move(draft));
  record->stamp().seq = seq;
  return record;
}

RecordRef Draw(Seq seq) {
  const uint64_t at = Below(kFileBytes);
  const uint64_t length = 1 + Below(24);
  switch (Below(8)) {
    case 0:
      return Make(seq, Op::kTruncate, at, 0, 0, "");
    case 1:
      return Make(seq, Op::kFallocate, at, length,
                  FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, "");
    case 2:
      return Make(seq, Op::kFallocate, at, length, 0, "");
    default:
      return Make(seq, Op::kWrite, at, 0, 0,
                  std::string(length, static_cast<char>('a' + seq % 26)));
  }
}

// The effect of a change on a plain buffer.
void Perform(const Record& record, std::string& file) {
  const RecordHeader& header = record.header();
  const size_t old = file.size();
  file.resize(SizeAfter(old, header));
  if (header.op == Op::kWrite) {
    file.replace(header.arg0, record.body().size(), record.body());
  } else if (header.op == Op::kFallocate && header.arg2 != 0) {
    for (size_t i = header.arg0; i < std::min(file.size(), header.arg0 + header.arg1); ++i) {
      file[i] = 0;
    }
  }
}

std::pair<uint64_t, uint64_t> Touched(const Record& record) {
  const RecordHeader& header = record.header();
  if (header.op == Op::kWrite) return {header.arg0, header.arg0 + record.body().size()};
  return {0, UINT64_MAX};  // it changes the size, or is applied in its turn
}

bool Overlap(const Record& a, const Record& b) {
  const auto [a_begin, a_end] = Touched(a);
  const auto [b_begin, b_end] = Touched(b);
  return a_begin < b_end && b_begin < a_end;
}

// Returns a part of the file as a reader sees it.
std::string Show(const std::string& disk, const Extents& extents, uint64_t size, uint64_t from,
                 uint64_t length) {
  if (from >= size) return "";
  length = std::min(length, size - from);
  std::string shown(length, '\0');
  const std::vector<Extent> found = extents.In(from, length);
  if (!AreWhole(found, from, length) && from < disk.size()) {
    const size_t have = std::min<size_t>(length, disk.size() - from);
    shown.replace(0, have, disk, from, have);
  }
  Overlay(found, from, absl::MakeSpan(shown.data(), shown.size()));
  return shown;
}

RC_GTEST_PROP(ExtentsPropertyTest, BackingFileWithExtentsIsThePlainFile, ()) {
  std::string plain(Below(kFileBytes), '.');
  std::string disk = plain;
  Extents extents;
  std::vector<RecordRef> unapplied;
  Seq seq = 0;
  for (size_t steps = Below(60); steps > 0; --steps) {
    if (unapplied.empty() || Below(2) == 0) {
      const RecordRef record = Draw(++seq);
      extents.Add(record);
      unapplied.push_back(record);
      Perform(*record, plain);
    } else {
      const size_t which = Below(unapplied.size());
      const RecordRef record = unapplied[which];
      const bool first = std::none_of(unapplied.begin(), unapplied.begin() + which,
                                      [&](const RecordRef& r) { return Overlap(*r, *record); });
      if (!first) continue;
      Perform(*record, disk);
      extents.Remove(record->seq());
      unapplied.erase(unapplied.begin() + which);
    }
    const uint64_t from = Below(kFileBytes), length = Below(kFileBytes);
    RC_ASSERT(Show(disk, extents, plain.size(), from, length) ==
              (from >= plain.size() ? "" : plain.substr(from, length)));
    RC_ASSERT(Show(disk, extents, plain.size(), 0, plain.size()) == plain);
    RC_ASSERT(extents.empty() == unapplied.empty());
    size_t records = 0;
    Seq last = 0;
    extents.ForEachRecord([&](const RecordRef& record) {
      RC_ASSERT(record->seq() > last);
      last = record->seq();
      ++records;
    });
    RC_ASSERT(records == unapplied.size());
    uint64_t data = 0, end = 0;
    for (const Extent& extent : extents.In(0, UINT64_MAX)) {
      RC_ASSERT(extent.begin >= end && extent.begin < extent.end);
      end = extent.end;
      if (extent.is_data()) data += extent.end - extent.begin;
    }
    RC_ASSERT(extents.bytes() == data);
  }
  if (unapplied.empty()) {
    RC_ASSERT(disk == plain);
    RC_ASSERT(extents.In(0, UINT64_MAX).empty());
  }
}

constexpr uint64_t kPage = Extents::kPageBytes;

RecordRef WriteAt(Seq seq, uint64_t at, std::string body) {
  return Make(seq, Op::kWrite, at, 0, 0, std::move(body));
}

TEST(ExtentsTest, WritesInsideAPageThatTouchAreOneExtent) {
  Extents extents;
  std::string all;
  for (Seq seq = 1; seq <= 50; ++seq) {
    all += static_cast<char>('a' + seq % 26);
    extents.Add(WriteAt(seq, kPage + seq - 1, std::string(1, all.back())));
    const std::vector<Extent> found = extents.In(0, 4 * kPage);
    ASSERT_EQ(found.size(), 1u);
    ASSERT_EQ(found[0].bytes(), all);
  }
  extents.Add(WriteAt(51, kPage + 60, "later"));
  EXPECT_EQ(extents.In(0, 4 * kPage).size(), 2u);
  extents.Add(WriteAt(52, kPage + 48, "overlap of 12"));  // from the last two bytes to the later one
  ASSERT_EQ(extents.In(0, 4 * kPage).size(), 1u);
  EXPECT_EQ(extents.In(0, 4 * kPage)[0].bytes(), all.substr(0, 48) + "overlap of 12ater");
  EXPECT_EQ(extents.bytes(), 65u);
}

TEST(ExtentsTest, ExtentOfSeveralRecordsStaysUntilTheLastIsApplied) {
  Extents extents;
  extents.Add(WriteAt(1, 0, "abc"));
  extents.Add(WriteAt(2, 3, "def"));
  extents.Add(WriteAt(3, 6, "ghi"));
  extents.Add(WriteAt(4, 4, "XY"));  // cuts the second one
  for (const Seq seq : {2, 4, 3}) {
    extents.Remove(seq);
    std::string shown(9, '.');
    Overlay(extents.In(0, 9), 0, absl::MakeSpan(shown.data(), shown.size()));
    EXPECT_EQ(shown.substr(0, 3), "abc") << seq;
    EXPECT_FALSE(extents.empty());
  }
  extents.Remove(1);
  EXPECT_TRUE(extents.empty());
  EXPECT_EQ(extents.bytes(), 0u);
  EXPECT_TRUE(extents.In(0, kPage).empty());
}

TEST(ExtentsTest, PagesAreNotJoined) {
  Extents extents;
  extents.Add(WriteAt(1, kPage - 2, "ab"));
  extents.Add(WriteAt(2, kPage, "cd"));
  EXPECT_EQ(extents.In(0, 2 * kPage).size(), 2u);
  extents.Add(WriteAt(3, 2 * kPage - 1, "ef"));
  extents.Add(WriteAt(4, 2 * kPage + 1, "gh"));
  EXPECT_EQ(extents.In(0, 3 * kPage).size(), 4u);
}

TEST(ExtentsTest, ReaderKeepsItsBytesWhileTheExtentGrowsAndIsOverwritten) {
  Extents extents;
  extents.Add(WriteAt(1, 0, "ab"));
  extents.Add(WriteAt(2, 2, "cd"));
  const std::vector<Extent> before = extents.In(0, 100);
  extents.Add(WriteAt(3, 4, "ef"));  // in the room behind them
  extents.Add(WriteAt(4, 3, "XYZ"));
  for (Seq seq = 1; seq <= 4; ++seq) extents.Remove(seq);
  ASSERT_EQ(before.size(), 1u);
  EXPECT_EQ(before[0].bytes(), "abcd");
}

// Otherwise each of many writes of a page would cost the number of those before it.
TEST(ExtentsTest, ExtentHasAtMost64Records) {
  Extents extents;
  for (Seq seq = 1; seq <= 130; ++seq) extents.Add(WriteAt(seq, seq - 1, "x"));
  const std::vector<Extent> found = extents.In(0, kPage);
  ASSERT_EQ(found.size(), 3u);
  EXPECT_EQ(found[0].end, 64u);
  EXPECT_EQ(found[1].end, 128u);
  EXPECT_EQ(found[2].end, 130u);
}

TEST(ExtentsTest, ManyWritesOfAPageNeedNoMoreThanThePage) {
  Extents extents;
  constexpr Seq kWrites = 5000;
  for (Seq seq = 1; seq <= kWrites; ++seq) {
    extents.Add(WriteAt(seq, seq * 7919 % (kPage - 8), std::string(8, 'x')));
  }
  EXPECT_LE(extents.bytes(), kPage);
  for (Seq seq = 1; seq <= kWrites; ++seq) extents.Remove(seq);
  EXPECT_TRUE(extents.empty());
  EXPECT_EQ(extents.bytes(), 0u);
}

}  // namespace
}  // namespace salius
