// Listing of directories, while they change too.
#include <unistd.h>

#include <set>
#include <string>

#include "tests/unit/volume/volume_fixture.h"

namespace salius {
namespace {

using ReadDirTest = VolumeFixture;

TEST_F(ReadDirTest, ReadDirContinuesFromAnyOffset) {
  Make();
  std::set<std::string> expected = {".", "..", "lost+found"};
  for (int i = 0; i < 300; ++i) {
    const std::string name = "file" + std::to_string(i);
    volume->open_files().Release(Create(name));
    expected.insert(name);
  }
  auto handle = volume->open_files().OpenDir(root());
  ASSERT_TRUE(handle.ok());
  std::set<std::string> names;
  uint64_t offset = 0;
  while (true) {
    size_t count = 0;
    ASSERT_TRUE(volume->names()
                    .ReadDir(**handle, offset,
                             [&](const DirEntry& entry) {
                               names.insert(entry.name);
                               offset = entry.next_offset;
                               EXPECT_NE(entry.type, 0u);
                               return ++count < 7;
                             })
                    .ok());
    if (count == 0) break;
  }
  EXPECT_EQ(names, expected);
  volume->open_files().Release(*handle);
}

// btrfs lists up to the last name that existed at the last seek.
TEST_F(ReadDirTest, ReadDirEndsWhileItsEntriesAreRenamed) {
  constexpr char kMkfs[] = "mkfs.btrfs -q -f";
  if (!ScratchFs::Supported(kMkfs, "rw")) GTEST_SKIP() << "needs btrfs";
  Make(320 * kMiB, kMkfs);
  Node& dir = Dir(root(), "d");
  const std::string filler(200, 'x');  // so that they are not read at once
  for (int i = 0; i < 300; ++i)
    volume->open_files().Release(Create(dir, filler + std::to_string(i)));
  auto handle = volume->open_files().OpenDir(dir);
  ASSERT_TRUE(handle.ok());
  uint64_t offset = 0;
  int listed = 0;
  for (bool more = true; more && listed < 2000;) {
    std::string name;
    more = false;
    ASSERT_TRUE(volume->names()
                    .ReadDir(**handle, offset,
                             [&](const DirEntry& entry) {
                               if (more) return false;
                               name = entry.name;
                               offset = entry.next_offset;
                               return more = true;
                             })
                    .ok());
    if (name.empty() || name == "." || name == "..") continue;
    ++listed;
    ASSERT_EQ(Errno(volume->names().Rename(dir, name, dir, name + "'", 0)), 0);
  }
  EXPECT_EQ(listed, 300);
  volume->open_files().Release(*handle);
}

TEST_F(ReadDirTest, ReadDirFromTheStartShowsNewEntries) {
  Make();
  auto handle = volume->open_files().OpenDir(root());
  ASSERT_TRUE(handle.ok());
  const auto list = [&](size_t most) {
    std::set<std::string> names;
    SALIUS_CHECK_OK(volume->names().ReadDir(**handle, 0, [&](const DirEntry& entry) {
      names.insert(entry.name);
      return names.size() < most;
    }));
    return names;
  };
  EXPECT_EQ(list(1).size(), 1u);  // and the others are in memory
  volume->open_files().Release(Create("new"));
  EXPECT_EQ(list(100).count("new"), 1u);
  EXPECT_EQ(list(100).count("new"), 1u);
  volume->open_files().Release(*handle);
}

}  // namespace
}  // namespace salius
