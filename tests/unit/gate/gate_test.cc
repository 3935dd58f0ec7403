// The gate of a mount, both ends in one process: the page, the waits of outputs, and which threads
// are inside. The tests need root: the daemon reads /proc of other processes.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "client/gate/client.h"
#include "client/gate/insiders.h"
#include "client/gate/memory.h"
#include "client/gate/messages.h"
#include "client/gate/rule.h"
#include "client/gate/server.h"
#include "common/check.h"
#include "common/file.h"
#include "common/log.h"

namespace salius::gate {
namespace {

uint32_t Tid() { return static_cast<uint32_t>(::syscall(SYS_gettid)); }

class GateTest : public testing::Test {
 protected:
  void SetUp() override {
    SALIUS_CHECK_OK(InitLogging("gate_test", "error"));
    path_ = absl::StrCat("/tmp/salius-gate-test.", ::getpid());  // a short one
    auto memory = Memory::Make();
    ASSERT_TRUE(memory.ok()) << memory.status();
    memory_ = *std::move(memory);
    auto server = Server::Start(path_, *memory_, insiders_, [this](Seq seq, DurableCallback done) {
      absl::MutexLock lock(&mu_);
      asked_.emplace_back(seq, std::move(done));
    });
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
  }
  void TearDown() override {
    server_.reset();
    Leave(joined_);
  }

  void JoinIt() {
    joined_ = Join(path_.c_str());
    ASSERT_EQ(joined_.error, 0) << joined_.text;
  }
  // Returns the record for which an output waits, when one does; takes its callback.
  std::pair<Seq, DurableCallback> TakeAsked() {
    absl::MutexLock lock(&mu_);
    const auto some = [this]() ABSL_SHARED_LOCKS_REQUIRED(mu_) { return !asked_.empty(); };
    mu_.Await(absl::Condition(&some));
    auto first = std::move(asked_.front());
    asked_.erase(asked_.begin());
    return first;
  }

