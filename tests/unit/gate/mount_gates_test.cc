// The gates of two mounts, for the processes of one command. The daemons' ends are in this process;
// the test needs root, since they read /proc of other processes.
#include "client/gate/mount_gates.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "client/gate/insiders.h"
#include "client/gate/memory.h"
#include "client/gate/server.h"
#include "common/check.h"
#include "common/file.h"
#include "common/log.h"

namespace salius::gate {
namespace {

constexpr uint64_t kDevice = 77;

// The daemon's end of one mount: what an output waits for becomes durable at once, unless the
// volume fails.
struct Daemon {
  explicit Daemon(std::string at) : path(std::move(at)) {
    auto made = Memory::Make();
    SALIUS_CHECK(made.ok());
    memory = *std::move(made);
    auto started = Server::Start(path, *memory, insiders, [this](Seq seq, DurableCallback done) {
      if (fails) {
        memory->page().failed = 1;
      } else {
        memory->page().Store(memory->page().issued, seq);
      }
      std::move(done)(absl::OkStatus());
    });
    SALIUS_CHECK(started.ok());
    server = *std::move(started);
  }
  std::string path;
  bool fails = false;
  Insiders insiders;
  std::unique_ptr<Memory> memory;
  std::unique_ptr<Server> server;
};

class MountGatesTest : public testing::Test {
 protected:
  void SetUp() override {
    SALIUS_CHECK_OK(InitLogging("mount_gates_test", "error"));
    shared_fd_.Reset(::memfd_create("shared", MFD_CLOEXEC));
    ASSERT_TRUE(shared_fd_.valid());
    ASSERT_EQ(::ftruncate(shared_fd_.get(), sizeof(Shared)), 0);
    void* const at = ::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED,
                            shared_fd_.get(), 0);
    ASSERT_NE(at, MAP_FAILED);
    shared_ = static_cast<Shared*>(at);
    shared_->magic = kSharedMagic;
    shared_->count = 2;
    shared_->session = 9;
    for (size_t i = 0; i < 2; ++i) {
      daemons_[i] =
          std::make_unique<Daemon>(absl::StrCat("/tmp/salius-gates.", ::getpid(), ".", i));
      shared_->mounts[i].device = kDevice + i;
      std::strcpy(shared_->mounts[i].gate, daemons_[i]->path.c_str());
    }
  }
  void TearDown() override { ::munmap(shared_, sizeof(Shared)); }
  Memory& memory(size_t mount) { return *daemons_[mount]->memory; }
  static uint32_t Tid() { return static_cast<uint32_t>(::syscall(SYS_gettid)); }

