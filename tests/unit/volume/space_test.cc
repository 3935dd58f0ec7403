// Space and quota: data that cannot be stored is refused before it is acknowledged (I8).
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>

#include <atomic>
#include <functional>
#include <optional>
#include <string>

#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "storage/backing.h"
#include "storage/block_calls.h"
#include "storage/fs_calls.h"
#include "storage/quota.h"
#include "storage/space.h"
#include "tests/unit/volume/volume_fixture.h"

namespace salius {
namespace {

// Takes all blocks that `allocate(at, bytes)` can take.
void TakeAll(const std::function<absl::Status(uint64_t, uint64_t)>& allocate) {
  uint64_t at = 0;
  for (uint64_t step = uint64_t{64} << 20; step >= 4096;) {
    const absl::Status allocated = allocate(at, step);
    if (allocated.ok()) {
      at += step;
    } else {
      ASSERT_EQ(Errno(allocated), ENOSPC);
      step /= 2;
    }
  }
}

class SpaceTest : public VolumeFixture {
 protected:
  // Writes pieces until one is refused; returns the bytes that were taken.
  uint64_t Fill(Handle* file, size_t piece, int* error) {
    uint64_t at = 0;
    while (true) {
      const auto written = volume->Write(*file, at, std::string(piece, 'f'), false, false);
      *error = Errno(written);
      if (*error != 0) return at;
      at += *written;
    }
  }
  void AllocateAll(Handle* file) {
    TakeAll([&](uint64_t at, uint64_t bytes) { return volume->Fallocate(*file, 0, at, bytes); });
  }
};

TEST_F(SpaceTest, FullDiskRefusesBeforeTheAckAndLosesNothing) {
  config.bulk_limit_bytes = uint64_t{1} << 40;
  Make(48 * kMiB);
  Handle* const file = Create("fill");
  int error = 0;
  uint64_t taken = Fill(file, 256 * 1024, &error);
  EXPECT_EQ(error, ENOSPC);
  EXPECT_GT(taken, 8 * kMiB);
  const auto more = [&] {
    const auto written = volume->Write(*file, taken, std::string(4096, 'f'), false, false);
    if (written.ok()) taken += *written;
    return written.ok();
  };
  while (more()) {
  }
  // Overwriting needs no space.
  Write(file, 4096, std::string(8192, 'o'), /*sync=*/true);
  // Neither do bytes in an allocated block.
  EXPECT_TRUE(volume->stream().health().ok());
  ASSERT_TRUE(volume->Fsync(*file, false).ok());
  EXPECT_EQ(Stat(file->node).st_size, static_cast<off_t>(taken));
  EXPECT_EQ(Read(file, 4096, 8192), std::string(8192, 'o'));
  EXPECT_EQ(Read(file, taken - 4096, 8192), std::string(4096, 'f'));
  EXPECT_EQ(Errno(volume->Fallocate(*file, FALLOC_FL_KEEP_SIZE, taken, 8 * kMiB)), ENOSPC);
  // Space that becomes free is found.
  struct stat want {};
  want.st_size = static_cast<off_t>(taken - 2 * kMiB);
  ASSERT_TRUE(volume->SetAttr(file->node, kSetSize, want).ok());
  ASSERT_TRUE(volume->stream().Checkpoint().ok());
  Handle* const other = Create("other");
  Write(other, 0, std::string(kMiB, 'n'));
  volume->Release(other);
  volume->Release(file);
  Close();
}

// btrfs counts dirty pages as free space, and writes overwritten blocks elsewhere.
TEST_F(SpaceTest, FullBtrfsRefusesBeforeTheAck) {
  constexpr char kMkfs[] = "mkfs.btrfs -q -f";
  if (!ScratchFs::Supported(kMkfs, "rw")) GTEST_SKIP() << "needs btrfs";
  Make(320 * kMiB, kMkfs);
  Handle* const db = Create("db");
  Write(db, 0, std::string(256 * 1024, 'd'), /*sync=*/true);
  Handle* const fill = Create("fill");
  int error = 0;
  const uint64_t taken = Fill(fill, kMiB, &error);
  EXPECT_EQ(error, ENOSPC);
  EXPECT_GT(taken, 100 * kMiB);
  for (int i = 0; i < 100; ++i) {
    const auto written = volume->Write(*db, i % 64 * 4096, std::string(4096, 'e'), false, true);
    if (!written.ok()) {
      ASSERT_EQ(Errno(written), ENOSPC) << i;
    }
    ASSERT_TRUE(volume->stream().health().ok()) << i;
  }
  EXPECT_TRUE(volume->stream().Checkpoint().ok());
  volume->Release(db);
  volume->Release(fill);
  Close();
}

// XFS zeroes the rest of the block where a file ends. When another file shares that, it needs a new
// block.
TEST_F(SpaceTest, EndWithinASharedBlockIsRefusedOnAFullDisk) {
  constexpr char kMkfs[] = "mkfs.xfs -q -f -m reflink=1";
  if (!ScratchFs::Supported(kMkfs, "rw")) GTEST_SKIP() << "needs XFS";
  Make(320 * kMiB, kMkfs);
  constexpr uint64_t kSize = 8192 + 100;
  Handle* const file = Create("f");
  Write(file, 0, std::string(kSize, 'f'), /*sync=*/true);
  ASSERT_TRUE(volume->Fallocate(*file, FALLOC_FL_KEEP_SIZE, 40960, 4096).ok());
  ASSERT_TRUE(volume->stream().Checkpoint().ok());
  MustRun("cp --reflink=always " + Backing("f") + " " + scratch->path() + "/copy");
  const auto rest = OpenAt(AT_FDCWD, scratch->path() + "/rest", O_RDWR | O_CREAT, 0644);
  SALIUS_CHECK_OK(rest);
  Handle* const fill = Create("fill");
  AllocateAll(fill);
  TakeAll([&](uint64_t at, uint64_t bytes) {
    return fs::Fallocate(rest->get(), 0, static_cast<int64_t>(at), bytes);
  });
  const auto truncate = [&](uint64_t size) {
    struct stat want {};
    want.st_size = static_cast<off_t>(size);
    const int error = Errno(volume->SetAttr(file->node, kSetSize, want));
    EXPECT_TRUE(volume->stream().Checkpoint().ok());
    return error;
  };
  EXPECT_EQ(truncate(5000), ENOSPC);
  EXPECT_EQ(truncate(100000), ENOSPC);
  EXPECT_EQ(Errno(volume->Write(*file, 40960, std::string(4096, 'g'), false, true)), ENOSPC);
  EXPECT_EQ(Stat(file->node).st_size, static_cast<off_t>(kSize));
  EXPECT_EQ(truncate(4096), 0);
  volume->Release(file);
  volume->Release(fill);
  Close();
}

TEST_F(SpaceTest, PreallocatedFileIsWrittenOnAFullDisk) {
  config.bulk_limit_bytes = uint64_t{1} << 40;
  Make(48 * kMiB);
  Handle* const db = Create("db");
  ASSERT_TRUE(volume->Fallocate(*db, 0, 0, 2 * kMiB).ok());
  Handle* const fill = Create("fill");
  int error = 0;
  Fill(fill, 64 * 1024, &error);
  EXPECT_EQ(error, ENOSPC);
  for (uint64_t at = 0; at < 2 * kMiB; at += 128 * 1024) {
    Write(db, at, std::string(8192, 'd'), /*sync=*/true);
  }
  EXPECT_TRUE(volume->stream().health().ok());
  EXPECT_TRUE(volume->stream().Checkpoint().ok());
  volume->Release(db);
  volume->Release(fill);
}

// Allocated blocks leave the free space at once, not when other writers look again.
TEST_F(SpaceTest, AllocatedSpaceIsNotPromisedToOthers) {
  Make();
  Handle* const other = Create("other");
  Write(other, 0, std::string(4096, 'o'), /*sync=*/true);  // looks
  Handle* const fill = Create("fill");
  AllocateAll(fill);
  int error = 0;
  const uint64_t taken = Fill(other, 64 * 1024, &error);
  EXPECT_EQ(error, ENOSPC);
  EXPECT_LT(taken, kMiB);
  EXPECT_TRUE(volume->stream().Checkpoint().ok());
  EXPECT_TRUE(volume->stream().health().ok()) << volume->stream().health();
  volume->Release(other);
  volume->Release(fill);
}

// The present blocks are gone when the write is applied.
TEST_F(SpaceTest, AWriteCountsOnNoBlocksThatAnUnappliedTruncateFrees) {
  Make();
  Handle* const file = Create("file");
  Write(file, 0, std::string(8192, 'f'), /*sync=*/true);
  Handle* const fill = Create("fill");
  AllocateAll(fill);
  for (int i = 0; i < 20; ++i) {
    Handle* const emptied = OpenFile(file->node, O_RDWR | O_TRUNC);  // waits for nothing
    Write(emptied, 0, std::string(4096, 'g'));
    {
      absl::MutexLock lock(&file->node.state);
      for (const RecordRef& patch : file->node.patches.Touching(0, 4096)) {
        EXPECT_EQ(patch->header().op, Op::kWrite) << i;
      }
    }
    volume->Release(emptied);
  }
  EXPECT_TRUE(volume->stream().Checkpoint().ok());
  EXPECT_EQ(BackingContent("file"), std::string(4096, 'g'));
  volume->Release(file);
  volume->Release(fill);
}

TEST_F(SpaceTest, OwnerOverQuotaIsRefusedAndRootIsNot) {
  const std::string mkfs = "mkfs.ext4 -q -b 4096 -m 0 -O quota -E quotatype=usrquota:grpquota";
  if (!ScratchFs::Supported(mkfs, "usrquota,grpquota")) {
    GTEST_SKIP() << "no ext4 quotas in this kernel; QuotaTest has the logic";
  }
  MakeClosed(128 * kMiB, mkfs, "usrquota,grpquota");
  MustRun("setquota -u 1000 0 4096 0 8 " + scratch->path());
  Open();
  Handle* const file = Create("f");
  int error = 0;
  const uint64_t taken = Fill(file, 128 * 1024, &error);
  EXPECT_EQ(error, EDQUOT);
  EXPECT_GT(taken, 2 * kMiB);
  EXPECT_LE(taken, 4 * kMiB);
  Write(file, 0, "overwrite", true);
  int inode_error = 0;
  for (int i = 0; i < 16 && inode_error == 0; ++i) {
    inode_error = Errno(volume->MakeDir(root(), "d" + std::to_string(i), 0755, caller));
  }
  EXPECT_EQ(inode_error, EDQUOT);
  const Caller privileged;
  auto created = volume->CreateFile(root(), "root", O_RDWR, 0644, privileged);
  ASSERT_TRUE(created.ok());
  Write(created->handle, 0, std::string(kMiB, 'r'), true);
  volume->Release(created->handle);
  volume->Release(file);
}

// A guard of an ext4 of 256 MiB, and two empty files on it.
class SpaceGuardTest : public ::testing::Test {
 protected:
  static constexpr uint64_t kMiB = uint64_t{1} << 20;

