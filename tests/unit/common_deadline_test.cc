#include "common/deadline.h"

#include <algorithm>
#include <chrono>
#include <cstdint>

#include "gtest/gtest.h"

namespace salius {
namespace {

TEST(DeadlineTest, ExpiresWhenItsTimeHasPassed) {
  ManualClock clock;
  const Deadline deadline = Deadline::After(clock, 5);
  EXPECT_FALSE(deadline.Expired(clock));
  EXPECT_EQ(deadline.RemainingNs(clock), 5);
  clock.Advance(4);
  EXPECT_EQ(deadline.RemainingNs(clock), 1);
  clock.Advance(1);
  EXPECT_TRUE(deadline.Expired(clock));
  clock.Advance(1);
  EXPECT_EQ(deadline.RemainingNs(clock), 0);
}

TEST(DeadlineTest, JumpOfTheWallClockChangesNothing) {
  ManualClock clock;
  const Deadline deadline = Deadline::AfterMillis(clock, 1);
  clock.SetRealtime(INT64_MAX);
  EXPECT_EQ(deadline.RemainingNs(clock), 1'000'000);
}

TEST(DeadlineTest, TimeMayHaveAUnit) {
  ManualClock clock;
  EXPECT_EQ(Deadline::After(clock, std::chrono::seconds(2)).RemainingNs(clock), 2'000'000'000);
}

TEST(DeadlineTest, EarlierOneIsLess) {
  ManualClock clock;
  const Deadline early = Deadline::After(clock, 1), late = Deadline::After(clock, 2);
  EXPECT_LT(early, late);
  EXPECT_EQ(std::min(late, early), early);
  EXPECT_LT(late, Deadline::Never());
}

TEST(DeadlineTest, NegativeTimeHasExpired) {
  ManualClock clock;
  EXPECT_TRUE(Deadline::After(clock, -1).Expired(clock));
  EXPECT_EQ(Deadline::After(clock, -1).RemainingNs(clock), 0);
}

TEST(DeadlineTest, NeverAndTheLongestTimeDoNotExpire) {
  ManualClock clock;
  for (const Deadline deadline : {Deadline::Never(), Deadline::After(clock, INT64_MAX)}) {
    EXPECT_FALSE(deadline.Expired(clock));
    EXPECT_EQ(deadline.RemainingNs(clock), INT64_MAX);
  }
}

}  // namespace
}  // namespace salius
