#include "common/clock.h"

#include <time.h>

#include "gtest/gtest.h"

namespace salius {
namespace {

TEST(ClockTest, SystemClockReadsTheKernelsClocks) {
  const int64_t first = SystemClock().MonotonicNanos();
  timespec now;
  ASSERT_EQ(clock_gettime(CLOCK_MONOTONIC, &now), 0);
  const int64_t kernel = int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
  EXPECT_LE(first, kernel);
  EXPECT_LE(kernel, SystemClock().MonotonicNanos());
  EXPECT_GT(SystemClock().RealtimeNanos(), int64_t{1'600'000'000} * 1'000'000'000);
}

TEST(ManualClockTest, MovesOnlyByAdvance) {
  ManualClock clock(100, 5000);
  EXPECT_EQ(clock.MonotonicNanos(), 100);
  clock.Advance(7);
  EXPECT_EQ(clock.MonotonicNanos(), 107);
  EXPECT_EQ(clock.RealtimeNanos(), 5007);
  clock.SetRealtime(1);
  EXPECT_EQ(clock.RealtimeNanos(), 1);
  EXPECT_EQ(clock.MonotonicNanos(), 107) << "a jump of the wall clock is not time";
}

TEST(ManualClockDeathTest, GoingBackIsABug) {
  ManualClock clock;
  EXPECT_DEATH(clock.Advance(-1), "never goes back");
}

}  // namespace
}  // namespace salius
