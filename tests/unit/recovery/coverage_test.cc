#include "recovery/agree/coverage.h"

#include <set>

#include "common/random.h"
#include "gtest/gtest.h"

namespace salius::recovery {
namespace {

TEST(CoverageTest, AgreesWithAPlainSet) {
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    Random random(seed);
    Coverage coverage;
    std::set<Seq> plain;
    const uint64_t range = 1 + random.Below(40);
    for (int i = 0; i < 60; ++i) {
      const Seq seq = 1 + random.Below(range);
      EXPECT_EQ(coverage.Add(seq), plain.insert(seq).second);
      const Seq after = random.Below(range + 1);
      const Seq last = random.Below(range + 3);
      std::optional<Seq> first_missing, last_missing;
      for (Seq s = after + 1; s <= last; ++s) {
        if (plain.contains(s)) continue;
        if (!first_missing.has_value()) first_missing = s;
        last_missing = s;
      }
      ASSERT_EQ(coverage.FirstMissing(after, last), first_missing) << "seed " << seed;
      ASSERT_EQ(coverage.LastMissing(after, last), last_missing) << "seed " << seed;
      ASSERT_EQ(coverage.Contains(seq + 1), plain.contains(seq + 1));
    }
  }
}

}  // namespace
}  // namespace salius::recovery
