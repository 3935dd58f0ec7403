// The same cases on every backing: names and directories. See backing_test.cc.
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>

#include "absl/strings/str_cat.h"
#include "tests/unit/storage/backing_worlds.h"

namespace salius {
namespace {

class BackingNamesTest : public BackingTest {
 protected:
  int Rename(const std::string& from, const std::string& to, unsigned flags = 0) {
    return Errno(backing().Rename(root(), from, root(), to, flags));
  }
  // Reads the directory to its end, from the position of `fd`.
  std::map<std::string, fs::RawDirEntry> ReadAll(int fd) {
    std::map<std::string, fs::RawDirEntry> all;
    while (true) {
      auto batch = backing().ReadDirents(fd);
      SALIUS_CHECK_OK(batch);
      if (batch->empty()) return all;
      for (const fs::RawDirEntry& entry : *batch) {
        EXPECT_TRUE(all.emplace(entry.name, entry).second) << entry.name;
      }
    }
  }
};

TEST_P(BackingNamesTest, NewNameIsRefused) {
  MakeFile("f");
  MakeDir("gone");
  const BackingFd f = Open("f"), gone = Open("gone");
  ASSERT_TRUE(backing().Unlink(root(), "gone", AT_REMOVEDIR).ok());
  const std::string longest(255, 'n'), too_long(256, 'n');
  const auto make = [&](int dir, const std::string& name) {
    const int file = Errno(backing().MakeNode(dir, name, S_IFREG | 0600, 0));
    EXPECT_EQ(Errno(backing().MkdirAt(dir, name, 0700)), file);
    EXPECT_EQ(Errno(backing().Symlink("t", dir, name)), file);
    EXPECT_EQ(Errno(backing().LinkFd(f.get(), dir, name)), file);
    return file;
  };
  EXPECT_EQ(make(root(), "f"), EEXIST);
  EXPECT_EQ(make(root(), "."), EEXIST);
  EXPECT_EQ(make(root(), ""), ENOENT);
  EXPECT_EQ(make(root(), too_long), ENAMETOOLONG);
  EXPECT_EQ(make(f.get(), "x"), ENOTDIR);
  EXPECT_EQ(make(gone.get(), "x"), ENOENT);
  EXPECT_EQ(Errno(backing().Symlink("", root(), "l")), ENOENT);
  EXPECT_EQ(Errno(backing().Symlink(std::string(4096, 't'), root(), "l")), ENAMETOOLONG);
  EXPECT_EQ(Errno(backing().MakeNode(root(), longest, S_IFREG | 0600, 0)), 0);
}

TEST_P(BackingNamesTest, UnlinkRefusesTheWrongType) {
  MakeFile("f");
  MakeDir("d");
  ASSERT_TRUE(backing().MkdirAt(Open("d").get(), "inner", 0755).ok());
  EXPECT_EQ(Errno(backing().Unlink(root(), "none", 0)), ENOENT);
  EXPECT_EQ(Errno(backing().Unlink(root(), "d", 0)), EISDIR);
  EXPECT_EQ(Errno(backing().Unlink(root(), "f", AT_REMOVEDIR)), ENOTDIR);
  const absl::Status full = backing().Unlink(root(), "d", AT_REMOVEDIR);
  EXPECT_TRUE(fs::IsNotEmpty(full)) << full;
  EXPECT_EQ(Errno(backing().Unlink(root(), ".", AT_REMOVEDIR)), EINVAL);
  EXPECT_EQ(Errno(backing().Unlink(Open("f").get(), "x", 0)), ENOTDIR);
  EXPECT_EQ(Errno(backing().Unlink(root(), std::string(256, 'n'), 0)), ENAMETOOLONG);
}

TEST_P(BackingNamesTest, RemovedFileLivesWhileItIsOpen) {
  const BackingFd f = OpenNew("f");
  ASSERT_TRUE(backing().LinkFd(f.get(), root(), "g").ok());
  EXPECT_EQ(Stat("f").st_nlink, 2u);
  EXPECT_EQ(Errno(backing().Unlink(root(), "f", 0)), 0);
  EXPECT_EQ(Stat("g").st_nlink, 1u);
  EXPECT_EQ(Errno(backing().Unlink(root(), "g", 0)), 0);
  EXPECT_EQ(backing().Stat(f.get())->st_nlink, 0u);
  EXPECT_EQ(Errno(backing().Pwrite(f.get(), "x", 0)), 0);
  EXPECT_EQ(Errno(backing().LinkFd(f.get(), root(), "h")), ENOENT);
}

TEST_P(BackingNamesTest, DirectoryHasOneName) {
  MakeDir("d");
  EXPECT_EQ(Errno(backing().LinkFd(Open("d").get(), root(), "e")), EPERM);
}

TEST_P(BackingNamesTest, LinksOfDirectoriesCountTheirChildren) {
  MakeDir("d");
  MakeDir("e");
  const BackingFd d = Open("d"), e = Open("e");
  ASSERT_TRUE(backing().MkdirAt(d.get(), "inner", 0755).ok());
  EXPECT_EQ(Stat("d").st_nlink, 3u);
  EXPECT_EQ(Errno(backing().Rename(d.get(), "inner", e.get(), "inner", 0)), 0);
  EXPECT_EQ(Stat("d").st_nlink, 2u);
  EXPECT_EQ(Stat("e").st_nlink, 3u);
  const auto up = backing().OpenAt(backing().OpenChild(e.get(), "inner")->get(), "..", O_PATH);
  ASSERT_TRUE(up.ok());
  EXPECT_EQ(backing().Stat(up->get())->st_ino, Stat("e").st_ino);
  EXPECT_EQ(Errno(backing().Unlink(root(), "d", AT_REMOVEDIR)), 0);
  EXPECT_EQ(backing().Stat(d.get())->st_nlink, 0u);
}

TEST_P(BackingNamesTest, RenameReplacesTheSameTypeOnly) {
  MakeFile("f");
  MakeFile("g");
  MakeDir("d");
  MakeDir("empty");
  MakeDir("full");
  ASSERT_TRUE(backing().MkdirAt(Open("full").get(), "inner", 0755).ok());
  const ino_t f = Stat("f").st_ino, d = Stat("d").st_ino;
  EXPECT_EQ(Rename("none", "f"), ENOENT);
  EXPECT_EQ(Rename("f", "d"), EISDIR);
  EXPECT_EQ(Rename("d", "f"), ENOTDIR);
  EXPECT_TRUE(fs::IsNotEmpty(backing().Rename(root(), "d", root(), "full", 0)));
  EXPECT_EQ(Rename("f", std::string(256, 'n')), ENAMETOOLONG);
  EXPECT_EQ(Rename("f", "f"), 0);
  EXPECT_EQ(Rename("f", "g"), 0);
  EXPECT_EQ(Rename("d", "empty"), 0);
  EXPECT_EQ(Stat("g").st_ino, f);
  EXPECT_EQ(Stat("empty").st_ino, d);
  EXPECT_EQ(Errno(backing().StatAt(root(), "f")), ENOENT);
}

TEST_P(BackingNamesTest, RenameOntoAnotherNameOfTheFileDoesNothing) {
  MakeFile("f");
  ASSERT_TRUE(backing().LinkFd(Open("f").get(), root(), "g").ok());
  EXPECT_EQ(Rename("f", "g"), 0);
  EXPECT_EQ(Stat("f").st_nlink, 2u);
}

TEST_P(BackingNamesTest, DirectoryDoesNotMoveIntoItself) {
  MakeDir("d");
  const BackingFd d = Open("d");
  ASSERT_TRUE(backing().MkdirAt(d.get(), "inner", 0755).ok());
  const auto inner = backing().OpenChild(d.get(), "inner");
  EXPECT_EQ(Errno(backing().Rename(root(), "d", d.get(), "x", 0)), EINVAL);
  EXPECT_EQ(Errno(backing().Rename(root(), "d", inner->get(), "x", 0)), EINVAL);
  EXPECT_EQ(Errno(backing().Rename(d.get(), "inner", root(), "d", RENAME_EXCHANGE)), EINVAL);
  const absl::Status onto_parent = backing().Rename(d.get(), "inner", root(), "d", 0);
  EXPECT_TRUE(fs::IsNotEmpty(onto_parent)) << onto_parent;
}

TEST_P(BackingNamesTest, RenameIntoARemovedDirectoryGivesEnoent) {
  MakeFile("f");
  MakeDir("d");
  const BackingFd d = Open("d");
  ASSERT_TRUE(backing().Unlink(root(), "d", AT_REMOVEDIR).ok());
  EXPECT_EQ(Errno(backing().Rename(root(), "f", d.get(), "f", 0)), ENOENT);
}

TEST_P(BackingNamesTest, NoreplaceExchangeAndWhiteout) {
  MakeFile("f");
  MakeDir("d");
  const ino_t f = Stat("f").st_ino, d = Stat("d").st_ino;
  EXPECT_EQ(Rename("f", "d", RENAME_NOREPLACE), EEXIST);
  EXPECT_EQ(Rename("f", "none", RENAME_EXCHANGE), ENOENT);
  EXPECT_EQ(Rename("f", "d", RENAME_EXCHANGE | RENAME_NOREPLACE), EINVAL);
  EXPECT_EQ(Rename("f", "d", RENAME_EXCHANGE), 0);
  EXPECT_EQ(Stat("f").st_ino, d);
  EXPECT_EQ(Stat("d").st_ino, f);
  EXPECT_EQ(Rename("d", "moved", RENAME_WHITEOUT), 0);
  EXPECT_EQ(Stat("moved").st_ino, f);
  EXPECT_EQ(Stat("d").st_mode, static_cast<mode_t>(S_IFCHR));
  EXPECT_EQ(Stat("d").st_rdev, 0u);
}

TEST_P(BackingNamesTest, NewObjectTakesTheGroupOfASetgidDirectory) {
  MakeDir("d");
  const BackingFd d = Open("d");
  ASSERT_TRUE(backing().Chown(d.get(), 0, 77).ok());
  ASSERT_TRUE(backing().Chmod(d.get(), 02755).ok());
  ASSERT_TRUE(backing().MakeNode(d.get(), "f", S_IFREG | 0644, 0).ok());
  ASSERT_TRUE(backing().MkdirAt(d.get(), "e", 0755).ok());
  EXPECT_EQ(backing().StatAt(d.get(), "f")->st_gid, 77u);
  EXPECT_EQ(backing().StatAt(d.get(), "e")->st_gid, 77u);
  EXPECT_EQ(backing().StatAt(d.get(), "e")->st_mode & 07777, 02755u);
}

TEST_P(BackingNamesTest, ListingHasEveryNameOnce) {
  std::set<std::string> made;
  for (int i = 0; i < 1200; ++i) made.insert(absl::StrCat("name-with-some-length-", i));
  for (const std::string& name : made) MakeFile(name);
  MakeDir("d");
  made.insert("d");
  const auto listed = backing().ListDir(root());
  ASSERT_TRUE(listed.ok());
  EXPECT_EQ(std::set<std::string>(listed->begin(), listed->end()), made);
  EXPECT_EQ(listed->size(), made.size());
  const std::map<std::string, fs::RawDirEntry> all = ReadAll(root());
  EXPECT_EQ(all.size(), made.size() + 2);
  EXPECT_EQ(all.at(".").ino, Stat("").st_ino);
  EXPECT_EQ(all.at("d").ino, Stat("d").st_ino);
  EXPECT_TRUE(all.at("d").type == S_IFDIR || all.at("d").type == 0);
}

TEST_P(BackingNamesTest, ListingContinuesAtAnOffset) {
  for (int i = 0; i < 20; ++i) MakeFile(absl::StrCat("f", i));
  ASSERT_TRUE(backing().SeekDir(root(), 0).ok());
  const auto first = backing().ReadDirents(root());
  ASSERT_TRUE(first.ok());
  ASSERT_EQ(first->size(), 22u);
  EXPECT_TRUE(backing().ReadDirents(root())->empty());
  ASSERT_TRUE(backing().SeekDir(root(), (*first)[9].next_offset).ok());
  const auto rest = backing().ReadDirents(root());
  ASSERT_EQ(rest->size(), 12u);
  EXPECT_EQ((*rest)[0].name, (*first)[10].name);
  EXPECT_EQ(Errno(backing().ReadDirents(Open("f1", O_RDONLY).get())), ENOTDIR);
}

TEST_P(BackingNamesTest, EmptyDirectoryIsEmpty) {
  MakeDir("d");
  const BackingFd d = Open("d");
  EXPECT_TRUE(*backing().IsEmptyDir(d.get()));
  ASSERT_TRUE(backing().MakeNode(d.get(), "f", S_IFREG | 0644, 0).ok());
  EXPECT_FALSE(*backing().IsEmptyDir(d.get()));
}

TEST_P(BackingNamesTest, PathFollowsARename) {
  MakeDir("d");
  MakeFile("f");
  const BackingFd f = Open("f");
  const std::string top = *backing().PathOf(root());
  EXPECT_EQ(*backing().PathOf(f.get()), top + "/f");
  ASSERT_TRUE(backing().Rename(root(), "f", Open("d").get(), "g", 0).ok());
  EXPECT_EQ(*backing().PathOf(f.get()), top + "/d/g");
}

TEST_P(BackingNamesTest, ImmutableDirectoryKeepsItsNames) {
  MakeDir("d");
  MakeFile("out");
  const BackingFd d = Open("d");
  ASSERT_TRUE(backing().MakeNode(d.get(), "f", S_IFREG | 0644, 0).ok());
  SetMarks("d", {.immutable = true});
  EXPECT_EQ(Errno(backing().MakeNode(d.get(), "g", S_IFREG | 0644, 0)), EPERM);
  EXPECT_EQ(Errno(backing().Unlink(d.get(), "f", 0)), EPERM);
  EXPECT_EQ(Errno(backing().Rename(d.get(), "f", root(), "f", 0)), EPERM);
  EXPECT_EQ(Errno(backing().Rename(root(), "out", d.get(), "in", 0)), EPERM);
  SetMarks("d", {.append_only = true});
  EXPECT_EQ(Errno(backing().MakeNode(d.get(), "g", S_IFREG | 0644, 0)), 0);
  EXPECT_EQ(Errno(backing().Unlink(d.get(), "f", 0)), EPERM);
  SetMarks("d", {});
}

TEST_P(BackingNamesTest, DotDotLeadsToTheDirectoryAbove) {
  MakeDir("d");
  const BackingFd d = Open("d");
  ASSERT_TRUE(backing().MkdirAt(d.get(), "e", 0755).ok());
  auto e = backing().OpenAt(d.get(), "e", O_PATH | O_DIRECTORY);
  ASSERT_TRUE(e.ok());
  const auto above = [this](int fd) {
    auto opened = backing().OpenAt(fd, "..", O_PATH | O_DIRECTORY);
    SALIUS_CHECK_OK(opened);
    return backing().Stat(opened->get())->st_ino;
  };
  EXPECT_EQ(above(e->get()), backing().Stat(d.get())->st_ino);
  EXPECT_EQ(above(d.get()), backing().Stat(root())->st_ino);
  // It follows a rename.
  MakeDir("x");
  const BackingFd x = Open("x");
  ASSERT_TRUE(backing().Rename(d.get(), "e", x.get(), "e", 0).ok());
  EXPECT_EQ(above(e->get()), backing().Stat(x.get())->st_ino);
}

SALIUS_IN_EVERY_WORLD(BackingNamesTest);

}  // namespace
}  // namespace salius
