// Descriptors of open files are counted until they are closed.
#include "storage/file_fds.h"

#include <fcntl.h>

#include <chrono>
#include <thread>
#include <utility>
#include <vector>

#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/check.h"
#include "gtest/gtest.h"
#include "tests/unit/storage/memory_backing.h"

namespace salius {
namespace {

class FileFdsTest : public testing::Test {
 protected:
  BackingFd Open() {
    auto fd = memory.Reopen(memory.root(), O_RDONLY);
    SALIUS_CHECK_OK(fd);
    return std::move(*fd);
  }
  bool IsOpen(int number) { return memory.Stat(number).ok(); }
  bool LeavesAtime(const SharedFd& fd) { return memory.IsNoAtime(fd->get()); }

  MemoryBacking memory;
  FileFds fds{memory};
};

TEST_F(FileFdsTest, AnyNumberBeforeItIsConfigured) {
  const SharedFd one = fds.Share(Open(), FileFds::Kind::kFile, FileFds::kRoot);
  EXPECT_TRUE(fds.HasRoom(FileFds::kRoot));
}

TEST_F(FileFdsTest, WaitForRoomEndsWhenOneIsGivenBack) {
  fds.Configure(1);
  SharedFd only = fds.Share(Open(), FileFds::Kind::kFile, FileFds::kRoot);
  constexpr std::chrono::milliseconds kBrief{1};
  constexpr std::chrono::minutes kLong{10};
  EXPECT_FALSE(fds.WaitForRoom(FileFds::kRoot, kBrief, kLong));
  std::thread closer([&only] { only.reset(); });
  EXPECT_TRUE(fds.WaitForRoom(FileFds::kRoot, kLong, kLong));
  closer.join();
}

TEST_F(FileFdsTest, WaitForRoomLastsWhileACloseWaitsForTheDisk) {
  constexpr std::chrono::milliseconds kBrief{1};
  constexpr std::chrono::minutes kLong{10};
  fds.Configure(1);
  SharedFd only = fds.Share(Open(), FileFds::Kind::kFile, FileFds::kRoot);
  absl::Notification closes, disk;
  memory.OnEachClose([&] {
    closes.Notify();
    disk.WaitForNotification();
  });
  std::thread closer([&only] { only.reset(); });
  closes.WaitForNotification();
  std::thread thaw([&] {
    absl::SleepFor(20 * absl::Milliseconds(kBrief.count()));
    disk.Notify();
  });
  EXPECT_TRUE(fds.WaitForRoom(FileFds::kRoot, kBrief, kLong));
  closer.join();
  thaw.join();
}

TEST_F(FileFdsTest, OneCountsUntilItsLastShareIsGone) {
  fds.Configure(2);
  SharedFd first = fds.Share(Open(), FileFds::Kind::kFile, FileFds::kRoot);
  EXPECT_TRUE(fds.HasRoom(FileFds::kRoot));
  SharedFd second = fds.Share(Open(), FileFds::Kind::kFile, FileFds::kRoot);
  SharedFd again = second;
  EXPECT_FALSE(fds.HasRoom(FileFds::kRoot));
  const int number = second->get();
  second.reset();
  EXPECT_FALSE(fds.HasRoom(FileFds::kRoot));
  EXPECT_TRUE(IsOpen(number));
  again.reset();
  EXPECT_TRUE(fds.HasRoom(FileFds::kRoot));
  EXPECT_FALSE(IsOpen(number));
}

TEST_F(FileFdsTest, TimesOfAccessFollowForOpenDescriptorsAndForNewOnes) {
  using Kind = FileFds::Kind;
  const SharedFd file = fds.Share(Open(), Kind::kFile, FileFds::kRoot);
  const SharedFd dir = fds.Share(Open(), Kind::kDir, FileFds::kRoot);
  BackingFd asked_for = Open();
  memory.SetNoAtime(asked_for.get(), true);
  const SharedFd asked = fds.Share(std::move(asked_for), Kind::kNoAtime, FileFds::kRoot);
  EXPECT_FALSE(LeavesAtime(file));
  EXPECT_EQ(fds.AtimeFlag(Kind::kFile), 0);

  fds.SetNoAtime(true, true);
  EXPECT_TRUE(LeavesAtime(file));
  EXPECT_TRUE(LeavesAtime(dir));
  EXPECT_EQ(fds.AtimeFlag(Kind::kFile), O_NOATIME);
  // Opened before the change, shared after it.
  EXPECT_TRUE(LeavesAtime(fds.Share(Open(), Kind::kFile, FileFds::kRoot)));

  fds.SetNoAtime(false, true);
  EXPECT_FALSE(LeavesAtime(file));
  EXPECT_TRUE(LeavesAtime(dir));
  EXPECT_TRUE(LeavesAtime(asked));
  fds.SetNoAtime(false, false);
  EXPECT_FALSE(LeavesAtime(dir));
  EXPECT_TRUE(LeavesAtime(asked));
}

TEST_F(FileFdsTest, NoUserIsGivenMoreThanAreLeft) {
  constexpr size_t kLimit = 100;
  fds.Configure(kLimit);
  std::vector<SharedFd> held;
  const auto fill = [&](uid_t user) {
    size_t count = 0;
    for (; fds.HasRoom(user); ++count)
      held.push_back(fds.Share(Open(), FileFds::Kind::kFile, user));
    return count;
  };
  EXPECT_FALSE(fds.Crowded());
  EXPECT_EQ(fill(1000), kLimit / 2);
  EXPECT_TRUE(fds.Crowded());
  EXPECT_EQ(fill(1001), kLimit / 4);
  EXPECT_GT(fill(1002), 0u);
  EXPECT_FALSE(fds.AllTaken());
  EXPECT_GT(fill(FileFds::kRoot), 0u);
  EXPECT_TRUE(fds.AllTaken());
  EXPECT_FALSE(fds.HasRoom(1003));
  held.clear();
  EXPECT_EQ(fill(1000), kLimit / 2);
}

}  // namespace
}  // namespace salius
