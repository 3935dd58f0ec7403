// Acknowledgements that contradict an earlier one of the same memory, and those that do not.
#include "client/session/heard_set.h"

#include <gtest/gtest.h>

namespace salius {
namespace {

AckPayload Ack(Seq contiguous, std::vector<SeqRange> ranges = {}) {
  AckPayload ack;
  ack.incarnation = 7;
  ack.base = 1;
  ack.contiguous = contiguous;
  ack.ranges = std::move(ranges);
  return ack;
}

TEST(HeardSetTest, LessThanWasHeardBeforeTheSendIsALoss) {
  HeardSet heard;
  EXPECT_EQ(heard.Take(100, 90, Ack(228)), "");
  EXPECT_NE(heard.Take(120, 110, Ack(103)), "");
}

TEST(HeardSetTest, TheSameAndMoreAreNoLoss) {
  HeardSet heard;
  EXPECT_EQ(heard.Take(100, 90, Ack(228)), "");
  EXPECT_EQ(heard.Take(120, 110, Ack(228)), "");
  EXPECT_EQ(heard.Take(140, 130, Ack(300)), "");
}

TEST(HeardSetTest, AnOvertakenAckIsNoLoss) {
  HeardSet heard;
  EXPECT_EQ(heard.Take(100, 90, Ack(228)), "");
  EXPECT_EQ(heard.Take(120, 100, Ack(103)), "") << "sent when 228 was heard, not later";
  EXPECT_EQ(heard.Take(130, 50, Ack(1)), "");
  EXPECT_EQ(heard.Take(140, -1, Ack(1)), "") << "no send time";
  EXPECT_NE(heard.Take(150, 101, Ack(103)), "") << "the ignored ack changed nothing";
}

TEST(HeardSetTest, ASteadyStreamOfRisingAcksHidesNoLoss) {
  HeardSet heard;
  int64_t now = 1000;
  for (Seq seq = 1; seq <= 50; ++seq, now += 10) {
    ASSERT_EQ(heard.Take(now, now - 100, Ack(seq)), "");
  }
  bool found = false;
  for (Seq seq = 51; seq <= 80 && !found; ++seq, now += 10) {
    found = !heard.Take(now, now - 100, Ack(20, {{51, seq}})).empty();
  }
  EXPECT_TRUE(found);
}

TEST(HeardSetTest, MissingRangeInALaterAckIsALoss) {
  HeardSet heard;
  EXPECT_EQ(heard.Take(100, 90, Ack(5, {{7, 9}, {20, 30}})), "");
  EXPECT_EQ(heard.Take(120, 110, Ack(9, {{20, 31}})), "");
  EXPECT_NE(heard.Take(140, 130, Ack(9, {{21, 31}})), "");
}

TEST(HeardSetTest, ARangeWithAHoleInItIsALoss) {
  HeardSet heard;
  EXPECT_EQ(heard.Take(100, 90, Ack(5, {{7, 30}})), "");
  EXPECT_NE(heard.Take(120, 110, Ack(8, {{10, 30}})), "");
}

TEST(HeardSetTest, ARangeThatBecameContiguousIsNoLoss) {
  HeardSet heard;
  EXPECT_EQ(heard.Take(100, 90, Ack(5, {{7, 9}})), "");
  EXPECT_EQ(heard.Take(120, 110, Ack(9)), "");
  EXPECT_EQ(heard.Take(140, 130, Ack(9)), "");
}

TEST(HeardSetTest, RangesOfOvertakingAcksAreCompared) {
  HeardSet heard;
  EXPECT_EQ(heard.Take(100, 90, Ack(5)), "");
  EXPECT_EQ(heard.Take(101, 91, Ack(5, {{7, 9}})), "");
  EXPECT_EQ(heard.Take(102, 92, Ack(5, {{7, 9}, {11, 12}})), "");
  EXPECT_NE(heard.Take(120, 110, Ack(5, {{7, 9}})), "");
}

TEST(HeardSetTest, ASteadyStreamOfRangesHidesNoLossOfAnOlderOne) {
  HeardSet heard;
  int64_t now = 1000;
  for (Seq seq = 10; seq <= 40; ++seq, now += 10) {
    ASSERT_EQ(heard.Take(now, now - 100, Ack(5, {{7, seq}})), "");
  }
  bool found = false;
  for (Seq seq = 60; seq <= 100 && !found; ++seq, now += 10) {
    found = !heard.Take(now, now - 100, Ack(5, {{60, seq}})).empty();
  }
  EXPECT_TRUE(found);
}

TEST(HeardSetTest, AFullAckSaysNothingAboveItsLastRange) {
  HeardSet heard;
  EXPECT_EQ(heard.Take(100, 90, Ack(5, {{200, 210}})), "");
  std::vector<SeqRange> many;
  for (Seq i = 0; i < kMaxAckRanges; ++i) many.push_back({10 + 3 * i, 11 + 3 * i});
  EXPECT_EQ(heard.Take(120, 110, Ack(5, many)), "");
  EXPECT_EQ(heard.Take(140, 130, Ack(120, {{200, 210}})), "");
  EXPECT_EQ(heard.Take(160, 150, Ack(120, {{200, 210}})), "");
}

TEST(HeardSetTest, RangesThatAFullAckLeftOutAreStillCompared) {
  HeardSet heard;
  EXPECT_EQ(heard.Take(100, 90, Ack(5, {{200, 210}})), "");
  std::vector<SeqRange> many;
  for (Seq i = 0; i < kMaxAckRanges; ++i) many.push_back({10 + 3 * i, 11 + 3 * i});
  EXPECT_EQ(heard.Take(120, 110, Ack(5, many)), "");
  EXPECT_NE(heard.Take(140, 130, Ack(120)), "");
}

TEST(HeardSetTest, MarksThatGoBackAreALoss) {
  AckPayload before = Ack(50);
  before.trimmed = 40;
  before.promise_epoch = 3;
  for (int which = 0; which < 3; ++which) {
    HeardSet heard;
    EXPECT_EQ(heard.Take(100, 90, before), "");
    AckPayload after = before;
    if (which == 0) after.trimmed = 39;
    if (which == 1) after.promise_epoch = 2;
    if (which == 2) after.base = 2;
    EXPECT_EQ(heard.Take(110, 95, after), "") << which;
    EXPECT_NE(heard.Take(120, 110, after), "") << which;
  }
}

TEST(HeardSetTest, NothingIsKnownAfterAReset) {
  HeardSet heard;
  EXPECT_EQ(heard.Take(100, 90, Ack(50, {{60, 70}})), "");
  heard.Reset();
  EXPECT_EQ(heard.Take(120, 110, Ack(3)), "");
}

}  // namespace
}  // namespace salius