  UniqueFd File(const std::string& name) {
    auto file = OpenAt(AT_FDCWD, scratch.path() + "/" + name, O_RDWR | O_CREAT, 0644);
    SALIUS_CHECK_OK(file);
    return std::move(*file);
  }
  uint64_t Available() {
    const auto space = StatfsFree(written.get());
    SALIUS_CHECK_OK(space);
    return space->bytes_avail;
  }
  // Returns the blocks of `written`, with those that are allocated ahead.
  uint64_t Blocks() {
    struct stat st {};
    SALIUS_CHECK(fstat(written.get(), &st) == 0);
    return static_cast<uint64_t>(st.st_blocks);
  }
  auto Reserve(uint64_t length) {
    return guard.Reserve(written.get(), 0, 0, 0, length, [] { return absl::OkStatus(); });
  }
  int Allocate(uint64_t length) { return Errno(guard.Allocate(allocated.get(), 0, 0, 0, length)); }

  const ScratchFs scratch{256 * kMiB, "mkfs.ext4 -q -b 4096 -m 0"};
  const UniqueFd written = File("w");
  const UniqueFd allocated = File("a");
  SpaceGuard guard{LinuxBacking(), written.get(), [] { return absl::OkStatus(); }};
};

TEST_F(SpaceGuardTest, ReservationOfAWriteIsNotAllocatedMeanwhile) {
  const uint64_t most = Available() - 8 * kMiB;
  {
    const auto hold = Reserve(16 * kMiB);
    ASSERT_TRUE(hold.ok());
    EXPECT_EQ(Allocate(most), ENOSPC);
  }
  EXPECT_EQ(Allocate(most), 0);
}

TEST_F(SpaceGuardTest, AllocationLeavesTheBudgetAtOnce) {
  ASSERT_TRUE(Reserve(4096).ok());  // looks
  ASSERT_EQ(Allocate(Available() - 2 * kMiB), 0);
  EXPECT_EQ(Errno(Reserve(64 * kMiB)), ENOSPC);
}

// Sizes that no disk has must not make the sums wrap.
TEST_F(SpaceGuardTest, HugeRequestIsRefusedWithoutOtherChange) {
  constexpr uint64_t kHuge[] = {uint64_t{1} << 43, uint64_t{INT64_MAX} - 4096, uint64_t{1} << 62};
  for (const bool full : {false, true}) {
    if (full) {
      ASSERT_EQ(Allocate(Available() - 2 * kMiB), 0);
    }
    for (const uint64_t huge : kHuge) {
      EXPECT_NE(Allocate(huge), 0) << huge;
      EXPECT_EQ(guard.unapplied(), 0u) << huge;
    }
    EXPECT_EQ(Errno(Reserve(64 * kMiB)), full ? ENOSPC : 0);
    EXPECT_EQ(Errno(Reserve(kMiB)), 0);
  }
}

TEST_F(SpaceGuardTest, FailedAllocationIsGivenBack) {
  EXPECT_EQ(Allocate(Available() + kMiB), ENOSPC);
  ASSERT_TRUE(Reserve(4096).ok());
  EXPECT_EQ(Blocks(), 0u) << "near the end blocks are allocated ahead";
}

TEST_F(SpaceGuardTest, SmallDirectWritesCountAsTheBlocksThatTheyTake) {
  ASSERT_TRUE(Reserve(4096).ok());
  // Uses all blocks, 100 bytes in each, before the guard looks again.
  for (uint64_t left = Available() / 4096; left > 0; --left) guard.Direct(100);
  // Until the next look the disk is full as far as the guard knows.
  ASSERT_EQ(Errno(fs::Fallocate(allocated.get(), 0, 0, Available() - 2 * kMiB)), 0);
  EXPECT_EQ(Errno(Reserve(64 * kMiB)), ENOSPC);
}

// XFS reserves the blocks asked for before it looks which are allocated already.
TEST(SpaceOnXfsTest, PreallocatedBlocksAreWrittenOnAFullDisk) {
  constexpr char kMkfs[] = "mkfs.xfs -q -f";
  if (!ScratchFs::Supported(kMkfs, "rw")) GTEST_SKIP() << "needs XFS";
  constexpr uint64_t kMiB = uint64_t{1} << 20;
  const ScratchFs scratch(320 * kMiB, kMkfs);
  const auto ahead = OpenAt(AT_FDCWD, scratch.path() + "/ahead", O_RDWR | O_CREAT, 0644);
  const auto fill = OpenAt(AT_FDCWD, scratch.path() + "/fill", O_RDWR | O_CREAT, 0644);
  SALIUS_CHECK_OK(ahead);
  SALIUS_CHECK_OK(fill);
  const auto nothing = [] { return absl::OkStatus(); };
  SpaceGuard guard(LinuxBacking(), fill->get(), nothing);
  ASSERT_EQ(Errno(guard.Allocate(ahead->get(), 0, 0, 0, 8 * kMiB)), 0);
  TakeAll(
      [&](uint64_t at, uint64_t bytes) { return guard.Allocate(fill->get(), 0, 0, at, bytes); });
  EXPECT_EQ(Errno(guard.Reserve(ahead->get(), 0, 0, kMiB, kMiB, nothing)), 0);
  EXPECT_EQ(Errno(guard.Reserve(ahead->get(), 0, 0, 8 * kMiB, kMiB, nothing)), ENOSPC);
}

// Another program's file takes the space.
TEST_F(SpaceGuardTest, SpaceTakenByOthersIsSeenSoon) {
  ASSERT_TRUE(Reserve(4096).ok());
  ASSERT_EQ(Errno(fs::Fallocate(allocated.get(), 0, 0, Available() - 2 * kMiB)), 0);
  const absl::Time end = absl::Now() + absl::Seconds(20);
  int error = 0;
  while (error == 0 && absl::Now() < end) error = Errno(Reserve(64 * kMiB));
  EXPECT_EQ(error, ENOSPC);
}

class QuotaTest : public VolumeFixture {
 protected:
  QuotaTest() {
    scratch = std::make_unique<ScratchFs>(256 * kMiB, "mkfs.ext4 -q -b 4096 -m 0");
    auto opened = OpenAt(AT_FDCWD, Backing("f"), O_RDWR | O_CREAT, 0644);
    SALIUS_CHECK_OK(opened);
    fd = std::move(*opened);
    guard = std::make_unique<SpaceGuard>(
        LinuxBacking(), fd.get(),
        [this] {
          ++drains;
          user.bytes_used += unapplied;
          guard->Applied(std::exchange(unapplied, 0));
          return drain_result;
        },
        [this](fs::QuotaType type, uint32_t id) -> std::optional<fs::QuotaUse> {
          if (type == fs::QuotaType::kGroup) return group;
          if (id != 1000) return fs::QuotaUse();
          return user;
        });
  }
  int Reserve(uint64_t length, uid_t uid = 1000) {
    return Errno(guard->Reserve(fd.get(), uid, 1000, 0, length, [] { return absl::OkStatus(); }));
  }