  UniqueFd shared_fd_;
  Shared* shared_ = nullptr;
  std::unique_ptr<Daemon> daemons_[2];
  MountGates gates_;
};

TEST_F(MountGatesTest, OutputWaitsForEachMount) {
  ASSERT_EQ(gates_.Attach(shared_fd_.get()), 0);
  EXPECT_FALSE(gates_.Pending());
  for (size_t i = 0; i < 2; ++i) {
    memory(i).page().Store(5, 3);
    EXPECT_TRUE(gates_.Pending());
    EXPECT_EQ(gates_.Await(), 0);
    EXPECT_FALSE(gates_.Pending());
    EXPECT_EQ(memory(i).page().durable, 5u);
  }
  EXPECT_TRUE(gates_.IsMount(kDevice));
  EXPECT_TRUE(gates_.IsMount(kDevice + 1));
  EXPECT_FALSE(gates_.IsMount(kDevice + 2));
}

TEST_F(MountGatesTest, OutputFailsWithOneOfTheVolumes) {
  ASSERT_EQ(gates_.Attach(shared_fd_.get()), 0);
  daemons_[0]->fails = true;
  memory(0).page().Store(2, 1);
  EXPECT_EQ(gates_.Await(), EIO);
  EXPECT_TRUE(gates_.Pending());
}

TEST_F(MountGatesTest, ChildRegistersItself) {
  ASSERT_EQ(gates_.Attach(shared_fd_.get()), 0);
  int ready[2], end[2];
  ASSERT_EQ(::pipe(ready), 0);
  ASSERT_EQ(::pipe(end), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    ::close(end[1]);
    char byte = 0;
    SALIUS_CHECK(::write(ready[1], "o", 1) == 1 && ::read(end[0], &byte, 1) == 1);
    gates_.AfterFork();
    SALIUS_CHECK(::write(ready[1], "i", 1) == 1);
    static_cast<void>(!::read(end[0], &byte, 1));
    ::_exit(0);
  }
  const auto tid = static_cast<uint32_t>(child);
  char byte = 0;
  ASSERT_EQ(::read(ready[0], &byte, 1), 1);
  for (const auto& daemon : daemons_) EXPECT_FALSE(daemon->insiders.Contains(tid));
  ASSERT_EQ(::write(end[1], "g", 1), 1);
  ASSERT_EQ(::read(ready[0], &byte, 1), 1);
  for (const auto& daemon : daemons_) {
    EXPECT_TRUE(daemon->insiders.Contains(tid));
    EXPECT_TRUE(daemon->insiders.Contains(Tid()));
  }
  ::close(end[1]);
  ASSERT_EQ(::waitpid(child, nullptr, 0), child);
}

TEST_F(MountGatesTest, InsideIsShared) {
  MountGates other;
  ASSERT_EQ(gates_.Attach(shared_fd_.get()), 0);
  ASSERT_EQ(other.Attach(shared_fd_.get()), 0);
  gates_.MakeInside(13, 4711);
  EXPECT_TRUE(other.Inside(13, 4711));
  EXPECT_FALSE(other.Inside(13, 4712));
  other.Passed();
  EXPECT_FALSE(gates_.Inside(13, 4711));
}

TEST_F(MountGatesTest, EndOfEarlyReturnPutsAllProcessesOutside) {
  MountGates other;
  ASSERT_EQ(gates_.Attach(shared_fd_.get()), 0);
  EXPECT_TRUE(gates_.Early());
  EXPECT_TRUE(daemons_[0]->insiders.Contains(Tid()));
  ASSERT_EQ(other.Attach(shared_fd_.get()), 0);
  other.EndEarly(kSharedMap);
  EXPECT_FALSE(gates_.Early());
  for (const auto& daemon : daemons_) EXPECT_FALSE(daemon->insiders.Contains(Tid()));
  // A program that the command starts later, too. It still waits at the gate.
  MountGates later;
  ASSERT_EQ(later.Attach(shared_fd_.get()), 0);
  EXPECT_FALSE(daemons_[0]->insiders.Contains(Tid()));
  memory(0).page().Store(5, 3);
  EXPECT_EQ(later.Await(), 0);
  // Another command is not concerned.
  shared_->session = 10;
  MountGates command;
  ASSERT_EQ(command.Attach(shared_fd_.get()), 0);
  EXPECT_TRUE(daemons_[0]->insiders.Contains(Tid()));
}

TEST_F(MountGatesTest, RegistersAtTheSameDaemonsOnly) {
  ASSERT_EQ(gates_.Attach(shared_fd_.get()), 0);
  // Another daemon serves the volume from now on.
  daemons_[1]->server.reset();
  daemons_[1] = std::make_unique<Daemon>(daemons_[1]->path);
  MountGates later;
  EXPECT_EQ(later.Attach(shared_fd_.get()), ESTALE);
  EXPECT_FALSE(daemons_[1]->insiders.Contains(Tid()));
}

TEST_F(MountGatesTest, ClosedConnectionIsLeftToTheSupervisor) {
  MountGates program;
  ASSERT_EQ(gates_.Attach(shared_fd_.get()), 0);
  ASSERT_EQ(program.Attach(shared_fd_.get()), 0);
  int own = -1;
  for (int fd = 3; fd < 1 << 21 && own < 0; ++fd) {
    if (program.Owns(fd)) own = fd;
  }
  ASSERT_GE(own, 0);
  memory(0).page().Store(5, 3);
  memory(1).page().Store(5, 3);
  // The program has another socket at that number, which gets nothing of ours.
  int ends[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends), 0);
  ASSERT_EQ(::dup2(ends[0], own), own);
  EXPECT_EQ(program.Await(), ENOTCONN);
  EXPECT_TRUE(program.Pending());
  EXPECT_FALSE(program.EndEarly(kLentPages));
  char byte = 0;
  EXPECT_EQ(::recv(ends[1], &byte, 1, MSG_DONTWAIT), -1);
  EXPECT_TRUE(gates_.EndEarly(kLentPages));
  EXPECT_EQ(gates_.Await(), 0);
  for (const int fd : {ends[0], ends[1], own}) ::close(fd);
}

TEST_F(MountGatesTest, EndOfEarlyReturnNeedsNoDaemonThatHasEnded) {
  MountGates program;
  ASSERT_EQ(gates_.Attach(shared_fd_.get()), 0);
  ASSERT_EQ(program.Attach(shared_fd_.get()), 0);
  daemons_[1]->server.reset();
  // Only the first process knows that its connection ends with the daemon.
  EXPECT_FALSE(program.EndEarly(kLentPages));
  EXPECT_TRUE(gates_.EndEarly(kLentPages));
  EXPECT_FALSE(daemons_[0]->insiders.Contains(Tid()));
}

TEST_F(MountGatesTest, RefusedWithoutOneOfTheGates) {
  daemons_[1]->server.reset();
  EXPECT_EQ(gates_.Attach(shared_fd_.get()), ENOENT);
  EXPECT_FALSE(daemons_[0]->insiders.Contains(Tid()));
  EXPECT_FALSE(gates_.IsMount(kDevice));
  shared_->magic = 1;
  EXPECT_EQ(gates_.Attach(shared_fd_.get()), EPROTO);
}

}  // namespace
}  // namespace salius::gate
