// Listing of directories, while they change too.
#include <errno.h>

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

TEST_F(ReadDirTest, ListedEntryHasTheAttributesOfALookup) {
  Make();
  Handle* const file = Create("f");
  Write(file, 0, "12345");
  const ino_t ino = Stat(file->node).st_ino;
  const auto used = volume->names().LookupListed(root(), "f", ino);
  ASSERT_TRUE(used.ok());
  EXPECT_EQ(used->node, &file->node);
  EXPECT_EQ(used->attr.st_size, 5) << "the record may not be applied";
  volume->names().Forget(*used->node, 1);
  volume->open_files().Release(file);
}

TEST_F(ReadDirTest, ListedFileThatIsNotInUseBecomesANode) {
  Make();
  MakeBackingFile("plain", "1234567");
  const absl::StatusOr<struct stat> st = backing().StatAt(backing_root(), "plain");
  ASSERT_TRUE(st.ok());
  const auto entry = volume->names().LookupListed(root(), "plain", st->st_ino);
  ASSERT_TRUE(entry.ok());
  EXPECT_EQ(entry->node->ino, st->st_ino);
  EXPECT_EQ(entry->attr.st_size, 7);
  Handle* const handle = OpenFile(*entry->node);
  EXPECT_EQ(Read(handle, 0, 100), "1234567");
  volume->open_files().Release(handle);
  volume->names().Forget(*entry->node, 1);
}

TEST_F(ReadDirTest, ListedNameOfAnotherObjectGivesThatObject) {
  Make();
  Handle* const first = Create("first");
  Handle* const second = Create("second");
  const auto entry = volume->names().LookupListed(root(), "second", first->node.ino);
  ASSERT_TRUE(entry.ok());
  EXPECT_EQ(entry->node, &second->node);
  EXPECT_EQ(entry->attr.st_ino, second->node.ino);
  volume->names().Forget(*entry->node, 1);
  EXPECT_EQ(Errno(volume->names().LookupListed(root(), "none", first->node.ino)), ENOENT);
  volume->open_files().Release(first);
  volume->open_files().Release(second);
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
