// The gate of a direct volume: sync calls return early, outputs wait for records and for the real
// sync that is owed.
#include <functional>
#include <future>
#include <vector>

#include "client/direct/process/direct_gate.h"
#include "client/gate/inside.h"
#include "tests/unit/direct/direct_testing.h"

namespace salius::direct {
namespace {

class DirectGateTest : public ::testing::Test {
 protected:
  void SetUp() override {
    volume_.StartCoordinator();
    PublishReplicated(volume_.window(), 2);
    promises().external.store(1);
    ASSERT_EQ(process_.Adopt(volume_.Descriptors()), 0);
    process_.GrantEarly();
  }
  void TearDown() override { Mute(false); }

  const SharedWindow& window() { return volume_.window(); }
  Promises& promises() { return window().header().promises; }
  DirectGate& gate() { return process_.gate(); }
  void Mute(bool mute) {
    for (size_t i = 0; i < 2; ++i) volume_.replica(i).Mute(mute);
  }
  File OpenCovered(const std::string& name, int* fd) {
    const File file = OpenNew(name, fd);
    EXPECT_EQ(process_.Sync(file, *fd, false), 0);
    EXPECT_EQ(gate().Await(), 0);
    EXPECT_FALSE(gate().Pending());
    return file;
  }
  File OpenNew(const std::string& name, int* fd) {
    *fd = open(volume_.Path(name).c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    const File file = process_.Open(*fd, true);
    EXPECT_TRUE(file.tracked());
    return file;
  }
  void SetPhaseNow(Phase phase) {
    {
      WindowLock lock(window());
      SetPhase(window(), phase);
    }
    WakeAll(window());
  }
  // Begins an output in another thread, and returns when it waits.
  std::future<int> BeginOutput() {
    const uint64_t before = promises().outputs.load();
    std::future<int> output = std::async(std::launch::async, [this] { return gate().Await(); });
    while (promises().outputs.load() == before) std::this_thread::yield();
    return output;
  }
  static bool Waits(std::future<int>& output) {
    return output.wait_for(std::chrono::milliseconds(100)) == std::future_status::timeout;
  }

  TestVolume volume_;
  Process process_;
};

TEST_F(DirectGateTest, SyncReturnsWhileReplicasAreSilentAndOutputWaits) {
  int fd = -1;
  const File file = OpenCovered("a", &fd);
  Mute(true);
  const Seq seq = Write(process_, file, fd, 0, "new");
  EXPECT_EQ(process_.Sync(file, fd, false), 0);
  EXPECT_LT(window().durable(), seq);
  EXPECT_TRUE(gate().Pending());
  std::future<int> output = BeginOutput();
  EXPECT_TRUE(Waits(output));
  Mute(false);
  EXPECT_EQ(output.get(), 0);
  EXPECT_GE(window().durable(), seq);
  EXPECT_FALSE(gate().Pending());
  close(fd);
}

TEST_F(DirectGateTest, SyncOfAnUncoveredFileIsOwedUntilARealSync) {
  int fd = -1;
  volume_.AllowCheckpoints(false);
  const File file = OpenNew("a", &fd);
  EXPECT_EQ(process_.Sync(file, fd, false), 0);
  EXPECT_EQ(promises().owed_syncs.load(), 1u);
  EXPECT_TRUE(gate().Pending());
  std::future<int> output = BeginOutput();
  EXPECT_TRUE(Waits(output));
  // A checkpoint that began before the sync call pays for nothing.
  volume_.Checkpoint();
  EXPECT_EQ(output.get(), 0);
  EXPECT_FALSE(gate().Pending());
  EXPECT_EQ(promises().paid_outputs.load(), 1u);
  close(fd);
}

TEST_F(DirectGateTest, SyncThatBeganBeforeTheCallDoesNotPay) {
  int fd = -1;
  volume_.AllowCheckpoints(false);
  const File file = OpenNew("a", &fd);
  SyncStart start;
  {
    WindowLock lock(window());
    start = BeginSync(window());
  }
  EXPECT_EQ(process_.Sync(file, fd, false), 0);
  {
    WindowLock lock(window());
    EndSync(window(), start.epoch);
  }
  EXPECT_TRUE(gate().Pending());
  close(fd);
}

// No sync call: the data itself, or the name, must be on the disk before an output.
TEST_F(DirectGateTest, ChangeWithoutARecordIsOwed) {
  int fd = -1;
  const File covered = OpenCovered("a", &fd);
  int written_fd = -1, cut_fd = -1;
  const File written = OpenNew("b", &written_fd);
  const File cut = OpenNew("c", &cut_fd);
  volume_.AllowCheckpoints(false);
  const uint64_t owed = promises().owed_epoch.load();
  EXPECT_GT(Write(process_, covered, fd, 0, "data"), 0u);
  process_.Lock(covered);
  EXPECT_GT(process_.LogTruncate(covered, 2), 0u);
  process_.Unlock(covered);
  EXPECT_EQ(promises().owed_epoch.load(), owed) << "a record is enough";
  EXPECT_EQ(gate().Await(), 0);
  const std::vector<std::function<void()>> changes = {
      [&] { EXPECT_EQ(Write(process_, written, written_fd, 0, "data"), 0u); },
      [&] { process_.Changed(); },
      [&] { process_.Uncover(covered, Reason::kAttributes); },
      [&] { gate().Notice(); },
  };
  for (const auto& change : changes) {
    EXPECT_FALSE(gate().Pending());
    change();
    EXPECT_TRUE(gate().Pending());
    volume_.Checkpoint();
    EXPECT_EQ(gate().Await(), 0);
  }
  UncoverFile(window(), cut.index);
  process_.Lock(cut);
  EXPECT_EQ(process_.LogTruncate(cut, 2), 0u);
  process_.Unlock(cut);
  EXPECT_TRUE(gate().Pending());
  EXPECT_EQ(gate().Noticed(), 1u);
  EXPECT_EQ(promises().owed_syncs.load(), 1u) << "there was one sync call";
  close(cut_fd);
  close(written_fd);
  close(fd);
}

TEST_F(DirectGateTest, SyncOfADirectoryIsOwed) {
  const int directory = open(volume_.directory().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  const int outside = open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  EXPECT_FALSE(process_.OweDirectory(outside));
  EXPECT_FALSE(gate().Pending());
  EXPECT_TRUE(process_.OweDirectory(directory));
  EXPECT_EQ(promises().owed_syncs.load(), 1u);
  EXPECT_EQ(gate().Await(), 0);
  EXPECT_FALSE(gate().Pending());
  close(directory);
  close(outside);
}

TEST_F(DirectGateTest, EverySyncIsOwedInModeLocal) {
  int fd = -1;
  const File file = OpenCovered("a", &fd);
  for (const Phase phase : {Phase::kLocal, Phase::kStamping, Phase::kGoingLocal}) {
    SetPhaseNow(phase);
    const uint64_t owed = promises().owed_syncs.load();
    EXPECT_EQ(process_.Sync(file, fd, false), 0);
    EXPECT_EQ(promises().owed_syncs.load(), owed + 1);
    EXPECT_TRUE(gate().Pending());
    EXPECT_EQ(gate().Await(), 0);
  }
  close(fd);
}

TEST_F(DirectGateTest, OwedSyncOfOneProcessIsSeenByAnother) {
  Process other;
  ASSERT_EQ(other.Adopt(volume_.Descriptors()), 0);
  int fd = -1;
  const File file = OpenNew("a", &fd);
  volume_.AllowCheckpoints(false);
  EXPECT_EQ(process_.Sync(file, fd, false), 0);
  EXPECT_TRUE(other.gate().Pending());
  close(fd);
}

TEST_F(DirectGateTest, FailedVolumeFailsSyncsAndOutputs) {
  int fd = -1;
  const File file = OpenCovered("a", &fd);
  Mute(true);
  Write(process_, file, fd, 0, "new");
  EXPECT_EQ(process_.Sync(file, fd, false), 0);
  std::future<int> output = BeginOutput();
  SetPhaseNow(Phase::kFailed);
  EXPECT_EQ(output.get(), EIO);
  EXPECT_EQ(gate().Await(), EIO);
  EXPECT_EQ(process_.Sync(file, fd, false), EIO);
  EXPECT_EQ(promises().refused.load(), 2u);
  close(fd);
}

TEST_F(DirectGateTest, FailedFileFailsItsSync) {
  int fd = -1;
  const File file = OpenCovered("a", &fd);
  window().file(file.index).failed.store(EIO);
  EXPECT_EQ(process_.Sync(file, fd, false), EIO);
  close(fd);
}

TEST_F(DirectGateTest, DeadCoordinatorFailsSyncsAndOutputs) {
  int fd = -1;
  const File file = OpenCovered("a", &fd);
  Mute(true);
  Write(process_, file, fd, 0, "new");
  EXPECT_EQ(process_.Sync(file, fd, false), 0);
  volume_.StopCoordinator();
  EXPECT_EQ(gate().Await(), EIO);
  EXPECT_EQ(process_.Sync(file, fd, false), EIO);
  close(fd);
}

TEST_F(DirectGateTest, SyncWaitsOnceEarlyReturnHasEnded) {
  int fd = -1;
  const File file = OpenCovered("a", &fd);
  gate().EndEarly(gate::kSharedMap);
  const Seq seq = Write(process_, file, fd, 0, "new");
  EXPECT_EQ(process_.Sync(file, fd, false), 0);
  EXPECT_GE(window().durable(), seq);
  const int directory = open(volume_.directory().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  EXPECT_FALSE(process_.OweDirectory(directory));
  close(directory);
  close(fd);
}

TEST_F(DirectGateTest, SyncWaitsWithoutAGrant) {
  Process other;
  promises().external.store(0);
  ASSERT_EQ(other.Adopt(volume_.Descriptors()), 0);
  other.GrantEarly();
  EXPECT_FALSE(other.early());
  int fd = -1;
  const File file = OpenCovered("a", &fd);
  const Seq seq = Write(other, file, fd, 0, "new");
  EXPECT_EQ(other.Sync(file, fd, false), 0);
  EXPECT_GE(window().durable(), seq);
  close(fd);
}

TEST_F(DirectGateTest, RecordsGoAtOnceOrWithTheOutput) {
  int fd = -1;
  const File file = OpenCovered("a", &fd);
  volume_.StopCoordinator();  // it would send them; a thread of this test lives in its place
  ASSERT_NE(TryTakeLock(window().header().life), Taken::kNo);
  promises().lazy.store(1);
  const Seq seq = Write(process_, file, fd, 0, "new");
  EXPECT_EQ(process_.Sync(file, fd, false), 0);
  EXPECT_LT(window().header().sent.load(), seq);
  EXPECT_EQ(gate().Await(), 0);
  EXPECT_GE(window().header().sent.load(), seq);
  promises().lazy.store(0);
  const Seq next = Write(process_, file, fd, 0, "new");
  EXPECT_EQ(process_.Sync(file, fd, false), 0);
  EXPECT_GE(window().header().sent.load(), next);
  // Many of them do not wait for an output.
  EXPECT_EQ(gate().Await(), 0);
  promises().lazy.store(1);
  for (int i = 0; i < 5; ++i) {
    Write(process_, file, fd, 0, std::string(60 << 10, 'x'));
    EXPECT_EQ(process_.Sync(file, fd, false), 0);
  }
  EXPECT_GT(window().header().sent.load(), next);
  GiveLock(window().header().life);
  close(fd);
}

TEST_F(DirectGateTest, TicketOfACoveredFileIsItsLastRecord) {
  int fd = -1;
  const File file = OpenCovered("a", &fd);
  EXPECT_EQ(process_.Ticket(file), 0u);
  Mute(true);
  const Seq seq = Write(process_, file, fd, 0, "new");
  EXPECT_EQ(process_.Sync(file, fd, false), 0);
  const uint64_t ticket = process_.Ticket(file);
  EXPECT_EQ(ticket, seq);
  EXPECT_EQ(process_.AwaitTicket(ticket, 0), ETIMEDOUT);
  EXPECT_EQ(process_.AwaitTicket(ticket, 20'000'000), ETIMEDOUT);
  EXPECT_EQ(process_.AwaitTicket(ticket + 1, 0), EINVAL);
  Mute(false);
  EXPECT_EQ(process_.AwaitTicket(ticket, int64_t{60} * 1'000'000'000), 0);
  EXPECT_GE(window().durable(), seq);
  EXPECT_EQ(process_.AwaitTicket(ticket, -1), 0);
  close(fd);
}

TEST_F(DirectGateTest, TicketOfAnUncoveredFileIsTheNextSync) {
  int fd = -1;
  const File file = OpenNew("a", &fd);
  volume_.AllowCheckpoints(false);
  const uint64_t ticket = process_.Ticket(file);
  EXPECT_NE(ticket, 0u);
  EXPECT_EQ(process_.AwaitTicket(ticket, 0), ETIMEDOUT);
  volume_.AllowCheckpoints(true);
  EXPECT_EQ(process_.AwaitTicket(process_.Ticket({}), -1), 0);
  EXPECT_EQ(process_.AwaitTicket(ticket, -1), 0);
  SetPhaseNow(Phase::kFailed);
  EXPECT_EQ(process_.AwaitTicket(process_.Ticket({}), -1), EIO);
  close(fd);
}

TEST_F(DirectGateTest, SyncNowWaitsUnderExternalSynchrony) {
  int fd = -1;
  const File file = OpenCovered("a", &fd);
  const Seq seq = Write(process_, file, fd, 0, "new");
  EXPECT_EQ(process_.SyncNow(file, fd, false), 0);
  EXPECT_GE(window().durable(), seq);
  const Watermarks marks = process_.Marks();
  EXPECT_LE(marks.checkpoint, marks.durable);
  EXPECT_LE(marks.durable, marks.issued);
  EXPECT_GE(marks.issued, seq);
  close(fd);
}

TEST_F(DirectGateTest, InsideIsRememberedUntilADescriptorIsPassed) {
  EXPECT_FALSE(gate().Inside(13, 4711));
  gate().MakeInside(13, 4711);
  EXPECT_TRUE(gate().Inside(13, 4711));
  EXPECT_FALSE(gate().Inside(14, 4711));
  EXPECT_FALSE(gate().Inside(13, 4712));
  // Too many: the old ones are outside again, the newest is not.
  for (uint64_t inode = 5000; inode < 5000 + 10 * gate::kInsideSlots; ++inode) {
    gate().MakeInside(13, inode);
    ASSERT_TRUE(gate().Inside(13, inode));
  }
  gate().Passed();
  EXPECT_FALSE(gate().Inside(13, 5000 + 10 * gate::kInsideSlots - 1));
}

}  // namespace
}  // namespace salius::direct
