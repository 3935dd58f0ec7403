// Offsets of a directory's entries: small, stable while it is open, and bounded.
#include "client/fuse/dir_offsets.h"

#include <gtest/gtest.h>

#include <atomic>
#include <set>
#include <vector>

namespace salius {
namespace {

class DirOffsetsTest : public testing::Test {
 protected:
  // Lists entries with these cookies from `previous` on; returns their offsets.
  std::vector<uint64_t> List(uint64_t previous, const std::vector<uint64_t>& cookies) {
    std::vector<uint64_t> numbers;
    for (const uint64_t cookie : cookies) {
      previous = offsets_.Number(previous, cookie).value();
      numbers.push_back(previous);
    }
    return numbers;
  }

  std::atomic<uint64_t> kept_{0};
  DirOffsets offsets_{kept_, 1000};
};

constexpr uint64_t kLarge = uint64_t{1} << 62;
constexpr uint64_t kPending = uint64_t{1} << 63;

TEST_F(DirOffsetsTest, EntriesAreNumberedFromOne) {
  EXPECT_EQ(List(0, {kLarge, kLarge + 7, 5}), (std::vector<uint64_t>{1, 2, 3}));
  EXPECT_EQ(offsets_.Find(0).cookie, 0u);
  EXPECT_EQ(offsets_.Find(2).cookie, kLarge + 7);
  EXPECT_EQ(offsets_.Find(2).skip, 0u);
  EXPECT_EQ(List(3, {9}), (std::vector<uint64_t>{4}));
}

TEST_F(DirOffsetsTest, SameListingAgainHasTheSameOffsets) {
  List(0, {10, 20, 30});
  offsets_.Rewind();
  EXPECT_EQ(List(0, {10, 20, 30, 40}), (std::vector<uint64_t>{1, 2, 3, 4}));
}

TEST_F(DirOffsetsTest, OffsetsStayGoodWhenEntriesComeAndGo) {
  List(0, {10, 20, 30, 40});
  // 20 has gone, 25 has come.
  EXPECT_EQ(List(1, {25, 30, 40, 50}), (std::vector<uint64_t>{5, 3, 4, 6}));
  EXPECT_EQ(offsets_.Find(5).cookie, 25u);
  EXPECT_EQ(offsets_.Find(2).cookie, 20u);
  EXPECT_EQ(offsets_.Find(6).cookie, 50u);
}

// A listing with pending names ends with their positions, 1 to n, whatever the names are.
TEST_F(DirOffsetsTest, PositionsOfPendingNamesAreFoundInEachListing) {
  const std::vector<std::vector<uint64_t>> listings = {
      {10, kPending + 1, kPending + 2},
      {10, 20, kPending + 1, kPending + 2, kPending + 3},
      {20, 30, 40},
      {30, kPending + 1}};
  for (const std::vector<uint64_t>& cookies : listings) {
    offsets_.Rewind();
    std::set<uint64_t> different;
    uint64_t previous = 0;
    for (const uint64_t cookie : cookies) {
      previous = offsets_.Number(previous, cookie).value();
      EXPECT_EQ(offsets_.Find(previous).cookie, cookie);
      EXPECT_TRUE(different.insert(previous).second);
    }
  }
}

TEST_F(DirOffsetsTest, OffsetOfAnotherOpenIsFoundByCounting) {
  EXPECT_EQ(offsets_.Find(5).cookie, 0u);
  EXPECT_EQ(offsets_.Find(5).skip, 5u);
  EXPECT_EQ(List(5, {60, 70}), (std::vector<uint64_t>{6, 7}));
  EXPECT_EQ(offsets_.Find(6).cookie, 60u);
}

TEST_F(DirOffsetsTest, KeepsNoMoreThanAllMayAndCountsTheRest) {
  std::vector<uint64_t> cookies;
  for (uint64_t i = 1; i <= 5000; ++i) cookies.push_back(kLarge + i);
  EXPECT_EQ(List(0, cookies).back(), 5000u);
  EXPECT_LE(kept_.load(), 1000u);
  EXPECT_EQ(offsets_.Find(5000).cookie, kLarge + 5000);
  EXPECT_EQ(offsets_.Find(17).cookie, 0u);
  EXPECT_EQ(offsets_.Find(17).skip, 17u);
}

TEST_F(DirOffsetsTest, NothingStaysCountedAtItsEnd) {
  {
    DirOffsets other(kept_, 1000);
    other.Number(0, 1);
    EXPECT_EQ(kept_.load(), 1u);
  }
  EXPECT_EQ(kept_.load(), 0u);
}

TEST_F(DirOffsetsTest, NoOffsetBeyond31Bits) {
  EXPECT_EQ(offsets_.Number(DirOffsets::kMaxOffset - 1, 1), DirOffsets::kMaxOffset);
  EXPECT_FALSE(offsets_.Number(DirOffsets::kMaxOffset, 2).has_value());
}

}  // namespace
}  // namespace salius
