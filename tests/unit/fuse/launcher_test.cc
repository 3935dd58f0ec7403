// The way into the background: the parent prints the daemon's message, and nothing else.
#include "client/mount/launcher.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <string>

namespace salius {
namespace {

// Returns the parent's exit code when the daemon runs `daemon`, in another process (the daemon is a
// fork of it).
int ParentCode(const std::function<void(Launcher&)>& daemon) {
  const pid_t pid = ::fork();
  if (pid == 0) {
    Launcher launcher("test", /*foreground=*/false);
    if (const std::optional<int> code = launcher.Start(); code.has_value()) ::_exit(*code);
    daemon(launcher);
    ::_exit(0);
  }
  int status = 0;
  ::waitpid(pid, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST(LauncherTest, ReadyDaemonIsSuccess) {
  const std::string log = testing::TempDir() + "/launcher.log";
  EXPECT_EQ(ParentCode([&](Launcher& launcher) {
              if (!launcher.Ready("a notice", "", log).ok()) ::_exit(9);
              if (!launcher.reported()) ::_exit(9);
            }),
            kExitOk);
}

TEST(LauncherTest, FailureAndUsageHaveTheirCodes) {
  EXPECT_EQ(ParentCode([](Launcher& l) { l.Fail(absl::UnavailableError("locked")); }),
            kExitFailure);
  EXPECT_EQ(ParentCode([](Launcher& l) { l.Fail(absl::InvalidArgumentError("bad")); }), kExitUsage);
}

TEST(LauncherTest, DaemonThatDiesWithoutAWordIsAFailure) {
  EXPECT_EQ(ParentCode([](Launcher&) { ::_exit(0); }), kExitFailure);
  EXPECT_EQ(ParentCode([](Launcher&) { ::kill(::getpid(), SIGKILL); }), kExitFailure);
}

// Returns the file that the daemon's stderr becomes, when it was `stream` and this log was given.
std::string LoggedTo(const std::string& stream, const std::string& given) {
  const std::string logged = testing::TempDir() + "logged-to";
  ::unlink(logged.c_str());
  const int code = ParentCode([&](Launcher& launcher) {
    const int fd = ::open(stream.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
    struct stat st;
    ::dup2(fd, STDERR_FILENO);
    ::fstat(fd, &st);
    // Like systemd, which names the stream that it gave.
    ::setenv("JOURNAL_STREAM",
             (std::to_string(st.st_dev) + ":" + std::to_string(st.st_ino)).c_str(), 1);
    if (launcher.Ready("", given, testing::TempDir() + "/default.log").ok()) {
      std::error_code error;
      std::filesystem::create_symlink(std::filesystem::read_symlink("/proc/self/fd/2", error),
                                      logged);
    }
  });
  EXPECT_EQ(code, kExitOk);
  // The daemon continues after its parent has ended.
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  std::error_code error;
  std::filesystem::path to;
  do {
    to = std::filesystem::read_symlink(logged, error);
  } while (error && std::chrono::steady_clock::now() < end);
  return to;
}

TEST(LauncherTest, JournalStaysUnlessAFileIsGiven) {
  const std::string stream = testing::TempDir() + "stream",
                    given = testing::TempDir() + "given.log";
  EXPECT_EQ(LoggedTo(stream, ""), stream);
  EXPECT_EQ(LoggedTo(stream, given), given);
}

TEST(LauncherTest, InheritedJournalStreamOfAnotherStderrIsNone) {
  ::setenv("JOURNAL_STREAM", "1:1", 1);
  const std::string log = testing::TempDir() + "/launcher-inherited.log";
  EXPECT_EQ(ParentCode([&](Launcher& launcher) {
              if (!launcher.Ready("", "", log).ok()) ::_exit(9);
            }),
            kExitOk);
  ::unsetenv("JOURNAL_STREAM");
  EXPECT_EQ(::access(log.c_str(), F_OK), 0);
}

TEST(LauncherTest, UnopenableLogFileIsAnErrorWithoutANotice) {
  EXPECT_EQ(ParentCode([](Launcher& launcher) {
              if (launcher.Ready("", "", "/proc/no/such.log").ok() || launcher.reported()) {
                launcher.Fail(absl::InvalidArgumentError("should have failed"));
                return;
              }
              launcher.Fail(absl::UnavailableError("log"));
            }),
            kExitFailure);
}

TEST(LauncherTest, ForegroundDoesNotFork) {
  Launcher launcher("test", /*foreground=*/true);
  const pid_t before = ::getpid();
  EXPECT_FALSE(launcher.Start().has_value());
  EXPECT_EQ(::getpid(), before);
  EXPECT_TRUE(launcher.Ready("", "", "/proc/no/such.log").ok());
}

}  // namespace
}  // namespace salius
