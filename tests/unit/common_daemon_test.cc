#include "common/daemon.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstddef>
#include <string>
#include <thread>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace salius {
namespace {

using ::testing::HasSubstr;

// Made before any thread of the test process exists, as in a daemon's main().
SignalWaiter& Waiter() {
  static auto* const waiter = new SignalWaiter;
  return *waiter;
}

TEST(SignalWaiterTest, HandsOverSignalsSentToTheProcess) {
  SignalWaiter& waiter = Waiter();
  for (const int signo : {SIGTERM, SIGINT, SIGHUP}) {
    ASSERT_EQ(kill(getpid(), signo), 0);
    EXPECT_EQ(waiter.Wait(), signo);
  }
}

TEST(SignalWaiterTest, SignalDuringTheWaitEndsIt) {
  SignalWaiter& waiter = Waiter();
  std::thread sender([] { kill(getpid(), SIGTERM); });
  EXPECT_EQ(waiter.WaitFor(60'000'000), SIGTERM);
  sender.join();
}

TEST(SignalWaiterTest, WakeEndsOneWait) {
  SignalWaiter& waiter = Waiter();
  waiter.Wake();
  EXPECT_EQ(waiter.Wait(), 0);
  std::thread waker([&] { waiter.Wake(); });
  EXPECT_EQ(waiter.WaitFor(60'000'000), 0);
  waker.join();
}

TEST(KeepMemoryPrivateTest, ForkedProcessesInheritIt) {
  // In a process of its own: a sanitizer may need the memory of this one.
  const pid_t child = fork();
  if (child == 0) {
    KeepMemoryPrivate();
    const bool hidden = prctl(PR_GET_DUMPABLE) == 0;
    // It still reads its own files of /proc.
    const bool reads = access("/proc/self/fd/0", F_OK) == 0 && ProcStatusBytes("VmRSS").ok();
    const pid_t grandchild = fork();
    if (grandchild == 0) _exit(prctl(PR_GET_DUMPABLE) == 0 ? 0 : 1);
    int status = -1;
    const bool inherits = waitpid(grandchild, &status, 0) == grandchild && status == 0;
    _exit(hidden && reads && inherits ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(prctl(PR_GET_DUMPABLE), 1);
}

TEST(SignalWaiterTest, TimesOut) {
  EXPECT_EQ(Waiter().WaitFor(0), -1);
  EXPECT_EQ(Waiter().WaitFor(1), -1);
  EXPECT_EQ(Waiter().WaitFor(-5), -1);
}

TEST(SignalWaiterTest, BrokenPipeIsAnErrorNotADeath) {
  Waiter();
  int fds[2];
  ASSERT_EQ(pipe(fds), 0);
  close(fds[0]);
  EXPECT_EQ(write(fds[1], "x", 1), -1);
  close(fds[1]);
}

TEST(NotifyTest, TellsTheServiceManager) {
  NotifyReady();  // Without a listener nothing happens.
  // The socket is in the abstract name space, which systemd writes with "@" for the leading zero.
  // Paths of a test directory are too long for a socket.
  const std::string name = "@salius-notify-test-" + std::to_string(getpid());
  const int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  name.copy(address.sun_path, name.size());
  address.sun_path[0] = 0;
  const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + name.size());
  ASSERT_EQ(bind(fd, reinterpret_cast<sockaddr*>(&address), length), 0);
  setenv("NOTIFY_SOCKET", name.c_str(), 1);
  NotifyReady();
  NotifyStopping();
  unsetenv("NOTIFY_SOCKET");
  for (const char* expected : {"READY=1", "STOPPING=1"}) {
    char buffer[256];
    const ssize_t n = recv(fd, buffer, sizeof(buffer), MSG_DONTWAIT);
    ASSERT_GT(n, 0);
    EXPECT_EQ(std::string(buffer, static_cast<size_t>(n)), expected);
  }
  close(fd);
}

TEST(LimitsTest, DescriptorLimitIsRaisedToTheHardOne) {
  rlimit limit;
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
  const rlim_t hard = limit.rlim_max;
  limit.rlim_cur = 64;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
  EXPECT_EQ(RaiseFdLimit().value(), hard);
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
  EXPECT_EQ(limit.rlim_cur, hard);
}

TEST(ProcStatusTest, ReadsSizesAndNamesMissingFields) {
  EXPECT_GT(ProcStatusBytes("VmRSS").value(), 0u);
  EXPECT_EQ(ProcStatusBytes("NoSuchField").status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(ProcStatusBytes("Threads").status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace salius
