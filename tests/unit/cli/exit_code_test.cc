#include "client/cli/exit_code.h"

#include "gtest/gtest.h"

namespace salius::cli {
namespace {

TEST(ExitCodeTest, EveryKindOfErrorHasItsOwn) {
  EXPECT_EQ(ExitCodeOf(absl::OkStatus()), kExitOk);
  EXPECT_EQ(ExitCodeOf(absl::InvalidArgumentError("")), kExitUsage);
  EXPECT_EQ(ExitCodeOf(absl::NotFoundError("")), kExitNotFound);
  EXPECT_EQ(ExitCodeOf(absl::AlreadyExistsError("")), kExitExists);
  EXPECT_EQ(ExitCodeOf(absl::FailedPreconditionError("")), kExitUnsuitable);
  EXPECT_EQ(ExitCodeOf(absl::ResourceExhaustedError("")), kExitNoSpace);
  EXPECT_EQ(ExitCodeOf(absl::UnavailableError("")), kExitUnreachable);
  EXPECT_EQ(ExitCodeOf(absl::DeadlineExceededError("")), kExitUnreachable);
  EXPECT_EQ(ExitCodeOf(absl::DataLossError("")), kExitDamaged);
  EXPECT_EQ(ExitCodeOf(absl::PermissionDeniedError("")), kExitPermission);
  EXPECT_EQ(ExitCodeOf(absl::InternalError("")), kExitFailed);
}

}  // namespace
}  // namespace salius::cli
