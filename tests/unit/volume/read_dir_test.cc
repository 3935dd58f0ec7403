// Listing of directories, while they change too.
#include <set>
#include <string>

#include "tests/unit/volume/volume_fixture.h"

namespace salius {
namespace {

using ReadDirTest = VolumeFixture;

TEST_F(ReadDirTest, ReadDirContinuesFromAnyOffset) {
  Make();
  std::set<std::string> expected = {".", ".."};
  if (IsThere("lost+found")) expected.insert("lost+found");  // ext4's
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
