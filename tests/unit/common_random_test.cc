#include "common/random.h"

#include <vector>

#include "gtest/gtest.h"

namespace salius {
namespace {

TEST(RandomTest, SameSeedGivesTheSameNumbersForEver) {
  Random random(42);
  // These values are frozen: seeds in bug reports and the simulator rely on them.
  EXPECT_EQ(random.Next(), 0x15780b2e0c2ec716u);
  EXPECT_EQ(random.Next(), 0x6104d9866d113a7eu);
}

TEST(RandomTest, DifferentSeedsDiffer) { EXPECT_NE(Random(1).Next(), Random(2).Next()); }

TEST(RandomTest, BelowStaysBelowAndReachesEveryValue) {
  Random random(1);
  std::vector<int> seen(7);
  for (int i = 0; i < 7000; ++i) ++seen[random.Below(7)];
  for (const int count : seen) EXPECT_GT(count, 800);
  EXPECT_EQ(random.Below(1), 0u);
}

TEST(RandomTest, BetweenIncludesBothEnds) {
  Random random(1);
  bool low = false;
  bool high = false;
  for (int i = 0; i < 200; ++i) {
    const int64_t value = random.Between(-1, 1);
    ASSERT_GE(value, -1);
    ASSERT_LE(value, 1);
    low |= value == -1;
    high |= value == 1;
  }
  EXPECT_TRUE(low && high);
  EXPECT_EQ(random.Between(5, 5), 5);
  random.Between(INT64_MIN, INT64_MAX);
}

TEST(RandomTest, ChanceKeepsItsPromiseAtTheEnds) {
  Random random(1);
  int hits = 0;
  for (int i = 0; i < 10000; ++i) {
    ASSERT_FALSE(random.Chance(0));
    ASSERT_TRUE(random.Chance(1));
    hits += random.Chance(0.25) ? 1 : 0;
  }
  EXPECT_NEAR(hits, 2500, 200);
}

TEST(RandomDeathTest, BelowZeroIsABug) { EXPECT_DEATH(Random(1).Below(0), "Below"); }

TEST(SecureRandomTest, Differs) { EXPECT_NE(SecureRandom64(), SecureRandom64()); }

}  // namespace
}  // namespace salius
