#include "client/session/late_ticks.h"

#include <gtest/gtest.h>

namespace salius {
namespace {

constexpr int64_t kMs = 1'000'000;
constexpr int64_t kStart = 1000 * kMs;

// Makes a Tick that comes `late_ns` after it was due. Returns its time.
int64_t Tick(LateTicks& ticks, int64_t late_ns, Seq durable) {
  const int64_t now = ticks.due_ns() + late_ns;
  ticks.Take(now, durable);
  ticks.Expect(now + kMs);
  return now;
}

TEST(LateTicksTest, TickOnTimeShowsNoStop) {
  LateTicks ticks(kStart, 50 * kMs);
  Tick(ticks, 50 * kMs, 0);
  EXPECT_EQ(ticks.resumed_ns(), 0);
}

TEST(LateTicksTest, ShortDelayIsNoStopHoweverSmallTheBound) {
  LateTicks ticks(kStart, kMs);
  Tick(ticks, 20 * kMs, 0);
  EXPECT_EQ(ticks.resumed_ns(), 0);
  const int64_t late = Tick(ticks, 21 * kMs, 0);
  EXPECT_EQ(ticks.resumed_ns(), late);
}

TEST(LateTicksTest, FifthStopWithoutProgressGivesNoTime) {
  LateTicks ticks(kStart, 50 * kMs);
  int64_t last = 0;
  for (int i = 0; i < 4; ++i) {
    last = Tick(ticks, 60 * kMs, 7);
    EXPECT_EQ(ticks.resumed_ns(), last);
  }
  Tick(ticks, 60 * kMs, 7);
  EXPECT_EQ(ticks.resumed_ns(), last);
  last = Tick(ticks, 60 * kMs, 8);  // `durable` has moved
  EXPECT_EQ(ticks.resumed_ns(), last);
}

TEST(LateTicksTest, TimeIsGivenAgainAfterTenSecondsOnTime) {
  LateTicks ticks(kStart, 50 * kMs);
  for (int i = 0; i < 5; ++i) Tick(ticks, 60 * kMs, 7);
  const int64_t before = ticks.resumed_ns();
  ticks.Expect(before + 10'001 * kMs);
  const int64_t late = Tick(ticks, 60 * kMs, 7);
  EXPECT_EQ(ticks.resumed_ns(), late);
}

}  // namespace
}  // namespace salius
