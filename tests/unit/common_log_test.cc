#include "common/log.h"

#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace salius {
namespace {

using ::testing::HasSubstr;
using ::testing::internal::CaptureStderr;
using ::testing::internal::GetCapturedStderr;

TEST(LogTest, LinesCarryNameLevelAndText) {
  ASSERT_TRUE(InitLogging("salius-test", "info").ok());
  CaptureStderr();
  SLOG_WARN("volume {} lost {} replicas", "v", 2);
  const std::string line = GetCapturedStderr();
  EXPECT_THAT(line, ::testing::MatchesRegex("....-..-..T..:..:.......+Z salius-test\\[[0-9]+\\] W "
                                            "volume v lost 2 replicas\n"));
}

TEST(LogTest, ArgumentsBelowTheLevelAreNotEvaluated) {
  ASSERT_TRUE(InitLogging("salius-test", "error").ok());
  int evaluated = 0;
  CaptureStderr();
  SLOG_DEBUG("{}", ++evaluated);
  SLOG_INFO("{}", ++evaluated);
  SLOG_WARN("{}", ++evaluated);
  SLOG_ERROR("shown {{}}");
  EXPECT_THAT(GetCapturedStderr(), HasSubstr(" E shown {}\n"));
  EXPECT_EQ(evaluated, 0);
}

TEST(LogTest, OffIsSilent) {
  ASSERT_TRUE(InitLogging("salius-test", "off").ok());
  CaptureStderr();
  SLOG_ERROR("nobody hears this");
  EXPECT_EQ(GetCapturedStderr(), "");
}

TEST(LogTest, UnknownLevelIsRefusedAndChangesNothing) {
  ASSERT_TRUE(InitLogging("salius-test", "debug").ok());
  EXPECT_EQ(InitLogging("other", "loud").code(), absl::StatusCode::kInvalidArgument);
  CaptureStderr();
  SLOG_DEBUG("x");
  EXPECT_THAT(GetCapturedStderr(), HasSubstr("salius-test"));
}

TEST(LogTest, JournalGetsPrioritiesAndNoTime) {
  CaptureStderr();
  struct stat st;
  ASSERT_EQ(fstat(STDERR_FILENO, &st), 0);
  const std::string stream = std::to_string(st.st_dev) + ":" + std::to_string(st.st_ino);
  setenv("JOURNAL_STREAM", stream.c_str(), 1);
  ASSERT_TRUE(InitLogging("salius-test", "debug").ok());
  unsetenv("JOURNAL_STREAM");
  SLOG_DEBUG("d");
  SLOG_INFO("i {}", 1);
  SLOG_WARN("w");
  SLOG_ERROR("e");
  EXPECT_EQ(GetCapturedStderr(), "<7>d\n<6>i 1\n<4>w\n<3>e\n");
}

}  // namespace
}  // namespace salius
