// One process and several on a direct volume: sync by phase, covered and uncovered files, real
// fsync(2) and its record, room, ids.
#include <linux/capability.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "storage/direct_id.h"
#include "tests/unit/direct/direct_testing.h"

namespace salius::direct {
namespace {

class DirectProcessTest : public ::testing::Test {
 protected:
  void SetUp() override {
    volume_.StartCoordinator();
    PublishReplicated(volume_.window(), 2);
    ASSERT_EQ(process_.Adopt(volume_.Descriptors()), 0);
  }
  // Opens a file and makes it covered.
  File OpenCovered(const std::string& name, int* fd) {
    *fd = open(volume_.Path(name).c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    const File file = process_.Open(*fd, true);
    EXPECT_TRUE(file.tracked());
    EXPECT_EQ(process_.Sync(file, *fd, false), 0);
    EXPECT_TRUE(Covered(file));
    return file;
  }
  bool Covered(File file) {
    const FileEntry& entry = window().file(file.index);
    return IsCovered(window(), entry, entry.uncovered.load());
  }
  const SharedWindow& window() { return volume_.window(); }
  void SetPhaseNow(Phase phase) {
    {
      WindowLock lock(window());
      SetPhase(window(), phase);
    }
    WakeAll(window());
  }
  // Returns whether there is room for a record without a body.
  bool HasSmallRoom() {
    WindowLock lock(window());
    const Window& slots = window().window();
    return slots.bytes() + 2 * kRecordHeaderBytes <= window().header().ring_bytes;
  }
  uint64_t RealSyncs() { return window().header().counters.real_syncs.load(); }
  RecordHeader HeaderOf(Seq seq) {
    const std::string record = volume_.replica(0).Record(seq);
    const auto* bytes = reinterpret_cast<const uint8_t*>(record.data());
    const auto header = DecodeRecord(absl::Span<const uint8_t>(bytes, record.size()));
    EXPECT_TRUE(header.ok()) << seq;
    return header.ok() ? *header : RecordHeader{};
  }

  TestVolume volume_;
  Process process_;
};

TEST_F(DirectProcessTest, FirstSyncIsRealAndLaterOnesAreReplicated) {
  int fd = -1;
  const File file = OpenCovered("a", &fd);
  EXPECT_EQ(RealSyncs(), 1u);
  const Seq seq = Write(process_, file, fd, 4096, std::string(5000, 'x'));
  ASSERT_GT(seq, 0u);
  EXPECT_EQ(process_.Sync(file, fd, true), 0);
  EXPECT_EQ(RealSyncs(), 1u);
  EXPECT_GE(window().durable(), seq);
  for (int i = 0; i < 2; ++i) {
    const std::string record = volume_.replica(i).Record(seq);
    ASSERT_EQ(record.size(), kRecordHeaderBytes + 5000);
    EXPECT_EQ(record.substr(kRecordHeaderBytes), std::string(5000, 'x'));
  }
  EXPECT_EQ(HeaderOf(seq).op, Op::kWrite);
  EXPECT_EQ(HeaderOf(seq).arg0, 4096u);
  EXPECT_EQ(HeaderOf(seq).file_id, 100u);
  close(fd);
}

TEST_F(DirectProcessTest, LargeWriteIsSplitIntoRecordsAndFragments) {
  int fd = -1;
  const File file = OpenCovered("a", &fd);
  std::string text(300'000, '\0');
  for (size_t i = 0; i < text.size(); ++i) text[i] = static_cast<char>(i * 7 + i / 1000);
  const Seq seq = Write(process_, file, fd, 10, text);
  ASSERT_EQ(seq, 3u);
  ASSERT_EQ(process_.Sync(file, fd, true), 0);
  std::string logged;
  for (Seq s = 1; s <= 3; ++s) {
    EXPECT_EQ(HeaderOf(s).arg0, 10 + logged.size());
    logged += volume_.replica(1).Record(s).substr(kRecordHeaderBytes);
  }
  EXPECT_EQ(logged, text);
  close(fd);
}

TEST_F(DirectProcessTest, TruncationIsLogged) {
  int fd = -1;
  const File file = OpenCovered("a", &fd);
  process_.Lock(file);
  const Seq seq = process_.LogTruncate(file, 123);
  process_.Unlock(file);
  ASSERT_EQ(process_.Sync(file, fd, false), 0);
  EXPECT_EQ(HeaderOf(seq).op, Op::kTruncate);
  EXPECT_EQ(HeaderOf(seq).arg0, 123u);
  close(fd);
}

TEST_F(DirectProcessTest, RealSyncOfALoggedFileIsFollowedByItsRecord) {
  int fd = -1;
  const File file = OpenCovered("a", &fd);
  const Seq write = Write(process_, file, fd, 0, "logged");
  process_.Uncover(file, Reason::kAllocate);
  EXPECT_EQ(process_.Sync(file, fd, true), 0);
  EXPECT_TRUE(Covered(file));
  const Seq record = window().window().issued();
  ASSERT_EQ(record, write + 1);
  EXPECT_GE(window().durable(), record);
  EXPECT_EQ(HeaderOf(record).op, Op::kOnDisk);
  EXPECT_EQ(HeaderOf(record).arg0, write);
  EXPECT_EQ(window().header().counters.reasons[static_cast<int>(Reason::kAllocate)].load(), 1u);
  close(fd);
}

// As after a dup2(2) by another thread.
TEST_F(DirectProcessTest, RealSyncOfAnotherFilesDescriptorMakesNoRecord) {
  int fd = -1, other = -1;
  const File file = OpenCovered("a", &fd);
  OpenCovered("b", &other);
  const Seq write = Write(process_, file, fd, 0, "logged");
  process_.Uncover(file, Reason::kAllocate);
  EXPECT_EQ(process_.Sync(file, other, true), 0);
  EXPECT_EQ(window().window().issued(), write);
  // A checkpoint has made the file durable.
  EXPECT_GE(window().window().checkpoint(), write);
  EXPECT_TRUE(Covered(file));
  close(fd);
  close(other);
}

TEST_F(DirectProcessTest, CoveredFileWaitsForTheRecordOfAnothersRealSync) {
  int fd = -1;
  const File file = OpenCovered("a", &fd);
  Write(process_, file, fd, 0, "logged and durable");
  ASSERT_EQ(process_.Sync(file, fd, true), 0);
  process_.Uncover(file, Reason::kAllocate);
  volume_.replica(0).Mute(true);
  std::atomic<bool> first_done{false}, second_done{false};
  std::thread first([&] {
    EXPECT_EQ(process_.Sync(file, fd, true), 0);
    first_done = true;
  });
  while (!Covered(file)) usleep(100);
  std::thread second([&] {
    EXPECT_EQ(process_.Sync(file, fd, true), 0);
    second_done = true;
  });
  usleep(20000);
  EXPECT_FALSE(first_done);
  EXPECT_FALSE(second_done);
  volume_.replica(0).Mute(false);
  first.join();
  second.join();
  close(fd);
}

TEST_F(DirectProcessTest, UncoveringDuringARealSyncStays) {
  int fd = -1;
  const File file = OpenCovered("a", &fd);
  Write(process_, file, fd, 0, "logged");
  process_.Uncover(file, Reason::kAllocate);
  FileEntry& entry = window().file(file.index);
  const uint64_t word = entry.uncovered.load();
  const uint32_t reasons = entry.reasons.load();
  process_.Uncover(file, Reason::kName);  // while the fsync(2) is under way
  StripeLock lock(window(), file.index);
  EXPECT_FALSE(CoverFile(window(), file.index, word, reasons));
  EXPECT_FALSE(Covered(file));
  EXPECT_NE(entry.reasons.load() & 1u << static_cast<int>(Reason::kName), 0u);
  EXPECT_TRUE(CoverFile(window(), file.index, entry.uncovered.load(), entry.reasons.load()));
  EXPECT_TRUE(Covered(file));
  EXPECT_EQ(entry.reasons.load(), 0u);
  // Another uncovering in the same epoch gives another word.
  process_.Uncover(file, Reason::kCopy);
  EXPECT_NE(entry.uncovered.load(), word);
  close(fd);
}

TEST_F(DirectProcessTest, WritesDuringARealSyncAreLogged) {
  int fd = -1;
  const File file = OpenCovered("a", &fd);
  process_.Uncover(file, Reason::kAllocate);
  EXPECT_EQ(Write(process_, file, fd, 0, "not logged"), 0u);
  FileEntry& entry = window().file(file.index);
  entry.syncing.store(entry.uncovered.load());
  EXPECT_GT(Write(process_, file, fd, 0, "logged"), 0u);
  EXPECT_FALSE(Covered(file));
  close(fd);
}

TEST_F(DirectProcessTest, BulkWriteGoesPastTheLogUntilTheNextSync) {
  int fd = -1;
  const File file = OpenCovered("a", &fd);
  const std::string text(700'000, 'b');
  EXPECT_GT(Write(process_, file, fd, 0, text), 0u);
  EXPECT_EQ(Write(process_, file, fd, 700'000, text), 0u);
  EXPECT_FALSE(Covered(file));
  EXPECT_EQ(Write(process_, file, fd, 0, "small"), 0u);
  EXPECT_EQ(process_.Sync(file, fd, false), 0);
  EXPECT_TRUE(Covered(file));
  EXPECT_GT(Write(process_, file, fd, 0, "small"), 0u);
  close(fd);
}

TEST_F(DirectProcessTest, MapStaysUncovered) {
  int fd = -1;
  const File file = OpenCovered("a", &fd);
  process_.Uncover(file, Reason::kMap);
  EXPECT_EQ(process_.Sync(file, fd, false), 0);
  EXPECT_FALSE(Covered(file));
  volume_.Checkpoint();
  EXPECT_FALSE(Covered(file));
  close(fd);
}

TEST_F(DirectProcessTest, AwaitRoomWaitsForACheckpointSoThatEveryWriteIsLogged) {
  int fd = -1;
  const File file = OpenCovered("a", &fd);
  const std::string text(100'000, 'r');
  for (int i = 0; i < 40; ++i) {  // four times the ring
    // On a busy machine a checkpoint may take longer than the wait. Then the test waits again.
    int64_t waited = 0;
    do {
      const int64_t start = MonotonicNs();
      process_.AwaitRoom(file, text.size());
      waited = MonotonicNs() - start;
    } while (waited >= Files::kLongestRoomWaitNs);
    ASSERT_GT(Write(process_, file, fd, 0, text), 0u) << i;
    ASSERT_EQ(process_.Sync(file, fd, true), 0);
  }
  EXPECT_EQ(RealSyncs(), 1u);  // the first
  EXPECT_EQ(window().header().counters.reasons[static_cast<int>(Reason::kFull)].load(), 0u);
  close(fd);
}

TEST_F(DirectProcessTest, AwaitRoomEndsWithoutACheckpoint) {
  int full_fd = -1, fd = -1;
  const File full = OpenCovered("full", &full_fd), file = OpenCovered("file", &fd);
  volume_.AllowCheckpoints(false);
  const std::string text(100'000, 'r');
  while (Write(process_, full, full_fd, 0, text) > 0) {
    window().file(full.index).unsynced.store(0);
  }
  // The next write of this file is not logged: there is nothing to wait for.
  int64_t begun = MonotonicNs();
  for (int i = 0; i < 100; ++i) process_.AwaitRoom(full, text.size());
  EXPECT_LT(MonotonicNs() - begun, 100 * Files::kLongestRoomWaitNs);
  begun = MonotonicNs();
  process_.AwaitRoom(file, text.size());
  EXPECT_GE(MonotonicNs() - begun, Files::kLongestRoomWaitNs);
  EXPECT_EQ(Write(process_, file, fd, 0, text), 0u);
  volume_.AllowCheckpoints(true);
  EXPECT_EQ(process_.Sync(file, fd, true), 0);
  close(fd);
  close(full_fd);
}

TEST_F(DirectProcessTest, NoRoomMakesUncoveredAndNeverBlocks) {
  int fd = -1;
  const File file = OpenCovered("a", &fd);
  volume_.AllowCheckpoints(false);
  const std::string text(100'000, 'r');
  int logged = 0;
  for (int i = 0; i < 20; ++i) {
    if (Write(process_, file, fd, 0, text) > 0) ++logged;
    window().file(file.index).unsynced.store(0);
  }
  EXPECT_GE(logged, 9);
  EXPECT_LT(logged, 11);
  EXPECT_FALSE(Covered(file));
  // The record of the real sync has no room either: the sync waits for a checkpoint.
  std::atomic<bool> done{false};
  std::thread waits([&] {
    EXPECT_EQ(process_.Sync(file, fd, false), 0);
    done = true;
  });
  if (HasSmallRoom()) {
    waits.join();
  } else {
    usleep(20000);
    EXPECT_FALSE(done);
    volume_.AllowCheckpoints(true);
    Kick(window(), kTroubleCheckpoint);
    waits.join();
  }
  volume_.AllowCheckpoints(true);
  volume_.Checkpoint();
  EXPECT_EQ(process_.Sync(file, fd, false), 0);
  EXPECT_GT(Write(process_, file, fd, 0, text), 0u);
  close(fd);
}

TEST_F(DirectProcessTest, CheckpointClearsOnlyWhatWasUncoveredBeforeItsSyncBegan) {
  int a = -1, b = -1;
  const File first = OpenCovered("a", &a);
  const File second = OpenCovered("b", &b);
  process_.Uncover(first, Reason::kCopy);
  SyncStart start;
  {
    WindowLock lock(window());
    start = BeginSync(window());
  }
  process_.Uncover(second, Reason::kCopy);
  EXPECT_FALSE(Covered(first));  // its note has not returned
  EndSync(window(), start.epoch);
  EXPECT_TRUE(Covered(first));
  EXPECT_FALSE(Covered(second));
  close(a);
  close(b);
}

// No checkpoint and no real sync covers a file whose change is under way: the process that makes it
// may die, and what it changed last is on no disk then.
TEST_F(DirectProcessTest, NothingCoversAFileDuringAChangeThatIsNotLogged) {
  int fd = -1;
  const File file = OpenCovered("a", &fd);
  process_.BeginUnseen(file, Reason::kCopy);
  process_.BeginUnseen(file, Reason::kAllocate);
  volume_.Checkpoint();
  EXPECT_FALSE(Covered(file));
  EXPECT_EQ(process_.Sync(file, fd, false), 0);
  EXPECT_FALSE(Covered(file));
  EXPECT_EQ(RealSyncs(), 2u);
  EXPECT_EQ(Write(process_, file, fd, 0, "x"), 0u);
  process_.Uncover(file, Reason::kName);
  process_.EndUnseen(file, Reason::kAllocate);
  volume_.Checkpoint();
  EXPECT_EQ(process_.Sync(file, fd, false), 0);
  EXPECT_FALSE(Covered(file));
  EXPECT_EQ(RealSyncs(), 3u);
  process_.EndUnseen(file, Reason::kCopy);
  EXPECT_FALSE(Covered(file));
  EXPECT_EQ(process_.Sync(file, fd, false), 0);
  EXPECT_TRUE(Covered(file));
  EXPECT_EQ(RealSyncs(), 4u);
  EXPECT_GT(Write(process_, file, fd, 0, "x"), 0u);
  // After the end a checkpoint does it too.
  process_.BeginUnseen(file, Reason::kCopy);
  process_.EndUnseen(file, Reason::kCopy);
  volume_.Checkpoint();
  EXPECT_TRUE(Covered(file));
  close(fd);
}

TEST_F(DirectProcessTest, CopyOfAKilledProcessLeavesItsFileUncovered) {
  int fd = -1;
  const File file = OpenCovered("a", &fd);
  Join(Fork([&] {
    process_.BeginUnseen(file, Reason::kCopy);
    raise(SIGKILL);
  }));
  for (uint64_t i = 0; i < 3; ++i) {
    volume_.Checkpoint();
    EXPECT_EQ(process_.Sync(file, fd, false), 0);
    EXPECT_EQ(RealSyncs(), 2 + i);
  }
  close(fd);
}

TEST_F(DirectProcessTest, ChangesThatAreTooManyToCountNeverEnd) {
  int fd = -1;
  const File file = OpenCovered("a", &fd);
  constexpr int kMore = static_cast<int>(kManyUnseenEpoch - kUnseenEpoch) + 2;
  for (int i = 0; i < kMore; ++i) process_.BeginUnseen(file, Reason::kCopy);
  for (int i = 0; i < kMore; ++i) process_.EndUnseen(file, Reason::kCopy);
  EXPECT_EQ(process_.Sync(file, fd, false), 0);
  EXPECT_FALSE(Covered(file));
  close(fd);
}

TEST_F(DirectProcessTest, SyncWaitsWhileHealingAndGoingLocal) {
  int fd = -1;
  const File file = OpenCovered("a", &fd);
  for (const Phase phase : {Phase::kStamping, Phase::kGoingLocal}) {
    SetPhaseNow(phase);
    std::atomic<bool> done{false};
    std::thread waits([&] {
      EXPECT_EQ(process_.Sync(file, fd, false), 0);
      done = true;
    });
    usleep(10000);
    EXPECT_FALSE(done);
    SetPhaseNow(Phase::kLocal);
    waits.join();
  }
  close(fd);
}

TEST_F(DirectProcessTest, PhaseDecidesWhatIsStamped) {
  int fd = -1;
  const File file = OpenCovered("a", &fd);
  for (const Phase phase : {Phase::kLocal, Phase::kGoingLocal, Phase::kEnded, Phase::kFailed}) {
    SetPhaseNow(phase);
    EXPECT_EQ(Write(process_, file, fd, 0, "x"), 0u);
    EXPECT_TRUE(Covered(file));
  }
  for (const Phase phase : {Phase::kStamping, Phase::kReplicated}) {
    SetPhaseNow(phase);
    EXPECT_GT(Write(process_, file, fd, 0, "x"), 0u);
  }
  close(fd);
}

TEST_F(DirectProcessTest, WaitBeginsAgainWhenTheGenerationChanges) {
  int fd = -1;
  const File file = OpenCovered("a", &fd);
  volume_.replica(0).Mute(true);
  Write(process_, file, fd, 0, "x");
  std::atomic<bool> done{false};
  std::thread waits([&] {
    EXPECT_EQ(process_.Sync(file, fd, false), 0);
    done = true;
  });
  usleep(10000);
  EXPECT_FALSE(done);
  const Seq durable = window().durable();
  SetPhaseNow(Phase::kGoingLocal);
  volume_.replica(0).Mute(false);
  usleep(10000);
  EXPECT_FALSE(done);
  EXPECT_EQ(window().durable(), durable);  // nothing counts any more
  SetPhaseNow(Phase::kLocal);
  waits.join();
  close(fd);
}

TEST_F(DirectProcessTest, NoSuccessAfterTheCoordinatorsDeath) {
  int fd = -1;
  const File file = OpenCovered("a", &fd);
  volume_.StopCoordinator();
  EXPECT_EQ(process_.Sync(file, fd, false), EIO);
  Write(process_, file, fd, 0, "x");
  EXPECT_EQ(process_.Sync(file, fd, false), EIO);
  EXPECT_EQ(process_.SyncAll(), EIO);
  SetPhaseNow(Phase::kLocal);
  EXPECT_EQ(process_.Sync(file, fd, false), EIO);
  SetPhaseNow(Phase::kEnded);
  EXPECT_EQ(process_.Sync(file, fd, false), 0);
  close(fd);
}

TEST_F(DirectProcessTest, SyncSeesAPhaseThatEndedBeforeItHadTheStripe) {
  int fd = -1;
  const File file = OpenCovered("a", &fd);
  process_.Lock(file);
  std::thread caller([&] { EXPECT_EQ(process_.Sync(file, fd, false), 0); });
  // It has read the phase when it waits for the stripe (futex(2), FUTEX_WAITERS).
  const auto& word = window().stripe(file.index).lock.mutex.__data.__lock;
  while ((static_cast<uint32_t>(__atomic_load_n(&word, __ATOMIC_ACQUIRE)) & 0x80000000) == 0) {
    std::this_thread::yield();
  }
  SetPhaseNow(Phase::kGoingLocal);
  const std::string text = "no record";
  ASSERT_EQ(pwrite(fd, text.data(), text.size(), 0), static_cast<ssize_t>(text.size()));
  const iovec part{const_cast<char*>(text.data()), text.size()};
  EXPECT_EQ(process_.LogWrite(file, 0, &part, 1, text.size()), 0u);
  process_.Unlock(file);
  SetPhaseNow(Phase::kLocal);
  caller.join();
  EXPECT_EQ(window().header().counters.local_syncs.load(), 1u) << "the bytes are nowhere else";
  close(fd);
}

TEST_F(DirectProcessTest, FailedVolumeFailsEverySync) {
  int fd = -1;
  const File file = OpenCovered("a", &fd);
  SetPhaseNow(Phase::kFailed);
  EXPECT_EQ(process_.Sync(file, fd, false), EIO);
  EXPECT_EQ(process_.SyncAll(), EIO);
  close(fd);
}

TEST_F(DirectProcessTest, SyncAllWaitsForACheckpoint) {
  int fd = -1;
  const File file = OpenCovered("a", &fd);
  const Seq seq = Write(process_, file, fd, 0, "x");
  process_.Uncover(file, Reason::kCopy);
  EXPECT_EQ(process_.SyncAll(), 0);
  EXPECT_GE(window().window().checkpoint(), seq);
  EXPECT_TRUE(Covered(file));
  close(fd);
}

TEST_F(DirectProcessTest, FileOfAStreamStaysUncovered) {
  int fd = -1;
  const File file = OpenCovered("a", &fd);
  process_.Uncover(file, Reason::kStdio);
  const uint64_t before = RealSyncs();
  process_.Uncover(file, Reason::kName);
  EXPECT_EQ(process_.Sync(file, fd, false), 0);
  EXPECT_EQ(process_.Sync(file, fd, false), 0);
  EXPECT_EQ(RealSyncs(), before + 2);
  // The first of the two made the name durable.
  EXPECT_EQ(window().header().counters.reasons[static_cast<int>(Reason::kStdio)].load(), 2u);
  EXPECT_EQ(window().header().counters.reasons[static_cast<int>(Reason::kName)].load(), 1u);
  close(fd);
}

TEST_F(DirectProcessTest, SyncsInModeLocalAreCounted) {
  int fd = -1;
  const File file = OpenCovered("a", &fd);
  SetPhaseNow(Phase::kLocal);
  EXPECT_EQ(process_.Sync(file, fd, false), 0);
  EXPECT_EQ(window().header().counters.local_syncs.load(), 1u);
  SetPhaseNow(Phase::kReplicated);
  EXPECT_EQ(process_.Sync(file, fd, false), 0);
  EXPECT_EQ(window().header().counters.local_syncs.load(), 1u);
  close(fd);
}

TEST_F(DirectProcessTest, DeadStripeOwnerMakesItsFileUncovered) {
  int a = -1, b = -1;
  const File first = OpenCovered("a", &a);
  const File second = OpenCovered("b", &b);
  const pid_t child = Fork([&] {
    process_.Lock(first);
    (void)!pwrite(a, "lost", 4, 0);
    raise(SIGKILL);
  });
  Join(child);
  const uint64_t before = RealSyncs();
  EXPECT_EQ(process_.Sync(first, a, true), 0);
  EXPECT_EQ(RealSyncs(), before + 1);
  EXPECT_EQ(window().header().counters.reasons[static_cast<int>(Reason::kDeadOwner)].load(), 1u);
  EXPECT_EQ(process_.Sync(second, b, true), 0);
  EXPECT_EQ(RealSyncs(), before + 1);
  close(a);
  close(b);
}

TEST_F(DirectProcessTest, IdIsKeptAndReadAgain) {
  int fd = -1;
  const File file = OpenCovered("a", &fd);
  const File again = process_.Open(fd, false);
  EXPECT_EQ(again.index, file.index);
  EXPECT_EQ(again.tag, file.tag);
  EXPECT_TRUE(Covered(file));
  uint8_t value[64];
  const ssize_t size = fgetxattr(fd, kDirectIdXattr, value, sizeof(value));
  DirectId id;
  ASSERT_TRUE(DecodeDirectId(value, static_cast<size_t>(size), &id));
  EXPECT_EQ(id.file_id, window().file(file.index).id.load());
  close(fd);
}

// While it lives, what a mode forbids is forbidden to this thread, even if it is root's.
class WithoutCapabilities {
 public:
  WithoutCapabilities() {
    EXPECT_EQ(syscall(SYS_capget, &header_, before_), 0);
    __user_cap_data_struct less[2] = {before_[0], before_[1]};
    less[0].effective &= ~((1u << CAP_DAC_OVERRIDE) | (1u << CAP_DAC_READ_SEARCH));
    EXPECT_EQ(syscall(SYS_capset, &header_, less), 0);
  }
  ~WithoutCapabilities() { EXPECT_EQ(syscall(SYS_capset, &header_, before_), 0); }
  WithoutCapabilities(const WithoutCapabilities&) = delete;
  WithoutCapabilities& operator=(const WithoutCapabilities&) = delete;

 private:
  __user_cap_header_struct header_ = {_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct before_[2] = {};
};

TEST_F(DirectProcessTest, IdIsKeptWhereItMayNotBeRead) {
  int fd = -1;
  const File file = OpenCovered("a", &fd);
  const FileId id = window().file(file.index).id.load();
  ASSERT_EQ(chmod(volume_.Path("a").c_str(), 0200), 0);
  {
    const WithoutCapabilities none;
    ASSERT_EQ(open(volume_.Path("a").c_str(), O_RDONLY | O_CLOEXEC), -1);
    const int writer = open(volume_.Path("a").c_str(), O_WRONLY | O_CLOEXEC);
    ASSERT_GE(writer, 0);
    const File again = process_.Open(writer, false);
    EXPECT_EQ(again.index, file.index);
    EXPECT_EQ(again.tag, file.tag);
    close(writer);
  }
  // Records under the id that the file had count after a power cut.
  uint8_t value[64];
  const ssize_t size = fgetxattr(fd, kDirectIdXattr, value, sizeof(value));
  DirectId found;
  ASSERT_TRUE(DecodeDirectId(value, static_cast<size_t>(size), &found));
  EXPECT_EQ(found.file_id, id);
  EXPECT_EQ(window().file(file.index).id.load(), id);
  close(fd);
}

TEST_F(DirectProcessTest, NewFileThatMayNotBeReadGetsAnId) {
  const WithoutCapabilities none;
  const int fd = open(volume_.Path("a").c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0200);
  ASSERT_GE(fd, 0);
  const File file = process_.Open(fd, true);
  EXPECT_TRUE(file.tracked());
  EXPECT_FALSE(Covered(file));
  EXPECT_EQ(process_.Sync(file, fd, false), 0);
  EXPECT_TRUE(Covered(file));
  close(fd);
}

TEST_F(DirectProcessTest, UnreadableFileIsSyncedForRealOverItsRecords) {
  int fd = -1;
  const File file = OpenCovered("a", &fd);
  const FileId id = window().file(file.index).id.load();
  const Seq older = Write(process_, file, fd, 0, "older");
  ASSERT_EQ(process_.Sync(file, fd, false), 0);
  ASSERT_EQ(fchmod(fd, 0), 0);
  Process heir;
  ASSERT_EQ(heir.Adopt(volume_.Descriptors()), 0);
  File inherited;
  {
    const WithoutCapabilities none;
    ASSERT_EQ(open(volume_.Path("a").c_str(), O_WRONLY | O_CLOEXEC), -1);
    inherited = heir.Open(fd, false);
  }
  EXPECT_EQ(inherited.index, file.index);
  EXPECT_EQ(inherited.tag, file.tag);
  for (int i = 0; i < 2; ++i) {
    const uint64_t before = RealSyncs();
    EXPECT_EQ(Write(heir, inherited, fd, 0, "newer"), 0u);
    EXPECT_EQ(Write(process_, file, fd, 5, "newer"), 0u);
    EXPECT_EQ(heir.Sync(inherited, fd, true), 0);
    EXPECT_EQ(RealSyncs(), before + 1);
    // No older record is written over it (I3).
    const Seq record = window().window().issued();
    EXPECT_EQ(HeaderOf(record).op, Op::kOnDisk);
    EXPECT_EQ(HeaderOf(record).file_id, id);
    EXPECT_GE(HeaderOf(record).arg0, older);
    EXPECT_FALSE(Covered(file));
  }
  EXPECT_EQ(window().header().counters.reasons[static_cast<int>(Reason::kNoId)].load(), 2u);
  volume_.Checkpoint();
  EXPECT_FALSE(Covered(file));
  // As soon as it is opened with permission again, all processes log.
  ASSERT_EQ(fchmod(fd, 0600), 0);
  const File again = process_.Open(fd, false);
  EXPECT_EQ(again.tag, file.tag);
  EXPECT_FALSE(Covered(file));
  EXPECT_EQ(process_.Sync(file, fd, false), 0);
  EXPECT_TRUE(Covered(file));
  const Seq logged = Write(heir, inherited, fd, 0, "logged");
  ASSERT_GT(logged, 0u);
  EXPECT_EQ(heir.Sync(inherited, fd, true), 0);
  EXPECT_EQ(HeaderOf(logged).file_id, id);
  close(fd);
}

TEST_F(DirectProcessTest, FileWithoutAnIdIsLoggedOnceItHasOne) {
  Process first;
  ASSERT_EQ(first.Adopt(volume_.Descriptors()), 0);
  int fd = -1;
  File early;
  {
    const WithoutCapabilities none;  // its owner may not write an xattr to a file of this mode
    fd = open(volume_.Path("a").c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0444);
    ASSERT_GE(fd, 0);
    early = first.Open(fd, true);
    ASSERT_TRUE(early.tracked());
    for (int i = 0; i < 2; ++i) {
      const uint64_t before = RealSyncs();
      EXPECT_EQ(Write(first, early, fd, 0, "no id"), 0u);
      EXPECT_EQ(first.Sync(early, fd, false), 0);
      EXPECT_EQ(RealSyncs(), before + 1);
    }
  }
  EXPECT_EQ(window().window().issued(), 0u);
  volume_.Checkpoint();
  EXPECT_FALSE(Covered(early));
  ASSERT_EQ(fchmod(fd, 0644), 0);
  const int other = open(volume_.Path("a").c_str(), O_RDWR | O_CLOEXEC);
  const File file = process_.Open(other, false);
  EXPECT_EQ(file.index, early.index);
  EXPECT_EQ(file.tag, early.tag);
  // The writes of the first process are not logged yet.
  EXPECT_EQ(Write(first, early, fd, 0, "uncovered"), 0u);
  EXPECT_EQ(process_.Sync(file, other, false), 0);
  EXPECT_TRUE(Covered(file));
  // Both log from now on, in one order.
  EXPECT_GT(Write(process_, file, other, 0, "one"), 0u);
  EXPECT_GT(Write(first, early, fd, 0, "two"), 0u);
  close(other);
  close(fd);
}

TEST_F(DirectProcessTest, UnreadableIdOfAnEarlierSessionKeepsTheFileUncovered) {
  const int fd = open(volume_.Path("a").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  struct stat status;
  ASSERT_EQ(fstat(fd, &status), 0);
  DirectId id;
  id.file_id = 55;
  id.inode = status.st_ino;
  std::memcpy(id.volume, window().header().volume.bytes.data(), sizeof(id.volume));
  uint8_t value[kDirectIdBytes];
  EncodeDirectId(id, value);
  ASSERT_EQ(fsetxattr(fd, kDirectIdXattr, value, sizeof(value), 0), 0);
  ASSERT_EQ(fchmod(fd, 0200), 0);
  File file;
  {
    const WithoutCapabilities none;
    file = process_.Open(fd, false);
  }
  ASSERT_TRUE(file.tracked());
  EXPECT_EQ(process_.Sync(file, fd, false), 0);
  EXPECT_FALSE(Covered(file));
  EXPECT_EQ(process_.Open(fd, false).tag, file.tag);  // with permission
  EXPECT_EQ(window().file(file.index).id.load(), 55u);
  EXPECT_EQ(process_.Sync(file, fd, false), 0);
  EXPECT_TRUE(Covered(file));
  close(fd);
}

TEST_F(DirectProcessTest, FileIsUncoveredWithoutIdsLeft) {
  volume_.StopCoordinator();
  {
    WindowLock lock(window());
    window().header().file_ids.limit = window().header().file_ids.next;
  }
  const int fd = open(volume_.Path("a").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  const File file = process_.Open(fd, true);
  EXPECT_TRUE(file.tracked());
  EXPECT_EQ(Write(process_, file, fd, 0, "x"), 0u);
  EXPECT_EQ(process_.Sync(file, fd, false), EIO) << "a success after the coordinator's death";
  close(fd);
}

// Recovery looks for files below the directory only.
TEST_F(DirectProcessTest, FileMovedOutsideIsNotLogged) {
  int fd = -1;
  const File file = OpenCovered("a", &fd);
  const std::string outside = volume_.directory() + "-outside";
  ASSERT_EQ(rename(volume_.Path("a").c_str(), outside.c_str()), 0);
  const int other = open(outside.c_str(), O_RDWR | O_CLOEXEC);
  const File moved = process_.Open(other, false);
  EXPECT_EQ(moved.index, file.index);
  EXPECT_EQ(Write(process_, moved, other, 0, "outside"), 0u);
  const uint64_t before = RealSyncs();
  EXPECT_EQ(process_.Sync(file, fd, false), 0);
  EXPECT_EQ(RealSyncs(), before + 1);
  EXPECT_EQ(Write(process_, file, fd, 0, "outside"), 0u);
  unlink(outside.c_str());
  close(other);
  close(fd);
}

// A link that was made before the run. The file gets its id by the other name.
TEST_F(DirectProcessTest, FileWithALinkInsideIsTrackedByItsNameOutside) {
  const std::string outside = volume_.directory() + "-link";
  const int first = open(volume_.Path("a").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  ASSERT_EQ(link(volume_.Path("a").c_str(), outside.c_str()), 0);
  const int fd = open(outside.c_str(), O_RDWR | O_CLOEXEC);
  const File file = process_.Open(fd, false);
  ASSERT_TRUE(file.tracked());
  EXPECT_EQ(Write(process_, file, fd, 0, "outside"), 0u);
  EXPECT_EQ(process_.Sync(file, fd, false), 0);
  const File inside = process_.Open(first, false);
  EXPECT_EQ(inside.index, file.index);
  EXPECT_EQ(process_.Sync(inside, first, false), 0);
  EXPECT_TRUE(Covered(inside));
  EXPECT_NE(Write(process_, file, fd, 0, "logged"), 0u);
  unlink(outside.c_str());
  close(fd);
  close(first);
}

TEST_F(DirectProcessTest, AllFilesAreUncovered) {
  int a = -1, b = -1;
  const File first = OpenCovered("a", &a), second = OpenCovered("b", &b);
  process_.UncoverAll(Reason::kNoId);
  for (const File file : {first, second}) {
    EXPECT_EQ(Write(process_, file, a, 0, "x"), 0u);
    EXPECT_EQ(process_.Sync(file, a, false), 0);
    EXPECT_FALSE(Covered(file));
  }
  process_.Open(b, false);
  EXPECT_EQ(process_.Sync(second, b, false), 0);
  EXPECT_TRUE(Covered(second));
  EXPECT_FALSE(Covered(first));
  close(b);
  close(a);
}

TEST_F(DirectProcessTest, InodeNumberUsedAgainOutsideIsNotTracked) {
  const std::string outside = volume_.directory() + "-outside";
  const int fd = open(outside.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  struct stat status;
  ASSERT_EQ(fstat(fd, &status), 0);
  {
    // A file of the volume had it, and was removed.
    WindowLock lock(window());
    ASSERT_NE(FindOrAddFile(window(), status.st_ino), kNoFile);
  }
  EXPECT_FALSE(process_.Open(fd, true).tracked());
  EXPECT_EQ(fgetxattr(fd, kDirectIdXattr, nullptr, 0), -1);
  unlink(outside.c_str());
  close(fd);
}

// After chroot(2) to a place below the volume's directory the kernel shows a file's path from there.
TEST_F(DirectProcessTest, FileOfWhichAnotherRootChangesThePathIsNotLogged) {
  if (geteuid() != 0) GTEST_SKIP() << "chroot(2) and mount(2) need root";
  const std::string root = volume_.Path("root");
  ASSERT_EQ(mkdir(root.c_str(), 0700), 0);
  ASSERT_EQ(mkdir((root + "/proc").c_str(), 0700), 0);
  const int status_of_child = Join(Fork([&] {
    process_.AfterFork();
    if (unshare(CLONE_NEWNS) != 0 ||
        mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        mount("/proc", (root + "/proc").c_str(), nullptr, MS_BIND | MS_REC, nullptr) != 0) {
      _exit(1);
    }
    if (chroot(root.c_str()) != 0 || chdir("/") != 0) _exit(2);
    const int fresh = open("b", O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    const File made = process_.Open(fresh, true);
    if (!made.tracked()) _exit(3);
    if (Write(process_, made, fresh, 0, "not logged") != 0) _exit(4);
    _exit(process_.Sync(made, fresh, false) == 0 ? 0 : 5);
  }));
  EXPECT_EQ(status_of_child, 0);
}

// After chroot(2) to a place without /proc the kernel does not tell where a new file is.
TEST_F(DirectProcessTest, FileOfWhichTheKernelHidesThePlaceIsNotLogged) {
  if (geteuid() != 0) GTEST_SKIP() << "chroot(2) needs root";
  int a = -1;
  const File known = OpenCovered("a", &a);
  const int status_of_child = Join(Fork([&] {
    process_.AfterFork();
    if (chroot(volume_.directory().c_str()) != 0 || chdir("/") != 0) _exit(1);
    const int again = open("a", O_RDWR | O_CLOEXEC);
    const int fresh = open("b", O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    const File old = process_.Open(again, false), made = process_.Open(fresh, true);
    if (!old.tracked() || !made.tracked()) _exit(2);
    if (Write(process_, old, again, 0, "logged") == 0) _exit(5);
    if (Write(process_, made, fresh, 0, "not logged") != 0) _exit(3);
    _exit(process_.Sync(made, fresh, false) == 0 ? 0 : 4);
  }));
  ASSERT_EQ(status_of_child, 0);
  EXPECT_FALSE(window().file(known.index).sticky.load());
  const int b = open(volume_.Path("b").c_str(), O_RDWR | O_CLOEXEC);
  struct stat status;
  ASSERT_EQ(fstat(b, &status), 0);
  const uint32_t index = FindFile(window(), status.st_ino);
  ASSERT_NE(index, kNoFile);
  EXPECT_EQ(fgetxattr(b, kDirectIdXattr, nullptr, 0), -1);
  EXPECT_NE(window().file(index).sticky.load() & kStickyNoId, 0);
  // This process sees its path: the next open gives it an id.
  const File file = process_.Open(b, false);
  EXPECT_EQ(process_.Sync(file, b, false), 0);
  EXPECT_TRUE(Covered(file));
  close(b);
  close(a);
}

TEST_F(DirectProcessTest, FileIsUncoveredByItsInodeNumber) {
  int fd = -1;
  const File file = OpenCovered("a", &fd);
  struct stat status;
  ASSERT_EQ(fstat(fd, &status), 0);
  process_.UncoverInode(status.st_dev + 1, status.st_ino, Reason::kAttributes);
  EXPECT_TRUE(Covered(file));
  const int other = open(volume_.Path("b").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  struct stat unknown;
  ASSERT_EQ(fstat(other, &unknown), 0);
  process_.UncoverInode(unknown.st_dev, unknown.st_ino, Reason::kAttributes);
  EXPECT_TRUE(Covered(file));
  process_.UncoverInode(status.st_dev, status.st_ino, Reason::kAttributes);
  EXPECT_FALSE(Covered(file));
  const uint64_t before = RealSyncs();
  EXPECT_EQ(process_.Sync(file, fd, false), 0);
  EXPECT_EQ(RealSyncs(), before + 1);
  EXPECT_TRUE(Covered(file));
  // One that is opened later needs a real sync too.
  const File opened = process_.Open(other, false);
  ASSERT_TRUE(opened.tracked());
  EXPECT_FALSE(Covered(opened));
  close(other);
  close(fd);
}

TEST_F(DirectProcessTest, AllFilesAreUncoveredAtOnce) {
  int a = -1, b = -1;
  const File first = OpenCovered("a", &a);
  const File second = OpenCovered("b", &b);
  process_.UncoverAll(Reason::kPosition);
  EXPECT_FALSE(Covered(first));
  EXPECT_FALSE(Covered(second));
  close(a);
  close(b);
}

TEST_F(DirectProcessTest, KnownFileIsFoundByItsInodeNumber) {
  int fd = -1;
  const File file = OpenCovered("a", &fd);
  struct stat status;
  ASSERT_EQ(fstat(fd, &status), 0);
  const File known = process_.Known(status.st_dev, status.st_ino);
  EXPECT_EQ(known.index, file.index);
  EXPECT_EQ(known.tag, file.tag);
  EXPECT_FALSE(process_.Known(status.st_dev + 1, status.st_ino).tracked());
  ASSERT_EQ(stat(volume_.Path(".").c_str(), &status), 0);
  EXPECT_FALSE(process_.Known(status.st_dev, status.st_ino).tracked());
  close(fd);
}

TEST_F(DirectProcessTest, AnotherIdMakesTheEntryNew) {
  int fd = -1;
  const File file = OpenCovered("a", &fd);
  // The inode number was used again: the file behind it has no id.
  ASSERT_EQ(fremovexattr(fd, kDirectIdXattr), 0);
  const File other = process_.Open(fd, false);
  EXPECT_EQ(other.index, file.index);
  EXPECT_NE(other.tag, file.tag);
  EXPECT_FALSE(Covered(other));
  EXPECT_EQ(window().file(other.index).id.load(), 101u);
  EXPECT_EQ(Write(process_, file, fd, 0, "stale handle"), 0u);
  EXPECT_EQ(process_.Sync(file, fd, false), 0);
  EXPECT_FALSE(Covered(other));
  close(fd);
}

TEST_F(DirectProcessTest, IdOfACopyIsReplaced) {
  int fd = -1;
  const File file = OpenCovered("a", &fd);
  uint8_t value[64];
  const ssize_t size = fgetxattr(fd, kDirectIdXattr, value, sizeof(value));
  const int copy = open(volume_.Path("copy").c_str(), O_RDWR | O_CREAT, 0644);
  ASSERT_EQ(fsetxattr(copy, kDirectIdXattr, value, static_cast<size_t>(size), 0), 0);
  const File other = process_.Open(copy, true);
  EXPECT_NE(window().file(other.index).id.load(), window().file(file.index).id.load());
  close(copy);
  close(fd);
}

TEST_F(DirectProcessTest, FilesOutsideAreNotTracked) {
  const int outside = open(testing::TempDir().c_str(), O_TMPFILE | O_RDWR, 0600);
  if (outside >= 0) {
    EXPECT_FALSE(process_.Open(outside, true).tracked());
    close(outside);
  }
  ASSERT_EQ(mkdir(volume_.Path(".salius").c_str(), 0700), 0);
  const int own = open(volume_.Path(".salius/x").c_str(), O_RDWR | O_CREAT, 0600);
  EXPECT_FALSE(process_.Open(own, true).tracked());
  close(own);
  const int directory = open(volume_.directory().c_str(), O_RDONLY | O_DIRECTORY);
  EXPECT_FALSE(process_.Open(directory, false).tracked());
  close(directory);
}

TEST_F(DirectProcessTest, UnlinkedFileIsTracked) {
  const int fd = open(volume_.Path("gone").c_str(), O_RDWR | O_CREAT, 0644);
  unlink(volume_.Path("gone").c_str());
  const File file = process_.Open(fd, true);
  EXPECT_TRUE(file.tracked());
  EXPECT_EQ(process_.Sync(file, fd, false), 0);
  close(fd);
}

TEST_F(DirectProcessTest, OwnDescriptorsAreKnown) {
  const Attached attached = volume_.Descriptors();
  Process other;
  ASSERT_EQ(other.Adopt(attached), 0);
  EXPECT_TRUE(other.Owns(attached.connection));
  for (const int fd : attached.descriptors) EXPECT_TRUE(other.Owns(fd));
  EXPECT_FALSE(other.Owns(0));
  EXPECT_FALSE(other.Owns(-1));
}

TEST_F(DirectProcessTest, FileIdsRunOutAndComeBack) {
  {
    WindowLock lock(window());
    window().header().file_ids.limit = window().header().file_ids.next;
  }
  std::thread later([&] {
    usleep(20000);
    WindowLock lock(window());
    window().header().file_ids.limit += 100;
  });
  const int fd = open(volume_.Path("a").c_str(), O_RDWR | O_CREAT, 0644);
  EXPECT_TRUE(process_.Open(fd, true).tracked());
  later.join();
  close(fd);
}

}  // namespace
}  // namespace salius::direct
