#include "common/check.h"

#include <memory>

#include "gtest/gtest.h"

namespace salius {
namespace {

absl::StatusOr<int> Half(int n) {
  if (n % 2 != 0) return absl::InvalidArgumentError("odd");
  return n / 2;
}

absl::StatusOr<std::unique_ptr<int>> Quarter(int n) {
  SALIUS_ASSIGN_OR_RETURN(const int half, Half(n));
  int quarter;
  SALIUS_ASSIGN_OR_RETURN(quarter, Half(half));
  return std::make_unique<int>(quarter);
}

absl::Status IsMultipleOfFour(int n) {
  SALIUS_ASSIGN_OR_RETURN(std::unique_ptr<int> quarter, Quarter(n));
  SALIUS_RETURN_IF_ERROR(Half(n).status());
  return *quarter * 4 == n ? absl::OkStatus() : absl::InternalError("arithmetic");
}

TEST(StatusMacrosTest, PassValuesOnAndErrorsUp) {
  EXPECT_EQ(IsMultipleOfFour(8), absl::OkStatus());
  EXPECT_EQ(IsMultipleOfFour(6), absl::InvalidArgumentError("odd"));
  EXPECT_EQ(IsMultipleOfFour(5), absl::InvalidArgumentError("odd"));
}

TEST(CheckTest, TrueConditionIsSilentAndItsMessageNotEvaluated) {
  int evaluated = 0;
  SALIUS_CHECK(evaluated == 0);
  SALIUS_CHECK(evaluated == 0, "text") << ++evaluated;
  SALIUS_CHECK_OK(absl::OkStatus()) << ++evaluated;
  SALIUS_CHECK_OK(Half(2));
  EXPECT_EQ(evaluated, 0);
}

TEST(CheckTest, BindsToNoOuterElse) {
  bool reached = false;
  if (reached)
    SALIUS_CHECK(false);
  else
    reached = true;
  EXPECT_TRUE(reached);
}

TEST(CheckDeathTest, AbortsWithConditionAndText) {
  const int seq = 7;
  EXPECT_DEATH(SALIUS_CHECK(seq < 5) << "seq " << seq, "check_test.cc:[0-9]+: .*seq < 5 seq 7");
  EXPECT_DEATH(SALIUS_CHECK(seq < 5, "order") << seq, "seq < 5 order 7");
  EXPECT_DEATH(SALIUS_CHECK(seq < 5, "order"), "seq < 5 order");
  EXPECT_DEATH(SALIUS_CHECK_OK(Half(3)) << "here", "INVALID_ARGUMENT: odd here");
}

}  // namespace
}  // namespace salius
