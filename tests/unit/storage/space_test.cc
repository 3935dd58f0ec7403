// SpaceGuard and QuotaGuard on a file system in memory: data without room is refused (I8).
// tests/unit/volume/space_test.cc has the same rules on a volume and on real file systems.
#include "storage/space.h"

#include <errno.h>
#include <fcntl.h>

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/check.h"
#include "gtest/gtest.h"
#include "storage/quota.h"
#include "tests/unit/storage/memory_backing.h"

namespace salius {
namespace {

int Errno(const absl::Status& status) { return StatusErrno(status); }
template <typename T>
int Errno(const absl::StatusOr<T>& result) {
  return StatusErrno(result.status());
}

// A guard of 256 MiB, and two empty files on them.
class SpaceGuardTest : public testing::Test {
 protected:
  static constexpr uint64_t kMiB = uint64_t{1} << 20;

  uint64_t Available() {
    const auto space = memory.FreeSpace(memory.root());
    SALIUS_CHECK_OK(space);
    return space->bytes_avail;
  }
  // Returns the blocks of `written`, with those that are allocated ahead.
  uint64_t Blocks() {
    const auto st = memory.Stat(written.get());
    SALIUS_CHECK_OK(st);
    return static_cast<uint64_t>(st->st_blocks);
  }
  auto Reserve(uint64_t length) {
    return guard.Reserve(written.get(), 0, 0, 0, length, [] { return absl::OkStatus(); });
  }
  int Allocate(uint64_t length) { return Errno(guard.Allocate(allocated.get(), 0, 0, 0, length)); }

  MemoryBacking memory;  // 256 MiB
  const BackingFd written = memory.NewFile("w");
  const BackingFd allocated = memory.NewFile("a");
  SpaceGuard guard{memory, memory.root(), [] { return absl::OkStatus(); }};
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
  constexpr uint64_t kPlenty = 4 * kMiB;
  const uint64_t used = Available() - kSpaceMargin - kPlenty;
  ASSERT_EQ(Errno(memory.Fallocate(allocated.get(), 0, 0, used)), 0);
  ASSERT_TRUE(Reserve(4096).ok());
  ASSERT_EQ(Blocks(), 0u) << "there is plenty";
  // Few calls, because the guard looks again after kLookEveryMs: 100 bytes in each block.
  for (uint64_t left = kPlenty / 4096; left > 0; --left) guard.Direct(100);
  ASSERT_EQ(Errno(memory.Fallocate(allocated.get(), 0, used, 3 * kMiB)), 0);
  EXPECT_TRUE(Reserve(2 * kMiB).ok());
  EXPECT_GT(Blocks(), 0u) << "near the end blocks are allocated ahead";
}

// Another program's file takes the space.
TEST_F(SpaceGuardTest, SpaceTakenByOthersIsSeenSoon) {
  ASSERT_TRUE(Reserve(4096).ok());
  ASSERT_EQ(Errno(memory.Fallocate(allocated.get(), 0, 0, Available() - 2 * kMiB)), 0);
  const absl::Time end = absl::Now() + absl::Seconds(20);
  int error = 0;
  while (error == 0 && absl::Now() < end) error = Errno(Reserve(64 * kMiB));
  EXPECT_EQ(error, ENOSPC);
}

class QuotaTest : public testing::Test {
 protected:
  static constexpr uint64_t kMiB = uint64_t{1} << 20;

  QuotaTest() {
    guard = std::make_unique<SpaceGuard>(
        memory, memory.root(),
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

  // Returns whether `holds` does within a minute: a look at the figures may not end in time.
  static bool Until(const std::function<bool()>& holds) {
    const absl::Time end = absl::Now() + absl::Minutes(1);
    while (!holds()) {
      if (absl::Now() > end) return false;
    }
    return true;
  }

  MemoryBacking memory;
  const BackingFd fd = memory.NewFile("f");
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
  SALIUS_CHECK_OK(memory.Fallocate(fd.get(), 0, 0, 8192));
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
  EXPECT_EQ(Errno(guard->CheckNew(1000, 1000, 0)), 0);
  user.inodes_grace_over = true;
  EXPECT_EQ(Errno(guard->CheckNew(1000, 1000, 0)), EDQUOT);
  EXPECT_EQ(Errno(guard->CheckNew(0, 1000, 0)), 0);
}

TEST_F(QuotaTest, NewObjectCountsWhatWasRemovedBefore) {
  user.inodes_hard = 1;
  user.inodes_used = 1;
  EXPECT_TRUE(Until([&] { return Errno(guard->CheckNew(1000, 1000, 0)) == EDQUOT; }));
  EXPECT_GE(drains, 1);
  int reclaims = 0;
  guard->set_reclaim([&] {
    ++reclaims;
    user.inodes_used = 0;
    return absl::OkStatus();
  });
  EXPECT_TRUE(Until([&] { return Errno(guard->CheckNew(1000, 1000, 0)) == 0; }));
  EXPECT_GE(reclaims, 1);
}

TEST_F(QuotaTest, NewObjectWithABlockNeedsRoomForIt) {
  user.bytes_hard = kMiB;
  user.bytes_used = kMiB;
  EXPECT_EQ(Errno(guard->CheckNew(1000, 1000, 0)), 0);
  EXPECT_TRUE(Until([&] { return Errno(guard->CheckNew(1000, 1000, 4096)) == EDQUOT; }));
  EXPECT_EQ(Errno(guard->CheckNew(0, 1000, 4096)), 0);
}

TEST_F(QuotaTest, GroupQuotaCountsAsWell) {
  group.emplace();
  guard = std::make_unique<SpaceGuard>(
      memory, memory.root(), [] { return absl::OkStatus(); },
      [this](fs::QuotaType type, uint32_t) -> std::optional<fs::QuotaUse> {
        return type == fs::QuotaType::kGroup ? group : std::nullopt;
      });
  group->inodes_hard = 3;
  group->inodes_used = 3;
  group->bytes_hard = 4096;
  EXPECT_EQ(Errno(guard->CheckNew(1000, 1000, 0)), EDQUOT);
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
