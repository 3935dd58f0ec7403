// Descriptors of open files are counted until they are closed.
#include "client/engine/file_fds.h"

#include <fcntl.h>
#include <gtest/gtest.h>

namespace salius {
namespace {

UniqueFd Open() { return UniqueFd(::open("/dev/null", O_RDONLY | O_CLOEXEC)); }

TEST(FileFdsTest, AnyNumberBeforeItIsConfigured) {
  FileFds fds;
  const SharedFd one = fds.Share(Open());
  EXPECT_TRUE(fds.HasRoom());
}

TEST(FileFdsTest, OneCountsUntilItsLastShareIsGone) {
  FileFds fds;
  fds.Configure(2);
  SharedFd first = fds.Share(Open());
  EXPECT_TRUE(fds.HasRoom());
  SharedFd second = fds.Share(Open());
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

}  // namespace
}  // namespace salius