  UniqueFd fd;
  uint64_t unapplied = 0;  // that the next drain applies
  fs::QuotaUse user;
  std::optional<fs::QuotaUse> group;
  int drains = 0;
  absl::Status drain_result;
  std::unique_ptr<SpaceGuard> guard;
};

TEST_F(QuotaTest, HardLimitIsCheckedExactlyOnceNothingIsUnapplied) {
  user.bytes_hard = kMiB;
  user.bytes_used = kMiB / 2;
  EXPECT_EQ(Reserve(kMiB / 4), 0);
  EXPECT_EQ(drains, 0);
  EXPECT_EQ(Reserve(kMiB), EDQUOT);
  EXPECT_EQ(drains, 1);
  EXPECT_EQ(Reserve(kMiB, /*uid=*/0), 0);
  // Unapplied bytes count until they are in the file.
  EXPECT_EQ(Reserve(kMiB / 4), 0);
  guard->Issued(unapplied = kMiB / 4);
  EXPECT_EQ(Reserve(kMiB / 2), EDQUOT);
  EXPECT_EQ(drains, 2);
  EXPECT_EQ(Reserve(kMiB / 4), 0);
}

// Figures from before a drain do not include the bytes that it applied.
TEST_F(QuotaTest, WritesThatAreAppliedMeanwhileEndAtTheHardLimit) {
  user.bytes_hard = 4 * kMiB;
  uint64_t taken = 0;
  while (taken < 8 * kMiB && Reserve(kMiB / 16) == 0) {
    guard->Issued(kMiB / 16);
    unapplied += kMiB / 16;
    taken += kMiB / 16;
  }
  EXPECT_EQ(taken, user.bytes_hard);
}

TEST_F(QuotaTest, GroupTakesOverFilesWithinItsQuota) {
  fs::QuotaUse use;
  const QuotaGuard quota([&](fs::QuotaType, uint32_t) { return std::optional<fs::QuotaUse>(use); },
                         [] { return 0; });
  use.bytes_hard = kMiB;
  use.bytes_used = kMiB / 2;
  EXPECT_TRUE(quota.GroupHas(2000, kMiB / 2));
  EXPECT_FALSE(quota.GroupHas(2000, kMiB));
  use = fs::QuotaUse();
  use.inodes_hard = use.inodes_used = 4;
  EXPECT_FALSE(quota.GroupHas(2000, 0));
}

TEST_F(QuotaTest, OverwritingNeedsNoQuota) {
  user.bytes_hard = kMiB;
  user.bytes_used = kMiB;
  EXPECT_EQ(Reserve(4096), EDQUOT);
  SALIUS_CHECK_OK(fs::Fallocate(fd.get(), 0, 0, 8192));
  EXPECT_EQ(Reserve(4096), 0);
}

TEST_F(QuotaTest, SoftLimitCountsWhenItsGraceIsOver) {
  user.bytes_soft = kMiB;
  user.bytes_used = 2 * kMiB;
  EXPECT_EQ(Reserve(4096), 0);
  user.bytes_grace_over = true;
  EXPECT_EQ(Reserve(4096), EDQUOT);
  user = {};
  user.inodes_soft = 1;
  user.inodes_used = 5;
  EXPECT_EQ(Errno(guard->CheckInode(1000, 1000)), 0);
  user.inodes_grace_over = true;
  EXPECT_EQ(Errno(guard->CheckInode(1000, 1000)), EDQUOT);
  EXPECT_EQ(Errno(guard->CheckInode(0, 1000)), 0);
}

TEST_F(QuotaTest, GroupQuotaCountsAsWell) {
  group.emplace();
  guard = std::make_unique<SpaceGuard>(
      LinuxBacking(), fd.get(), [] { return absl::OkStatus(); },
      [this](fs::QuotaType type, uint32_t) -> std::optional<fs::QuotaUse> {
        return type == fs::QuotaType::kGroup ? group : std::nullopt;
      });
  group->inodes_hard = 3;
  group->inodes_used = 3;
  group->bytes_hard = 4096;
  EXPECT_EQ(Errno(guard->CheckInode(1000, 1000)), EDQUOT);
  EXPECT_EQ(Reserve(8192), EDQUOT);
}

// Like quotactl(2) while the file system is frozen.
TEST(QuotaLookTest, LookThatHangsHoldsUpNoWrite) {
  constexpr uint64_t kMiB = uint64_t{1} << 20;
  std::atomic<bool> hangs{false};
  absl::Notification thawed;
  fs::QuotaUse use;
  use.bytes_hard = 10 * kMiB;
  QuotaGuard quota(
      [&](fs::QuotaType, uint32_t) {
        if (hangs.load()) thawed.WaitForNotification();
        return std::optional<fs::QuotaUse>(use);
      },
      [] { return 0; });
  ASSERT_TRUE(quota.HasBytes(1000, 1000, kMiB));
  hangs.store(true);
  absl::SleepFor(absl::Milliseconds(2 * QuotaGuard::kFreshMs));  // the figures become old
  const absl::Time began = absl::Now();
  quota.Refresh();
  int taken = 0;
  while (taken < 20 && quota.HasBytes(1000, 1000, kMiB)) ++taken;
  EXPECT_LT(absl::Now() - began, absl::Seconds(10));
  // The last figures count, less the bytes that were let through.
  EXPECT_EQ(taken, 9);
  EXPECT_TRUE(quota.HasInode(2000, 2000)) << "an owner of whom nothing is known";
  thawed.Notify();
}

TEST_F(QuotaTest, DrainThatFailsIsTheErrorOfTheWrite) {
  user.bytes_hard = 4096;
  drain_result = ErrnoStatus(EIO, "test");
  EXPECT_EQ(Reserve(kMiB), EIO);
}

}  // namespace
}  // namespace salius
