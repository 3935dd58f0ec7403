// Processes of a direct volume killed at any instruction of a write and its sync. The others go on,
// holes are filled, `durable` advances, nothing hangs, and every acknowledged write is held by the
// replicas or on the disk.
#include <sys/ptrace.h>

#include <chrono>
#include <random>

#include "tests/unit/direct/direct_testing.h"

namespace salius::direct {
namespace {

constexpr int kAttempts = 40;

class DirectKillTest : public ::testing::Test {
 protected:
  void SetUp() override {
    volume_.StartCoordinator();
    PublishReplicated(window(), 2);
    ASSERT_EQ(process_.Adopt(volume_.Descriptors()), 0);
    fd_ = open(volume_.Path("a").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    file_ = process_.Open(fd_, true);
    ASSERT_EQ(process_.Sync(file_, fd_, false), 0);
  }
  void TearDown() override { close(fd_); }
  const SharedWindow& window() const { return volume_.window(); }

  // Checks that this process can write and sync, and that every record is complete and durable.
  // Where the log was full, it waits until the coordinator has made room.
  void ExpectProgress(const std::string& text) {
    Write(process_, file_, fd_, 0, text);
    ASSERT_EQ(process_.Sync(file_, fd_, true), 0);
    const std::atomic<uint64_t>& full =
        window().header().counters.reasons[static_cast<size_t>(Reason::kFull)];
    const auto end = std::chrono::steady_clock::now() + std::chrono::minutes(1);
    Seq seq = 0;
    for (bool again = true; again;) {
      const uint64_t before = full;
      seq = Write(process_, file_, fd_, 0, text);
      ASSERT_EQ(process_.Sync(file_, fd_, true), 0);
      again = seq == 0 && full > before && std::chrono::steady_clock::now() < end;
    }
    ASSERT_GT(seq, 0u) << "the file is covered again";
    EXPECT_EQ(window().durable(), window().window().issued());
    EXPECT_EQ(volume_.replica(0).Record(seq).substr(kRecordHeaderBytes), text);
  }

  void KillAtAnyInstructionOfAWriteAndItsSync(int attempts);
  void KillManyWritersAtRandomTimes();

  TestVolume volume_;
  Process process_;
  int fd_ = -1;
  File file_;
};

TEST_F(DirectKillTest, OwnerOfTheWindowLock) {
  Join(Fork([&] {
    TakeLock(window().header().window_lock);
    raise(SIGKILL);
  }));
  ExpectProgress("after the window lock");
  EXPECT_EQ(window().header().counters.dead_owners.load(), 1u);
}

TEST_F(DirectKillTest, BetweenReserveAndReady) {
  Join(Fork([&] {
    process_.Lock(file_);
    Draft draft;
    draft.file = file_.index;
    draft.body_bytes = 5000;
    {
      WindowLock lock(window());
      Reserve(window(), draft, MonotonicNs(), RealtimeNs());
    }
    raise(SIGKILL);
  }));
  ExpectProgress("after the hole");
  EXPECT_EQ(window().header().counters.voids.load(), 1u);
}

TEST_F(DirectKillTest, UnfilledHoleHoldsUpTheOthers) {
  volume_.AllowHoles(false);
  Join(Fork([&] {
    process_.Lock(file_);
    Draft draft;
    draft.file = file_.index;
    WindowLock lock(window());
    Reserve(window(), draft, MonotonicNs(), RealtimeNs());
    raise(SIGKILL);
  }));
  const int other_fd = open(volume_.Path("b").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  const File other = process_.Open(other_fd, true);
  ASSERT_EQ(process_.Sync(other, other_fd, false), 0);
  ASSERT_GT(Write(process_, other, other_fd, 0, "x"), 0u);
  std::atomic<bool> done{false};
  std::thread waits([&] {
    EXPECT_EQ(process_.Sync(other, other_fd, true), 0);
    done = true;
  });
  usleep(30000);
  EXPECT_FALSE(done);
  volume_.AllowHoles(true);
  waits.join();
  close(other_fd);
}

TEST_F(DirectKillTest, BetweenClaimAndSend) {
  Join(Fork([&] {
    Write(process_, file_, fd_, 0, "claimed, not sent");
    WindowLock lock(window());
    Claim(window(), MonotonicNs());
    raise(SIGKILL);
  }));
  EXPECT_GT(window().header().sent.load(), window().durable());
  ExpectProgress("after the claim");
}

TEST_F(DirectKillTest, AsLeader) {
  volume_.replica(0).Mute(true);
  const pid_t child = Fork([&] {
    Write(process_, file_, fd_, 0, "never acknowledged");
    process_.Sync(file_, fd_, true);
  });
  while (window().header().leader.load() == 0) usleep(100);
  kill(child, SIGKILL);
  Join(child);
  volume_.replica(0).Mute(false);
  ExpectProgress("after the leader");
}

TEST_F(DirectKillTest, StoppedLeaderIsReplaced) {
  volume_.replica(0).Mute(true);
  const pid_t child = Fork([&] {
    Write(process_, file_, fd_, 0, "x");
    process_.Sync(file_, fd_, true);
  });
  while (window().header().leader.load() == 0) usleep(100);
  kill(child, SIGSTOP);
  // Stopped while it held the window lock, it would stop all; so wait until it holds none.
  while (TryTakeLock(window().header().window_lock) == Taken::kNo) {
    kill(child, SIGCONT);
    usleep(100);
    kill(child, SIGSTOP);
    usleep(1000);
  }
  GiveLock(window().header().window_lock);
  volume_.replica(0).Mute(false);
  ExpectProgress("beside a stopped leader");
  kill(child, SIGKILL);
  Join(child);
}

// Steps a child through `body`, calls `look` after each instruction, and kills the child after
// `instructions` of them. Returns the number of instructions that it did; fewer when it ended before.
template <typename Body, typename Look>
int64_t StepAndKill(int64_t instructions, Body body, Look look) {
  const pid_t child = Fork([&] {
    ptrace(PTRACE_TRACEME, 0, nullptr, nullptr);
    raise(SIGSTOP);
    body();
  });
  int status = 0;
  waitpid(child, &status, 0);
  int64_t done = 0;
  for (; done < instructions && WIFSTOPPED(status); ++done) {
    ptrace(PTRACE_SINGLESTEP, child, nullptr, nullptr);
    waitpid(child, &status, 0);
    look();
  }
  if (!WIFSTOPPED(status)) return done;
  kill(child, SIGKILL);
  waitpid(child, &status, 0);
  return done;
}
template <typename Body>
int64_t StepAndKill(int64_t instructions, Body body) {
  return StepAndKill(instructions, body, [] {});
}

// A real sync after a kill looks at the file's last record, to keep it from being replayed over
// newer data (I3).
TEST_F(DirectKillTest, CompleteRecordIsKnownToItsFileAtEachInstruction) {
  const Seq before = window().window().issued();
  int64_t complete = 0, unknown = 0;
  StepAndKill(
      1'000'000, [&] { Write(process_, file_, fd_, 0, "by the child"); },
      [&] {
        const Seq last = window().window().issued();
        if (last == before || window().record(last).ready.load() == 0) return;
        ++complete;
        if (window().file(file_.index).last_seq.load() < last) ++unknown;
      });
  EXPECT_EQ(window().window().issued(), before + 1);
  EXPECT_GT(complete, 0);
  EXPECT_EQ(unknown, 0);
}

void DirectKillTest::KillAtAnyInstructionOfAWriteAndItsSync(int attempts) {
  std::mt19937_64 random(1);
  const auto body = [&] {
    Write(process_, file_, fd_, 100, "by the child");
    process_.Sync(file_, fd_, true);
  };
  const int64_t all = StepAndKill(1'000'000, body);
  ASSERT_GT(all, 1000) << "ptrace(2) works";
  for (int i = 0; i < attempts; ++i) {
    const auto at = static_cast<int64_t>(random() % static_cast<uint64_t>(all));
    SCOPED_TRACE("killed after " + std::to_string(at) + " instructions");
    StepAndKill(at, body);
    ExpectProgress("attempt " + std::to_string(i));
    if (HasFatalFailure()) return;
  }
}

TEST_F(DirectKillTest, AtAnyInstructionOfAWriteAndItsSync) {
  KillAtAnyInstructionOfAWriteAndItsSync(kAttempts);
}

TEST_F(DirectKillTest, AtAnyInstructionOfARealSync) {
  std::mt19937_64 random(2);
  const auto body = [&] {
    process_.Uncover(file_, Reason::kCopy);
    process_.Sync(file_, fd_, true);
  };
  const int64_t all = StepAndKill(1'000'000, body);
  for (int i = 0; i < kAttempts; ++i) {
    Write(process_, file_, fd_, 0, "an older record");
    StepAndKill(static_cast<int64_t>(random() % static_cast<uint64_t>(all)), body);
    ExpectProgress("attempt " + std::to_string(i));
    if (HasFatalFailure()) return;
  }
}

TEST_F(DirectKillTest, AtAnyInstructionOfAnOpen) {
  std::mt19937_64 random(3);
  for (int i = 0; i < kAttempts; ++i) {
    const std::string path = volume_.Path("new" + std::to_string(i));
    const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    StepAndKill(static_cast<int64_t>(random() % 3000), [&] { process_.Open(fd, true); });
    const File file = process_.Open(fd, true);
    ASSERT_TRUE(file.tracked());
    EXPECT_EQ(Write(process_, file, fd, 0, "x"), 0u) << "new, so it is uncovered";
    ASSERT_EQ(process_.Sync(file, fd, false), 0);
    EXPECT_GT(Write(process_, file, fd, 0, "x"), 0u);
    close(fd);
  }
}

// Writers in processes of their own, which count the writes that were acknowledged in shared memory.
struct Board {
  std::atomic<uint64_t> acknowledged[8];
};

void DirectKillTest::KillManyWritersAtRandomTimes() {
  auto* const board = static_cast<Board*>(
      mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  std::mt19937_64 random(4);
  const auto writer = [&](int slot) {
    return Fork([this, board, slot] {
      Process own;
      if (own.Adopt(volume_.Descriptors()) != 0) _exit(1);
      // Two writers to each file.
      const std::string path = volume_.Path("w" + std::to_string(slot / 2));
      const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
      const File file = own.Open(fd, true);
      for (uint64_t n = board->acknowledged[slot] + 1;; ++n) {
        std::string text(64, '\0');
        std::memcpy(text.data(), &n, sizeof(n));
        Write(own, file, fd, static_cast<uint64_t>(slot) * 64, text);
        if (own.Sync(file, fd, true) != 0) _exit(2);
        board->acknowledged[slot] = n;
      }
    });
  };
  pid_t pids[8];
  for (int slot = 0; slot < 8; ++slot) pids[slot] = writer(slot);
  for (int i = 0; i < 150; ++i) {
    usleep(static_cast<useconds_t>(random() % 4000));
    const int slot = static_cast<int>(random() % 8);
    kill(pids[slot], SIGKILL);
    const int status = Join(pids[slot]);
    EXPECT_TRUE(WIFSIGNALED(status)) << "a writer ended with " << WEXITSTATUS(status);
    pids[slot] = writer(slot);
  }
  // All of them still get on.
  std::vector<uint64_t> before(8);
  for (int slot = 0; slot < 8; ++slot) before[slot] = board->acknowledged[slot];
  for (int slot = 0; slot < 8; ++slot) {
    for (int i = 0; i < 20000 && board->acknowledged[slot] <= before[slot]; ++i) usleep(1000);
    EXPECT_GT(board->acknowledged[slot], before[slot]) << "writer " << slot;
  }
  for (const pid_t pid : pids) {
    kill(pid, SIGKILL);
    Join(pid);
  }
  ExpectProgress("after all");
  for (int slot = 0; slot < 8; ++slot) {
    EXPECT_GT(board->acknowledged[slot], 0u);
    const int fd = open(volume_.Path("w" + std::to_string(slot / 2)).c_str(), O_RDONLY);
    uint64_t last = 0;
    EXPECT_EQ(pread(fd, &last, sizeof(last), slot * 64), static_cast<ssize_t>(sizeof(last)));
    EXPECT_GE(last, board->acknowledged[slot]);
    close(fd);
  }
  munmap(board, sizeof(Board));
}

TEST_F(DirectKillTest, ManyWritersKilledAtRandomTimes) { KillManyWritersAtRandomTimes(); }

// The same in a sealed session: what a killed process leaves hinders no other, and no datagram has
// the nonce of another.
class SealedKillTest : public DirectKillTest {
 protected:
  void SetUp() override {
    volume_.Seal();
    DirectKillTest::SetUp();
  }
  void ExpectGoodDatagrams() {
    for (size_t i = 0; i < 2; ++i) {
      EXPECT_EQ(volume_.replica(i).unopened(), 0u);
      EXPECT_EQ(volume_.replica(i).nonces_again(), 0u);
    }
    for (const std::atomic<uint64_t>& refused : window().header().seal.refused) {
      EXPECT_EQ(refused.load(), 0u);
    }
  }
};

TEST_F(SealedKillTest, AtAnyInstructionOfAWriteAndItsSync) {
  // A step through the sealing takes long under a sanitizer.
  KillAtAnyInstructionOfAWriteAndItsSync(kAttempts / 4);
  ExpectGoodDatagrams();
}

TEST_F(SealedKillTest, ManyWritersKilledAtRandomTimes) {
  KillManyWritersAtRandomTimes();
  ExpectGoodDatagrams();
}

}  // namespace
}  // namespace salius::direct
