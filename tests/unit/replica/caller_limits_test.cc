#include "replica/caller_limits.h"

#include <gtest/gtest.h>

#include <string>

#include "absl/strings/str_cat.h"

namespace salius {
namespace {

constexpr int64_t kSecond = 1'000'000'000;

CallerLimits::Options Few() {
  return {.calls_per_s = 10, .calls_at_once = 20, .connections = 3, .callers = 2};
}

TEST(CallerLimits, CallsAreLimitedAndComeBackWithTime) {
  CallerLimits limits(Few());
  for (int i = 0; i < 20; ++i) EXPECT_TRUE(limits.Admit(kSecond, "client/a", "h:1").ok()) << i;
  const absl::Status refused = limits.Admit(kSecond, "client/a", "h:1");
  EXPECT_TRUE(absl::IsResourceExhausted(refused)) << refused;
  EXPECT_TRUE(limits.Admit(kSecond, "client/b", "h:1").ok()) << "another identity";
  for (int i = 0; i < 10; ++i) EXPECT_TRUE(limits.Admit(2 * kSecond, "client/a", "h:1").ok()) << i;
  EXPECT_FALSE(limits.Admit(2 * kSecond, "client/a", "h:1").ok());
  // However long it is silent, it may not save up more.
  for (int i = 0; i < 20; ++i) EXPECT_TRUE(limits.Admit(99 * kSecond, "client/a", "h:1").ok());
  EXPECT_FALSE(limits.Admit(99 * kSecond, "client/a", "h:1").ok());
}

TEST(CallerLimits, ConnectionsAreLimitedWithinAMinute) {
  CallerLimits limits(Few());
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(limits.Admit(kSecond, "client/a", absl::StrCat("h:", i)).ok());
  }
  EXPECT_TRUE(absl::IsResourceExhausted(limits.Admit(2 * kSecond, "client/a", "h:3")));
  EXPECT_TRUE(limits.Admit(2 * kSecond, "client/a", "h:2").ok()) << "a known one";
  EXPECT_TRUE(limits.Admit(kSecond + CallerLimits::kWindowNs, "client/a", "h:3").ok());
}

TEST(CallerLimits, LeastRecentCallerIsForgotten) {
  CallerLimits limits(Few());
  for (int i = 0; i < 10; ++i) {
    EXPECT_TRUE(limits.Admit(i * kSecond, absl::StrCat("client/", i), "h:1").ok());
  }
  EXPECT_EQ(limits.size(), 2u);
}

TEST(CallerLimits, TimeThatGoesBackGivesNoCalls) {
  CallerLimits limits(Few());
  for (int i = 0; i < 20; ++i) EXPECT_TRUE(limits.Admit(9 * kSecond, "client/a", "h:1").ok());
  EXPECT_FALSE(limits.Admit(kSecond, "client/a", "h:1").ok());
}

}  // namespace
}  // namespace salius
