#include "client/gate/descriptor_kind.h"

#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <unistd.h>

namespace salius::gate {
namespace {

TEST(DescriptorKindTest, FilesAreInsideInTheVolumeOnly) {
  EXPECT_EQ(KindOf(S_IFREG | 0644, 0, true, false), Kind::kInside);
  EXPECT_EQ(KindOf(S_IFREG | 0644, 0, false, false), Kind::kFile);
  // A pipe with the same number does not count for a file.
  EXPECT_EQ(KindOf(S_IFREG | 0644, 0, false, true), Kind::kFile);
}

TEST(DescriptorKindTest, PipesAndSocketsAreInsideWhenMadeInside) {
  for (const mode_t type : {S_IFIFO, S_IFSOCK}) {
    EXPECT_EQ(KindOf(type | 0600, 0, false, true), Kind::kInside);
    EXPECT_EQ(KindOf(type | 0600, 0, false, false), Kind::kStream);
  }
}

TEST(DescriptorKindTest, DevicesThatKeepNothingAreInside) {
  for (const char* device : {"/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom"}) {
    struct stat status {};
    ASSERT_EQ(stat(device, &status), 0);
    EXPECT_EQ(KindOf(status.st_mode, status.st_rdev, false, false), Kind::kInside) << device;
  }
  EXPECT_EQ(KindOf(S_IFCHR | 0600, makedev(1, 1), false, false), Kind::kStream);  // memory
  EXPECT_EQ(KindOf(S_IFCHR | 0644, makedev(1, 11), false, false), Kind::kStream);  // the kernel's log
  EXPECT_EQ(KindOf(S_IFCHR | 0620, makedev(136, 0), false, false), Kind::kStream);
  EXPECT_EQ(KindOf(S_IFBLK | 0600, makedev(1, 3), false, false), Kind::kFile);
}

TEST(DescriptorKindTest, UnknownTypesAreOutside) {
  const int fd = eventfd(0, EFD_CLOEXEC);
  struct stat status {};
  ASSERT_EQ(fstat(fd, &status), 0);
  close(fd);
  EXPECT_EQ(KindOf(status.st_mode, status.st_rdev, false, false), Kind::kFile);
}

TEST(DescriptorKindTest, RequestsThatChangeATerminalAreNoQuestions) {
  EXPECT_TRUE(IsHarmlessIoctl(TCGETS));
  EXPECT_TRUE(IsHarmlessIoctl(TIOCGWINSZ));
  EXPECT_FALSE(IsHarmlessIoctl(TCSBRK));
  EXPECT_FALSE(IsHarmlessIoctl(TIOCSWINSZ));
  EXPECT_FALSE(IsHarmlessIoctl(TIOCSTI));
}

}  // namespace
}  // namespace salius::gate
