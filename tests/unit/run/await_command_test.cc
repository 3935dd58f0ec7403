// The end of a command and of what it leaves behind.
#include "client/run/await_command.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "client/run/command_line.h"
#include "common/file.h"

namespace salius::run {
namespace {

class AwaitCommandTest : public testing::Test {
 protected:
  void SetUp() override {
    BlockSignals();
    AdoptOrphans();
    int ends[2];
    ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
    reads_.Reset(ends[0]);
    writes_.Reset(ends[1]);
  }

  // Starts a process that leaves `orphans` behind, and ends with code 7. They live until Release().
  pid_t Start(int orphans) {
    const pid_t child = ::fork();
    if (child != 0) return child;
    writes_.Reset();
    for (int i = 0; i < orphans; ++i) {
      if (::fork() != 0) continue;
      char byte = 0;
      static_cast<void>(!::read(reads_.get(), &byte, 1));
      ::_exit(0);
    }
    ::_exit(7);
  }
  void Release() { writes_.Reset(); }

  UniqueFd reads_, writes_;
};

TEST_F(AwaitCommandTest, NothingIsLeftOfACommandAlone) {
  EXPECT_EQ(AwaitCommand(Start(0)), 7);
  EXPECT_TRUE(AwaitLeftBehind(0));
}

TEST_F(AwaitCommandTest, ProcessesLeftBehindAreAwaited) {
  EXPECT_EQ(AwaitCommand(Start(2)), 7);
  EXPECT_FALSE(AwaitLeftBehind(0));
  EXPECT_FALSE(AwaitLeftBehind(5));
  Release();
  EXPECT_TRUE(AwaitLeftBehind(-1));
}

// A shell may have started a process, and then become salius-run: `exec > >(tee log)`.
TEST_F(AwaitCommandTest, ChildrenOfBeforeAreNotAwaited) {
  ASSERT_GT(Start(0), 0);
  AdoptOrphans();
  EXPECT_TRUE(AwaitLeftBehind(-1));
  while (::waitpid(-1, nullptr, 0) > 0) {
  }
}

TEST_F(AwaitCommandTest, OrphansThatEndBeforeTheCommandAreReaped) {
  const pid_t command = ::fork();
  if (command == 0) {
    writes_.Reset();
    char byte = 0;
    static_cast<void>(!::read(reads_.get(), &byte, 1));
    ::kill(::getpid(), SIGKILL);
  }
  // As left behind by a process of the command.
  const pid_t orphan = ::fork();
  if (orphan == 0) ::_exit(0);
  siginfo_t info{};
  ASSERT_EQ(::waitid(P_PID, static_cast<id_t>(orphan), &info, WEXITED | WNOWAIT), 0);
  Release();
  EXPECT_EQ(AwaitCommand(command), kExitSignal + SIGKILL);
  EXPECT_TRUE(AwaitLeftBehind(-1));
}

}  // namespace
}  // namespace salius::run
