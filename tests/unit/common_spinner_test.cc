#include "common/spinner.h"

#include <gtest/gtest.h>

#include <thread>

namespace salius {
namespace {

constexpr int64_t kLimitNs = 50'000;

TEST(SpinnerTest, LooksUntilItIsThere) {
  ManualClock clock;
  Spinner spinner(kLimitNs, clock);
  int looks = 0;
  EXPECT_TRUE(spinner.Spin([&] { return ++looks == 5; }));
  EXPECT_EQ(looks, 5);
}

TEST(SpinnerTest, LooksNoLongerThanItsTime) {
  ManualClock clock;
  Spinner spinner(kLimitNs, clock);
  int looks = 0;
  EXPECT_FALSE(spinner.Spin([&] {
    ++looks;
    clock.Advance(kLimitNs / 10);
    return false;
  }));
  EXPECT_EQ(looks, 10);
}

TEST(SpinnerTest, NeverLooksWithoutTime) {
  ManualClock clock;
  Spinner spinner(0, clock);
  EXPECT_FALSE(spinner.Spin([] { return true; }));
}

TEST(SpinnerTest, GivesUpAfterVainAttemptsAndTriesAgainLater) {
  ManualClock clock;
  Spinner spinner(kLimitNs, clock);
  int looks = 0;
  const auto vain = [&] {
    ++looks;
    clock.Advance(kLimitNs);
    return false;
  };
  const auto attempts = [&](int chances) {
    looks = 0;
    for (int i = 0; i < chances; ++i) spinner.Spin(vain);
    return looks;
  };
  EXPECT_EQ(attempts(Spinner::kVain), Spinner::kVain);
  EXPECT_EQ(attempts(Spinner::kRest), 0);
  EXPECT_EQ(attempts(1), 1);  // and rests again
  EXPECT_EQ(attempts(Spinner::kRest), 0);
  EXPECT_TRUE(spinner.Spin([] { return true; }));
  EXPECT_EQ(attempts(Spinner::kVain), Spinner::kVain);
}

TEST(SpinnerTest, LateResultIsNoSuccess) {
  ManualClock clock;
  Spinner spinner(kLimitNs, clock);
  const auto late = [&] {
    clock.Advance(kLimitNs + 1);
    return true;
  };
  for (int i = 0; i < Spinner::kVain; ++i) EXPECT_TRUE(spinner.Spin(late));
  EXPECT_FALSE(spinner.Spin([] { return true; }));
}

TEST(SpinnerTest, OneThreadAtATime) {
  ManualClock clock;
  Spinner spinner(kLimitNs, clock);
  bool other = true;
  EXPECT_TRUE(spinner.Spin([&] {
    std::thread second([&] { other = spinner.Spin([] { return true; }); });
    second.join();
    return true;
  }));
  EXPECT_FALSE(other);
}

}  // namespace
}  // namespace salius
