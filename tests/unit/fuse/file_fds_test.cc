// Descriptors of open files are counted until they are closed.
#include "client/engine/file_fds.h"

#include <fcntl.h>
#include <gtest/gtest.h>

namespace salius {
namespace {

UniqueFd Open() { return UniqueFd(::open("/dev/null", O_RDONLY | O_CLOEXEC)); }

TEST(FileFdsTest, AnyNumberBeforeItIsConfigured) {
  FileFds fds;
  const SharedFd one = fds.Share(Open(), FileFds::Kind::kFile);
  EXPECT_TRUE(fds.HasRoom());
}

TEST(FileFdsTest, OneCountsUntilItsLastShareIsGone) {
  FileFds fds;
  fds.Configure(2);
  SharedFd first = fds.Share(Open(), FileFds::Kind::kFile);
  EXPECT_TRUE(fds.HasRoom());
  SharedFd second = fds.Share(Open(), FileFds::Kind::kFile);
  SharedFd again = second;
  EXPECT_FALSE(fds.HasRoom());
  const int number = second->get();
  second.reset();
  EXPECT_FALSE(fds.HasRoom());
  EXPECT_NE(::fcntl(number, F_GETFD), -1);
  again.reset();
  EXPECT_TRUE(fds.HasRoom());
  EXPECT_EQ(::fcntl(number, F_GETFD), -1);
}

bool LeavesAtime(const SharedFd& fd) { return (::fcntl(fd->get(), F_GETFL) & O_NOATIME) != 0; }

TEST(FileFdsTest, TimesOfAccessFollowForOpenDescriptorsAndForNewOnes) {
  using Kind = FileFds::Kind;
  FileFds fds;
  const SharedFd file = fds.Share(Open(), Kind::kFile);
  const SharedFd dir = fds.Share(Open(), Kind::kDir);
  UniqueFd asked_for = Open();
  ASSERT_EQ(::fcntl(asked_for.get(), F_SETFL, O_NOATIME), 0);
  const SharedFd asked = fds.Share(std::move(asked_for), Kind::kNoAtime);
  EXPECT_FALSE(LeavesAtime(file));
  EXPECT_EQ(fds.AtimeFlag(Kind::kFile), 0);

  fds.SetNoAtime(true, true);
  EXPECT_TRUE(LeavesAtime(file));
  EXPECT_TRUE(LeavesAtime(dir));
  EXPECT_EQ(fds.AtimeFlag(Kind::kFile), O_NOATIME);
  // Opened before the change, shared after it.
  EXPECT_TRUE(LeavesAtime(fds.Share(Open(), Kind::kFile)));

  fds.SetNoAtime(false, true);
  EXPECT_FALSE(LeavesAtime(file));
  EXPECT_TRUE(LeavesAtime(dir));
  EXPECT_TRUE(LeavesAtime(asked));
  fds.SetNoAtime(false, false);
  EXPECT_FALSE(LeavesAtime(dir));
  EXPECT_TRUE(LeavesAtime(asked));
}

}  // namespace
}  // namespace salius
