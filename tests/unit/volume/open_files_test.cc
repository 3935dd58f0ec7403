// Opening and closing of files.
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>

#include "tests/unit/volume/volume_fixture.h"

namespace salius {
namespace {

using OpenFilesTest = VolumeFixture;

TEST_F(OpenFilesTest, FileWithoutAnyPermissionIsWrittenAndTruncated) {
  Make();
  auto created = volume->names().CreateFile(root(), "a", O_RDWR, 0, caller);
  ASSERT_TRUE(created.ok());
  Write(created->handle, 0, "abc", Contract::kDurable);
  volume->open_files().Release(created->handle);
  struct stat want {};
  want.st_size = 1;
  auto st = volume->attrs().SetAttr(*created->entry.node, kSetSize, want);
  ASSERT_TRUE(st.ok()) << st.status();
  EXPECT_EQ(st->st_size, 1);
  EXPECT_EQ(st->st_mode & 07777, 0u);
}

TEST_F(OpenFilesTest, OpenRefusesSpecialFiles) {
  Make();
  Node& dir = Dir(root(), "d");
  EXPECT_EQ(Errno(volume->open_files().Open(dir, O_RDONLY)), EISDIR);
  auto link = volume->names().Symlink(root(), "l", "d", caller);
  ASSERT_TRUE(link.ok());
  EXPECT_EQ(Errno(volume->open_files().Open(*link->node, O_RDONLY)), ELOOP);
  auto fifo = volume->names().MakeNode(root(), "p", S_IFIFO | 0644, 0, caller);
  ASSERT_TRUE(fifo.ok());
  EXPECT_EQ(Errno(volume->open_files().Open(*fifo->node, O_RDONLY)), ENXIO);
  EXPECT_EQ(Errno(volume->open_files().OpenDir(*fifo->node)), ENOTDIR);
}

TEST_F(OpenFilesTest, OpenWithTruncateEmptiesTheFile) {
  Make();
  Handle* file = Create("a");
  Write(file, 0, "old");
  volume->open_files().Release(file);
  file = OpenFile(Find("a"), O_RDWR | O_TRUNC);
  EXPECT_EQ(Read(file, 0, 10), "");
  volume->open_files().Release(file);
}

TEST_F(OpenFilesTest, CreateOpensAnExistingFileUnlessExclusive) {
  Make();
  Handle* file = Create("a");
  Write(file, 0, "old");
  volume->open_files().Release(file);
  file = Create("a");
  EXPECT_EQ(Read(file, 0, 10), "old");
  volume->open_files().Release(file);
  EXPECT_EQ(Errno(volume->names().CreateFile(root(), "a", O_RDWR | O_EXCL, 0644, caller)), EEXIST);
}

TEST_F(OpenFilesTest, HardLinksShareOneNode) {
  Make();
  Handle* const file = Create("a");
  ASSERT_TRUE(volume->names().Link(file->node, root(), "b").ok());
  EXPECT_EQ(&Find("a"), &Find("b"));
  Write(file, 0, "x");
  Handle* const other = OpenFile(Find("b"));
  EXPECT_EQ(Read(other, 0, 10), "x");
  EXPECT_EQ(Stat(other->node).st_nlink, 2u);
  volume->open_files().Release(other);
  volume->open_files().Release(file);
}

}  // namespace
}  // namespace salius
