#include "common/log.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <string>

#include "common/check.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace salius {
namespace {

using ::testing::AllOf;
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
  SLOG_ERROR("unheard error here");
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
  SLOG_WARN("first\nsecond\n");
  EXPECT_EQ(GetCapturedStderr(), "<7>d\n<6>i 1\n<4>w\n<3>e\n<4>first\n<4>second\n<4>\n");
}

TEST(LogTest, PlaceAndPrefixFollowStderr) {
  CaptureStderr();
  struct stat st;
  ASSERT_EQ(fstat(STDERR_FILENO, &st), 0);
  EXPECT_EQ(LinePrefix(LogLevel::kError), "");
  EXPECT_EQ(LogPlace().front(), '/');
  setenv("JOURNAL_STREAM", (std::to_string(st.st_dev) + ":" + std::to_string(st.st_ino)).c_str(), 1);
  EXPECT_EQ(LinePrefix(LogLevel::kError), "<3>");
  EXPECT_EQ(LogPlace(), "journal");
  unsetenv("JOURNAL_STREAM");
  GetCapturedStderr();
}

// A full pipe that is not read, in place of stderr.
class FullPipe {
 public:
  FullPipe() : stderr_(dup(STDERR_FILENO)) {
    EXPECT_EQ(pipe(ends_), 0);
    EXPECT_EQ(fcntl(ends_[1], F_SETFL, O_NONBLOCK), 0);
    for (const size_t bytes : {size_t{4096}, size_t{1}}) {
      const std::string some(bytes, '.');
      while (write(ends_[1], some.data(), bytes) > 0) {
      }
    }
    EXPECT_EQ(fcntl(ends_[1], F_SETFL, 0), 0);
    fflush(stderr);
    dup2(ends_[1], STDERR_FILENO);
    close(ends_[1]);
  }
  // Reads until `last` has come. Returns the text before it, without the bytes that filled the
  // pipe.
  std::string ReadUntil(const std::string& last) {
    std::string text;
    char buffer[65536];
    while (text.find(last) == std::string::npos) {
      const ssize_t n = read(ends_[0], buffer, sizeof(buffer));
      if (n <= 0) break;
      text.append(buffer, static_cast<size_t>(n));
    }
    return text.substr(text.find_first_not_of('.'));
  }
  ~FullPipe() {
    dup2(stderr_, STDERR_FILENO);
    close(stderr_);
    close(ends_[0]);
  }

 private:
  const int stderr_;
  int ends_[2];
};

void FailCheckBehindManyLines() {
  alarm(60);  // a thread that waits would wait for ever
  if (!InitLogging("salius-test", "info").ok()) _exit(1);
  LogInBackground();
  for (int i = 0; i < 900; ++i) SLOG_INFO("line {} of many", i);
  const bool fails = true;
  SALIUS_CHECK(!fails);
}

TEST(LogDeathTest, AFailedCheckComesBehindTheLinesThatWait) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(FailCheckBehindManyLines(), ::testing::KilledBySignal(SIGABRT),
              "line 899 of many\n.*check failed");
}

TEST(LogDeathTest, FailedCheckEndsTheProcessWithABlockedLog) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "ThreadSanitizer's own abort() waits for stderr";
#endif
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto fail = [] {
    new FullPipe;
    FailCheckBehindManyLines();
  };
  EXPECT_EXIT(fail(), ::testing::KilledBySignal(SIGABRT), "");
}

// This test comes last: from here on the process logs in the background.
TEST(LogTest, BackgroundLogDoesNotWaitForTheReaderOfStderr) {
  ASSERT_TRUE(InitLogging("salius-test", "info").ok());
  EXPECT_TRUE(FlushLog(std::chrono::milliseconds(0))) << "nothing waits";
  FullPipe pipe;
  alarm(60);  // a thread that waits would wait for ever
  LogInBackground();
  constexpr int kMore = 5;
  for (size_t i = 0; i < kLogQueueLines + 1 + kMore; ++i) SLOG_INFO("line {} of many", i);
  EXPECT_FALSE(FlushLog(std::chrono::milliseconds(1)));
  // The last lines are missing, and their number is logged without another line.
  EXPECT_THAT(pipe.ReadUntil(" lines of the log are lost: it could not be written\n"),
              AllOf(HasSubstr(" I line 0 of many\n"), HasSubstr(" I line 999 of many\n")));
  EXPECT_TRUE(FlushLog(std::chrono::seconds(30)));
  alarm(0);
}

}  // namespace
}  // namespace salius
