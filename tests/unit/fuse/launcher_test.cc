// Into the background: the parent says what the daemon said, and no more.
#include "client/fuse/launcher.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <functional>

namespace salius {
namespace {

// What the parent returns when the daemon does `daemon`, in a process of its own (the daemon is a
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
              if (!launcher.Ready("a notice", log).ok()) ::_exit(9);
              if (!launcher.told()) ::_exit(9);
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

TEST(LauncherTest, LogFileThatCannotBeOpenedIsAnErrorAndNobodyWasTold) {
  ::unsetenv("JOURNAL_STREAM");
  EXPECT_EQ(ParentCode([](Launcher& launcher) {
              if (launcher.Ready("", "/proc/no/such.log").ok() || launcher.told()) {
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
  EXPECT_TRUE(launcher.Ready("", "/proc/no/such.log").ok());
}

}  // namespace
}  // namespace salius