  std::string path_;
  Insiders insiders_;
  std::unique_ptr<Memory> memory_;
  absl::Mutex mu_;
  std::vector<std::pair<Seq, DurableCallback>> asked_ ABSL_GUARDED_BY(mu_);
  std::unique_ptr<Server> server_;
  Joined joined_;
};

TEST_F(GateTest, PageCannotBeWrittenByOthers) {
  EXPECT_EQ(::mmap(nullptr, kPageBytes, PROT_READ | PROT_WRITE, MAP_SHARED, memory_->fd(), 0),
            MAP_FAILED);
  EXPECT_EQ(errno, EPERM);
  EXPECT_LT(::pwrite(memory_->fd(), "x", 1, 0), 0);
  EXPECT_NE(::ftruncate(memory_->fd(), 0), 0);
}

TEST_F(GateTest, OutputPassesWhenAllIsDurable) {
  JoinIt();
  memory_->page().Store(7, 7);
  EXPECT_TRUE(MayOutput(joined_));
  EXPECT_EQ(AwaitOutput(joined_), 0);
  absl::MutexLock lock(&mu_);
  EXPECT_TRUE(asked_.empty());
}

TEST_F(GateTest, OutputWaitsUntilItsRecordIsDurable) {
  JoinIt();
  memory_->page().Store(7, 3);
  ASSERT_FALSE(MayOutput(joined_));
  std::atomic<bool> made{false};
  std::thread output([&] {
    EXPECT_EQ(AwaitOutput(joined_), 0);
    made = true;
  });
  auto [seq, done] = TakeAsked();
  EXPECT_EQ(seq, 7u);
  EXPECT_FALSE(made);
  memory_->page().Store(9, 6);
  memory_->Wake();  // news of another record
  memory_->page().Store(9, 7);
  EXPECT_FALSE(MayOutput(joined_));  // a later output waits for later records
  std::move(done)(absl::OkStatus());
  output.join();
  EXPECT_TRUE(made);
}

TEST_F(GateTest, OutputFailsWithVolume) {
  JoinIt();
  memory_->page().Store(2, 1);
  std::thread output([&] { EXPECT_EQ(AwaitOutput(joined_), EIO); });
  auto [seq, done] = TakeAsked();
  memory_->page().failed = 1;
  std::move(done)(absl::InternalError("failed"));
  output.join();
}

TEST_F(GateTest, OutputFailsWhenDaemonEnds) {
  JoinIt();
  memory_->page().Store(2, 1);
  std::thread output([&] { EXPECT_EQ(AwaitOutput(joined_), EIO); });
  TakeAsked();
  server_.reset();
  output.join();
}

TEST_F(GateTest, DrainedDaemonLetsOutputPass) {
  JoinIt();
  memory_->page().Store(2, 1);
  std::thread output([&] { EXPECT_EQ(AwaitOutput(joined_), 0); });
  TakeAsked();
  memory_->page().Store(2, 2);
  server_.reset();
  output.join();
}

TEST_F(GateTest, WaitForUnissuedRecordEndsTheConnection) {
  JoinIt();
  memory_->page().Store(2, 1);
  const Await await{3};
  ASSERT_EQ(::send(joined_.connection, &await, sizeof(await), 0), ssize_t{sizeof(await)});
  char byte = 0;
  EXPECT_EQ(::recv(joined_.connection, &byte, 1, 0), 0);
  EXPECT_FALSE(insiders_.Contains(Tid()));
}

TEST_F(GateTest, OtherVersionIsRefused) {
  const UniqueFd fd(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  path_.copy(address.sun_path, sizeof(address.sun_path) - 1);
  ASSERT_EQ(::connect(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  Hello hello;
  hello.version = kGateVersion + 1;
  ASSERT_EQ(::send(fd.get(), &hello, sizeof(hello), 0), ssize_t{sizeof(hello)});
  Welcome welcome;
  ASSERT_EQ(::recv(fd.get(), &welcome, sizeof(welcome), 0), ssize_t{sizeof(welcome)});
  EXPECT_EQ(welcome.error, EPROTO);
  EXPECT_EQ(insiders_.size(), 0u);
}

TEST_F(GateTest, ThreadsOfRegisteredProcessAreInside) {
  EXPECT_FALSE(insiders_.Contains(Tid()));
  JoinIt();
  EXPECT_TRUE(insiders_.Contains(Tid()));
  EXPECT_TRUE(insiders_.Contains(Tid()));  // remembered
  std::thread([&] { EXPECT_TRUE(insiders_.Contains(Tid())); }).join();
  EXPECT_FALSE(insiders_.Contains(0));
  EXPECT_FALSE(insiders_.Contains(1));  // init, or the sandbox's
}

TEST_F(GateTest, EndOfConnectionCountsBeforeDaemonReadsIt) {
  JoinIt();
  ASSERT_TRUE(insiders_.Contains(Tid()));
  Leave(joined_);
  // The server's thread may not have seen it yet.
  EXPECT_FALSE(insiders_.Contains(Tid()));
}

// A child of this process that does `work` and then waits to be killed.
class Child {
 public:
  template <typename Work>
  explicit Child(const Work& work) {
    int ends[2];
    SALIUS_CHECK(::pipe2(ends, 0) == 0);
    pid_ = ::fork();
    if (pid_ == 0) {
      work(ends[1]);
      SALIUS_CHECK(::write(ends[1], "r", 1) == 1);
      while (true) ::pause();
    }
    ::close(ends[1]);
    char ready = 0;
    SALIUS_CHECK(::read(ends[0], &ready, 1) == 1);
    ::close(ends[0]);
  }
  ~Child() { End(); }
  void End() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
    pid_ = 0;
  }
  uint32_t tid() const { return static_cast<uint32_t>(pid_); }

 private:
  pid_t pid_ = 0;
};

TEST_F(GateTest, ChildIsOutsideUntilItJoins) {
  JoinIt();
  Child child([](int) {});
  EXPECT_FALSE(insiders_.Contains(child.tid()));
  Child other([this](int) {
    Leave(joined_);
    joined_ = Join(path_.c_str());
    SALIUS_CHECK(joined_.error == 0);
  });
  EXPECT_TRUE(insiders_.Contains(other.tid()));
  const uint32_t tid = other.tid();
  other.End();
  EXPECT_FALSE(insiders_.Contains(tid));  // its number may be any process's now
  EXPECT_TRUE(insiders_.Contains(Tid()));
}

TEST_F(GateTest, ExecEndsRegistration) {
  Child child([this](int ready) {
    const Joined joined = Join(path_.c_str());
    SALIUS_CHECK(joined.error == 0);
    // As if a child had kept a copy: the connection outlives the exec.
    ::fcntl(joined.connection, F_SETFD, 0);
    ::dup2(ready, STDOUT_FILENO);
    ::execl("/bin/sh", "sh", "-c", "printf r; kill -STOP $$", nullptr);
  });
  EXPECT_EQ(insiders_.size(), 1u);
  EXPECT_FALSE(insiders_.Contains(child.tid()));
}

TEST(GateRuleTest, EarlyReturnIsForGatedCallersWithoutSharedMaps) {
  EXPECT_TRUE(ReturnsEarly(/*inside=*/true, /*mapped=*/false));
  EXPECT_FALSE(ReturnsEarly(true, true));
  EXPECT_FALSE(ReturnsEarly(false, false));
  EXPECT_FALSE(ReturnsEarly(false, true));
}

TEST(ParseTgid, FindsTheProcess) {
  EXPECT_EQ(ParseTgid("Name:\tx\nTgid:\t42\nNgid:\t0\n"), 42);
  EXPECT_EQ(ParseTgid("Name:\tTgid: 7\n"), 0);
  EXPECT_EQ(ParseTgid("Tgid:\tx\n"), 0);
  EXPECT_EQ(ParseTgid("Tgid:\t-3\n"), 0);
  EXPECT_EQ(ParseTgid(""), 0);
}

}  // namespace
}  // namespace salius::gate
