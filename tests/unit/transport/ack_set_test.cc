// AckSet against a plain std::set, and its edges by hand.
#include "transport/ack_set.h"

#include <set>

#include "common/random.h"
#include "gtest/gtest.h"

namespace salius {
namespace {

using Result = AckSet::AddResult;

AckPayload Ack(const AckSet& set) {
  AckPayload ack;
  set.FillAck(ack);
  return ack;
}

TEST(AckSetTest, StartsBelowItsBase) {
  const AckSet set(5);
  EXPECT_EQ(set.contiguous(), 4u);
  EXPECT_EQ(set.highest(), 4u);
  EXPECT_FALSE(set.Contains(4));
  EXPECT_FALSE(set.Contains(5));
}

TEST(AckSetTest, SeqBelowTheBaseIsNeverHeld) {
  AckSet set(5);
  EXPECT_EQ(set.Add(4), Result::kBelowBase);
  set.TrimTo(10);
  EXPECT_EQ(set.Add(4), Result::kBelowBase);
  EXPECT_EQ(Ack(set).base, 5u);
}

TEST(AckSetTest, GapIsARangeUntilItIsFilled) {
  AckSet set(1);
  EXPECT_EQ(set.Add(1), Result::kAdded);
  EXPECT_EQ(set.Add(3), Result::kAdded);
  EXPECT_EQ(set.Add(4), Result::kAdded);
  EXPECT_EQ(set.Add(4), Result::kHeld);
  EXPECT_EQ(set.contiguous(), 1u);
  EXPECT_EQ(Ack(set).ranges, (std::vector<SeqRange>{{3, 4}}));
  EXPECT_EQ(set.Add(2), Result::kAdded);
  EXPECT_EQ(set.contiguous(), 4u);
  EXPECT_TRUE(Ack(set).ranges.empty());
}

TEST(AckSetTest, SeqBetweenTwoRangesJoinsThem) {
  AckSet set(1);
  set.Add(3);
  set.Add(5);
  set.Add(4);
  EXPECT_EQ(Ack(set).ranges, (std::vector<SeqRange>{{3, 5}}));
}

TEST(AckSetTest, TrimSwallowsGapsAndTheRangeItReaches) {
  AckSet set(1);
  set.Add(3);
  set.Add(5);
  set.Add(6);
  set.Add(9);
  set.TrimTo(4);
  EXPECT_EQ(set.contiguous(), 6u);
  EXPECT_EQ(Ack(set).ranges, (std::vector<SeqRange>{{9, 9}}));
  set.TrimTo(2);
  EXPECT_EQ(set.contiguous(), 6u);
}

TEST(AckSetTest, AckNamesTheLowestRangesOnly) {
  AckSet set(1);
  for (Seq seq = 2; seq < 200; seq += 2) set.Add(seq);
  const AckPayload ack = Ack(set);
  ASSERT_EQ(ack.ranges.size(), kMaxAckRanges);
  EXPECT_EQ(ack.ranges.front(), (SeqRange{2, 2}));
}

TEST(AckSetTest, RefusesMoreRangesThanItsBoundButExtendsThem) {
  AckSet set(1, 2);
  EXPECT_EQ(set.Add(10), Result::kAdded);
  EXPECT_EQ(set.Add(20), Result::kAdded);
  EXPECT_EQ(set.Add(30), Result::kTooManyRanges);
  EXPECT_FALSE(set.Contains(30));
  EXPECT_EQ(set.Add(21), Result::kAdded);
  EXPECT_EQ(set.Add(9), Result::kAdded);
  EXPECT_EQ(set.Add(1), Result::kAdded);
}

TEST(AckSetTest, CountsAboveASeq) {
  AckSet set(3);
  for (const Seq seq : {3, 4, 7, 8, 9}) set.Add(seq);
  EXPECT_EQ(set.CountAbove(0), 5u);
  EXPECT_EQ(set.CountAbove(3), 4u);
  EXPECT_EQ(set.CountAbove(7), 2u);
  EXPECT_EQ(set.CountAbove(9), 0u);
}

TEST(AckSetTest, BehavesLikeASetOfSeqs) {
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    Random random(seed);
    const Seq base = 1 + random.Below(5);
    AckSet set(base);
    std::set<Seq> held;
    Seq trimmed = 0;
    const auto holds = [&](Seq seq) {
      return seq >= base && (seq <= trimmed || held.count(seq) > 0);
    };
    for (int step = 0; step < 300; ++step) {
      if (random.Chance(0.05)) {
        trimmed = std::max<Seq>(trimmed, random.Below(120));
        set.TrimTo(trimmed);
      } else {
        const Seq seq = 1 + random.Below(150);
        const Result want = seq < base   ? Result::kBelowBase
                            : holds(seq) ? Result::kHeld
                                         : Result::kAdded;
        ASSERT_EQ(set.Add(seq), want) << "seed " << seed << " step " << step;
        if (want == Result::kAdded) held.insert(seq);
      }
      Seq contiguous = base - 1;
      while (holds(contiguous + 1)) ++contiguous;
      ASSERT_EQ(set.contiguous(), contiguous) << "seed " << seed << " step " << step;
      for (Seq seq = 1; seq < 155; ++seq) ASSERT_EQ(set.Contains(seq), holds(seq)) << seq;
    }
  }
}

}  // namespace
}  // namespace salius
