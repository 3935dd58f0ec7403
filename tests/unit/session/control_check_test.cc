#include "client/session/control_check.h"

#include <gtest/gtest.h>

namespace salius {
namespace {

const absl::Status kBlocked = absl::DeadlineExceededError("no answer within 2000 ms");

TEST(ControlCheckTest, AskedNowAndThenOneAtATime) {
  ControlCheck check;
  check.Start(1);
  EXPECT_FALSE(check.Due(ControlCheck::kEveryNs));
  EXPECT_TRUE(check.Due(ControlCheck::kEveryNs + 1));
  EXPECT_FALSE(check.Due(10 * ControlCheck::kEveryNs)) << "one is under way";
  check.Took(10 * ControlCheck::kEveryNs, absl::OkStatus());
  EXPECT_FALSE(check.Due(11 * ControlCheck::kEveryNs - 1));
  EXPECT_TRUE(check.Due(11 * ControlCheck::kEveryNs));
}

TEST(ControlCheckTest, TwoFailuresInARowAreAProblemUntilAnAnswer) {
  ControlCheck check;
  check.Start(0);
  EXPECT_FALSE(check.Took(1, kBlocked));
  EXPECT_EQ(check.problem(1), "");
  EXPECT_FALSE(check.Took(2, absl::OkStatus()));
  EXPECT_FALSE(check.Took(3, kBlocked));
  EXPECT_TRUE(check.Took(4, kBlocked));
  const std::string problem = check.problem(7'000'000'002);
  EXPECT_NE(problem.find("for 7 s (no answer within 2000 ms)"), std::string::npos) << problem;
  EXPECT_FALSE(check.Took(5, kBlocked)) << "it is known";
  EXPECT_TRUE(check.Took(6, absl::OkStatus()));
  EXPECT_EQ(check.problem(6), "");
}

TEST(ControlCheckTest, AfterAFailureItIsAskedSooner) {
  ControlCheck check;
  check.Start(0);
  ASSERT_TRUE(check.Due(ControlCheck::kEveryNs));
  check.Took(ControlCheck::kEveryNs, kBlocked);
  EXPECT_TRUE(check.Due(ControlCheck::kEveryNs + ControlCheck::kAgainNs));
}

}  // namespace
}  // namespace salius
