#include "client/cli/latency.h"

#include <gtest/gtest.h>

#include <vector>

namespace salius::cli {
namespace {

TEST(LatencyTest, PercentilesAreNearestRanks) {
  std::vector<uint64_t> samples;
  for (uint64_t i = 1; i <= 1000; ++i) samples.push_back(i * 1000);
  EXPECT_EQ(PercentileUs(samples, 50), 500);
  EXPECT_EQ(PercentileUs(samples, 99), 990);
  EXPECT_EQ(PercentileUs(samples, 99.9), 999);
  EXPECT_EQ(PercentileUs(samples, 100), 1000);
  EXPECT_EQ(PercentileUs(samples, 0), 1);
}

TEST(LatencyTest, NoSamplesGiveZeros) {
  EXPECT_EQ(PercentileUs({}, 99), 0);
  const LatencySummary summary = Summarize({}, 1'000'000'000);
  EXPECT_EQ(summary.operations, 0);
  EXPECT_EQ(summary.ops_per_second, 0);
  EXPECT_EQ(Median({}), 0);
}

TEST(LatencyTest, RateIsByTheWallNotByTheSamples) {
  // Two writers, 10 us each: twice as many operations as one second holds.
  const LatencySummary summary = Summarize({10'000, 10'000, 10'000, 10'000}, 20'000);
  EXPECT_EQ(summary.operations, 4);
  EXPECT_DOUBLE_EQ(summary.ops_per_second, 200'000);
  EXPECT_EQ(summary.p50_us, 10);
}

TEST(LatencyTest, SamplesNeedNotBeSorted) {
  EXPECT_EQ(Summarize({3000, 1000, 2000}, 1).p50_us, 2);
  EXPECT_EQ(Summarize({3000, 1000, 2000}, 1).max_us, 3);
}

TEST(LatencyTest, MedianOfAnEvenCountIsTheMeanOfTheMiddle) {
  EXPECT_EQ(Median({4, 1, 3, 2}), 2.5);
  EXPECT_EQ(Median({9, 1, 5}), 5);
}

TEST(LatencyTest, OneDisturbedRoundDoesNotMoveTheMedian) {
  const LatencySummary good{.operations = 10, .ops_per_second = 100, .p50_us = 10, .max_us = 20};
  const LatencySummary bad{.operations = 1, .ops_per_second = 1, .p50_us = 9000, .max_us = 9999};
  const LatencySummary median = MedianOfRounds(std::vector<LatencySummary>{good, bad, good});
  EXPECT_EQ(median.p50_us, 10);
  EXPECT_EQ(median.ops_per_second, 100);
  EXPECT_EQ(median.operations, 21);
  EXPECT_EQ(median.max_us, 9999) << "the worst that happened stays visible";
}

}  // namespace
}  // namespace salius::cli
