// Calls on trees of a real file system.
#include "common/file_system.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <string>

#include "common/file.h"
#include "gtest/gtest.h"

namespace salius {
namespace {

TEST(FileSystemTest, TreesAreRemovedWithoutFollowingLinks) {
  std::string path = testing::TempDir() + "/tree-XXXXXX";
  ASSERT_NE(mkdtemp(path.data()), nullptr);
  const auto root = OpenAt(AT_FDCWD, path, O_RDONLY | O_DIRECTORY);
  ASSERT_TRUE(root.ok());
  const int dir = root->get();
  for (const char* const name : {"keep", "t", "t/u"}) ASSERT_TRUE(MkdirAt(dir, name, 0755).ok());
  for (const char* const name : {"keep/f", "t/u/f"}) {
    ASSERT_TRUE(OpenAt(dir, name, O_RDWR | O_CREAT, 0600).ok());
  }
  ASSERT_EQ(symlinkat("../keep", dir, "t/l"), 0);
  ASSERT_TRUE(fs::RemoveTree(dir, "t").ok());
  EXPECT_EQ(faccessat(dir, "t", F_OK, AT_SYMLINK_NOFOLLOW), -1);
  EXPECT_EQ(faccessat(dir, "keep/f", F_OK, AT_SYMLINK_NOFOLLOW), 0);
  EXPECT_TRUE(fs::RemoveTree(dir, "t").ok()) << "nothing to remove";
}

}  // namespace
}  // namespace salius
