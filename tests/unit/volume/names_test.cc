// Names: create, link, unlink, rename, and the names that callers see.
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>

#include <set>
#include <string>
#include <thread>

#include "tests/unit/volume/volume_fixture.h"

namespace salius {
namespace {

class NamesTest : public VolumeFixture {
 protected:
  std::set<std::string> List(Node& dir) {
    auto handle = volume->open_files().OpenDir(dir);
    SALIUS_CHECK_OK(handle);
    std::set<std::string> names;
    SALIUS_CHECK_OK(volume->names().ReadDir(**handle, 0, [&](const DirEntry& entry) {
      names.insert(entry.name);
      return true;
    }));
    volume->open_files().Release(*handle);
    return names;
  }
  int Rename(const std::string& from, const std::string& to, uint32_t flags = 0) {
    return Errno(volume->names().Rename(root(), from, root(), to, flags));
  }
  int LookupErrno(const std::string& name) {
    auto entry = volume->names().Lookup(root(), name);
    if (entry.ok()) volume->names().Forget(*entry->node, 1);
    return Errno(entry);
  }
};

TEST_F(NamesTest, NewObjectsAreOnTheBackingFileSystemWithOwnerModeAndId) {
  Make();
  auto file = volume->names().MakeNode(root(), "f", S_IFREG | 0666, 0, caller);
  ASSERT_TRUE(file.ok()) << file.status();
  auto dir = volume->names().MakeDir(root(), "d", 0777, caller);
  ASSERT_TRUE(dir.ok());
  auto link = volume->names().Symlink(*dir->node, "l", "../f", caller);
  ASSERT_TRUE(link.ok());
  auto fifo = volume->names().MakeNode(*dir->node, "p", S_IFIFO | 0622, 0, caller);
  ASSERT_TRUE(fifo.ok());
  EXPECT_EQ(file->attr.st_mode, static_cast<mode_t>(S_IFREG | 0644));
  EXPECT_EQ(dir->attr.st_mode, static_cast<mode_t>(S_IFDIR | 0755));
  EXPECT_EQ(fifo->attr.st_mode, static_cast<mode_t>(S_IFIFO | 0600));
  EXPECT_EQ(file->attr.st_uid, 1000u);
  EXPECT_EQ(file->attr.st_gid, 1000u);
  auto target = volume->names().ReadLink(*link->node);
  ASSERT_TRUE(target.ok());
  EXPECT_EQ(*target, "../f");
  EXPECT_EQ(Errno(volume->names().ReadLink(*file->node)), EINVAL);
  EXPECT_NE(IdOf("d/l"), kNoFileId);
}

TEST_F(NamesTest, SaliusOwnDirectoryIsInvisible) {
  Make();
  EXPECT_EQ(LookupErrno(".salius"), ENOENT);
  EXPECT_EQ(List(root()).count(".salius"), 0u);
  EXPECT_EQ(Errno(volume->names().MakeDir(root(), ".salius", 0755, caller)), EPERM);
  EXPECT_EQ(Errno(volume->names().CreateFile(root(), ".salius", O_RDWR, 0644, caller)), EPERM);
  EXPECT_EQ(Errno(volume->names().RemoveDir(root(), ".salius")), ENOENT);
  EXPECT_EQ(Errno(volume->names().Unlink(root(), ".salius")), ENOENT);
  EXPECT_EQ(Rename(".salius", "x"), ENOENT);
  Node& dir = Dir(root(), "d");
  EXPECT_EQ(Rename("d", ".salius"), EPERM);
  EXPECT_EQ(Rename("d", ".salius", RENAME_EXCHANGE), EPERM);
  // In another directory the name is an ordinary one.
  EXPECT_EQ(Errno(volume->names().MakeDir(dir, ".salius", 0755, caller)), 0);
  EXPECT_EQ(List(dir).count(".salius"), 1u);
}

TEST_F(NamesTest, NamesThatCannotBeAreRefused) {
  Make();
  const std::string long_name(256, 'n');
  EXPECT_EQ(LookupErrno(long_name), ENAMETOOLONG);
  EXPECT_EQ(Errno(volume->names().MakeDir(root(), long_name, 0755, caller)), ENAMETOOLONG);
  EXPECT_EQ(Errno(volume->names().MakeDir(root(), std::string(255, 'n'), 0755, caller)), 0);
  EXPECT_EQ(Errno(volume->names().MakeDir(root(), "", 0755, caller)), ENOENT);
  EXPECT_EQ(Errno(volume->names().MakeDir(root(), "a/b", 0755, caller)), EINVAL);
  EXPECT_EQ(Errno(volume->names().MakeDir(root(), "..", 0755, caller)), EEXIST);
  EXPECT_EQ(Errno(volume->names().Symlink(root(), "l", "", caller)), ENOENT);
  EXPECT_EQ(Errno(volume->names().Symlink(root(), "l", std::string(4096, 't'), caller)),
            ENAMETOOLONG);
  EXPECT_EQ(Errno(volume->names().MakeNode(root(), "d", S_IFDIR | 0755, 0, caller)), EINVAL);
}

TEST_F(NamesTest, MakingAnExistingNameOrInAFileIsRefused) {
  Make();
  volume->open_files().Release(Create("f"));
  Node& file = Find("f");
  EXPECT_EQ(Errno(volume->names().MakeDir(root(), "f", 0755, caller)), EEXIST);
  EXPECT_EQ(Errno(volume->names().Link(file, root(), "f")), EEXIST);
  EXPECT_EQ(Errno(volume->names().MakeDir(file, "x", 0755, caller)), ENOTDIR);
  EXPECT_EQ(Errno(volume->names().Lookup(file, "x")), ENOTDIR);
  EXPECT_EQ(Errno(volume->names().Link(Dir(root(), "d"), root(), "e")), EPERM);
}

TEST_F(NamesTest, UnlinkAndRmdirRefuseTheWrongKind) {
  Make();
  volume->open_files().Release(Create("f"));
  Node& dir = Dir(root(), "d");
  volume->open_files().Release(Create(dir, "inner"));
  EXPECT_EQ(Errno(volume->names().Unlink(root(), "d")), EISDIR);
  EXPECT_EQ(Errno(volume->names().RemoveDir(root(), "f")), ENOTDIR);
  EXPECT_EQ(Errno(volume->names().RemoveDir(root(), "d")), ENOTEMPTY);
  EXPECT_EQ(Errno(volume->names().RemoveDir(root(), ".")), EINVAL);
  EXPECT_EQ(Errno(volume->names().RemoveDir(root(), "..")), ENOTEMPTY);
  EXPECT_EQ(Errno(volume->names().Unlink(root(), "nothing")), ENOENT);
  EXPECT_EQ(Errno(volume->names().Unlink(dir, "inner")), 0);
  EXPECT_EQ(Errno(volume->names().RemoveDir(root(), "d")), 0);
  EXPECT_EQ(Errno(volume->names().MakeDir(dir, "late", 0755, caller)), ENOENT);
  EXPECT_EQ(LookupErrno("d"), ENOENT);
}

TEST_F(NamesTest, RenameLeavesAWhiteout) {
  Make();
  Handle* const a = Create("a");
  Write(a, 0, "A");
  volume->open_files().Release(Create("b"));
  EXPECT_EQ(Errno(volume->names().Rename(root(), "a", root(), "b",
                                         RENAME_WHITEOUT | RENAME_NOREPLACE, caller)),
            EEXIST);
  ASSERT_EQ(Errno(volume->names().Rename(root(), "a", root(), "b", RENAME_WHITEOUT, caller)), 0);
  EXPECT_EQ(&Find("b"), &a->node);
  struct stat st = Stat(Find("a"));
  EXPECT_EQ(st.st_mode, static_cast<mode_t>(S_IFCHR));
  EXPECT_EQ(st.st_rdev, 0u);
  EXPECT_EQ(st.st_uid, caller.uid);
  EXPECT_NE(IdOf("a"), kNoFileId);
  // It is an ordinary object.
  EXPECT_EQ(Rename("a", "c"), 0);
  EXPECT_EQ(Errno(volume->names().Unlink(root(), "c")), 0);
  EXPECT_EQ(LookupErrno("a"), ENOENT);
  volume->open_files().Release(a);
}

TEST_F(NamesTest, RenameMovesReplacesAndExchanges) {
  Make();
  Handle* const a = Create("a");
  Write(a, 0, "A");
  Handle* const b = Create("b");
  Write(b, 0, "B");
  EXPECT_EQ(Rename("a", "b", RENAME_NOREPLACE), EEXIST);
  EXPECT_EQ(Rename("a", "c", RENAME_NOREPLACE), 0);
  EXPECT_EQ(&Find("c"), &a->node);
  EXPECT_EQ(Rename("c", "b", RENAME_EXCHANGE), 0);
  EXPECT_EQ(&Find("b"), &a->node);
  EXPECT_EQ(&Find("c"), &b->node);
  EXPECT_EQ(Rename("b", "c"), 0);
  EXPECT_EQ(LookupErrno("b"), ENOENT);
  EXPECT_EQ(&Find("c"), &a->node);
  EXPECT_EQ(Stat(b->node).st_nlink, 0u);
  EXPECT_EQ(Read(b, 0, 10), "B");
  volume->open_files().Release(a);
  volume->open_files().Release(b);
}

TEST_F(NamesTest, RenameBetweenDirectories) {
  Make();
  Node& d = Dir(root(), "d");
  Node& e = Dir(d, "e");
  Handle* const file = Create(d, "f");
  EXPECT_EQ(Errno(volume->names().Rename(d, "f", e, "g", 0)), 0);
  EXPECT_EQ(&Find(e, "g"), &file->node);
  EXPECT_EQ(Errno(volume->names().Rename(d, "e", root(), "top", 0)), 0);
  EXPECT_EQ(&Find("top"), &e);
  Write(file, 0, "moved", Contract::kDurable);
  volume->open_files().Release(file);
  Close();
  EXPECT_EQ(BackingContent("top/g"), "moved");
}

TEST_F(NamesTest, RenameRefusesLikeTheKernel) {
  Make();
  Node& d = Dir(root(), "d");
  Node& inner = Dir(d, "inner");
  Dir(root(), "empty");
  volume->open_files().Release(Create("f"));
  EXPECT_EQ(Rename("nothing", "x"), ENOENT);
  EXPECT_EQ(Rename("f", "x", RENAME_EXCHANGE), ENOENT);
  EXPECT_EQ(Rename("f", "x", RENAME_WHITEOUT | RENAME_EXCHANGE), EINVAL);
  EXPECT_EQ(Rename("f", "x", RENAME_NOREPLACE | RENAME_EXCHANGE), EINVAL);
  EXPECT_EQ(Rename(".", "x"), EBUSY);
  EXPECT_EQ(Rename("f", ".."), EBUSY);
  EXPECT_EQ(Rename("d", "f"), ENOTDIR);
  EXPECT_EQ(Rename("f", "empty"), EISDIR);
  EXPECT_EQ(Rename("empty", "d"), ENOTEMPTY);
  EXPECT_EQ(Errno(volume->names().Rename(root(), "d", inner, "x", 0)), EINVAL);
  EXPECT_EQ(Errno(volume->names().Rename(root(), "d", d, "x", 0)), EINVAL);
  EXPECT_EQ(Errno(volume->names().Rename(d, "inner", root(), "d", 0)), ENOTEMPTY);
  EXPECT_EQ(Errno(volume->names().Rename(d, "inner", root(), "d", RENAME_EXCHANGE)), EINVAL);
  EXPECT_EQ(Errno(volume->names().Rename(Find("f"), "x", root(), "y", 0)), ENOTDIR);
  EXPECT_EQ(Rename("d", "empty"), 0);  // over an empty directory
  EXPECT_EQ(&Find("empty"), &d);
}

// No path leads there: the kernel takes none that is longer than 4095 bytes.
TEST_F(NamesTest, RenameDeeperThanAnyPath) {
  Make();
  Node* deep = &root();
  for (int i = 0; i < 20; ++i) deep = &Dir(*deep, std::string(250, 'd'));
  Dir(*deep, "a");
  EXPECT_EQ(Errno(volume->names().Rename(*deep, "a", *deep, "b", 0)), 0);
  Node& outer = Dir(*deep, "outer");
  ASSERT_EQ(Errno(volume->names().Rename(*deep, "b", outer, "inner", 0)), 0);
  Node& inner = Find(outer, "inner");
  EXPECT_EQ(Errno(volume->names().Rename(*deep, "outer", outer, "x", 0)), EINVAL);
  EXPECT_EQ(Errno(volume->names().Rename(*deep, "outer", inner, "x", 0)), EINVAL);
  Dir(inner, "x");
  EXPECT_EQ(Errno(volume->names().Rename(inner, "x", *deep, "outer", 0)), ENOTEMPTY);
  EXPECT_EQ(Errno(volume->names().Rename(inner, "x", *deep, "outer", RENAME_EXCHANGE)), EINVAL);
  EXPECT_EQ(Errno(volume->names().Rename(*deep, "outer", root(), "outer", 0)), 0);
}

TEST_F(NamesTest, RenameOfOneFileOntoItsOtherNameDoesNothing) {
  Make();
  volume->open_files().Release(Create("a"));
  ASSERT_TRUE(volume->names().Link(Find("a"), root(), "b").ok());
  const Seq issued = volume->stream().watermarks().issued;
  EXPECT_EQ(Rename("a", "b"), 0);
  EXPECT_EQ(Rename("a", "a"), 0);
  EXPECT_EQ(LookupErrno("a"), 0);
  EXPECT_EQ(volume->stream().watermarks().issued, issued);
}

TEST_F(NamesTest, FilesThatWereThereBeforeAreAdoptedAtTheirFirstChange) {
  MakeClosed();
  if (IsSkipped()) return;
  MakeBackingDir("old");
  MakeBackingDir("old/deep");
  MakeBackingFile("old/deep/f", "text");
  Open();
  Node& deep = Find(Find("old"), "deep");
  Handle* const file = OpenFile(Find(deep, "f"));
  EXPECT_EQ(Read(file, 0, 10), "text");
  EXPECT_EQ(IdOf("old/deep/f"), kNoFileId);
  Write(file, 4, "!", Contract::kDurable);
  ASSERT_TRUE(volume->stream().Checkpoint().ok());
  const FileId id = IdOf("old/deep/f");
  EXPECT_NE(id, kNoFileId);
  EXPECT_EQ(IdOf("old/deep"), kNoFileId);
  ASSERT_TRUE(volume->names().Rename(deep, "f", root(), "g", 0).ok());
  EXPECT_NE(IdOf("old/deep"), kNoFileId);
  EXPECT_EQ(IdOf("g"), id);
  volume->open_files().Release(file);
  // The id outlives the session.
  Close();
  Open();
  Handle* const again = OpenFile(Find("g"));
  Write(again, 0, "T", Contract::kDurable);
  volume->open_files().Release(again);
  Close();
  EXPECT_EQ(IdOf("g"), id);
  EXPECT_EQ(BackingContent("g"), "Text!");
}

class CopiedTest : public NamesTest {
 protected:
  // Makes files "a" and "b" in a session, closes it, and returns the id of both.
  FileId MakeTwoWithOneId() {
    Make();
    volume->open_files().Release(Create("a"));
    volume->open_files().Release(Create("b"));
    Close();
    const FileId id = IdOf("a");
    SetId("b", id);
    return id;
  }
};

TEST_F(CopiedTest, IdIsReplaced) {
  const FileId id = MakeTwoWithOneId();
  MakeBackingFile("c");
  SetId("c", uint64_t{1} << 60);
  Open();
  for (const char* name : {"a", "b", "c"}) {
    Handle* const file = OpenFile(Find(name));
    Write(file, 0, name, Contract::kDurable);
    volume->open_files().Release(file);
  }
  ASSERT_TRUE(volume->stream().Checkpoint().ok());
  EXPECT_EQ(IdOf("a"), id);
  EXPECT_NE(IdOf("b"), id);
  EXPECT_LT(IdOf("c"), uint64_t{1} << 60);
}

// The file's node is gone, but its records are in the log.
TEST_F(CopiedTest, IdIsReplacedWhereTheFirstFileWasRemovedBefore) {
  const FileId id = MakeTwoWithOneId();
  Open();
  Node& removed = Find("b");
  Handle* file = OpenFile(removed);
  Write(file, 0, "b", Contract::kDurable);
  volume->open_files().Release(file);
  ASSERT_EQ(Errno(volume->names().Unlink(root(), "b")), 0);
  volume->names().Forget(removed, 1);
  file = OpenFile(Find("a"));
  Write(file, 0, "a", Contract::kDurable);
  volume->open_files().Release(file);
  EXPECT_NE(IdOf("a"), id);
}

TEST_F(NamesTest, AdoptionOfAnImmutableFileFailsTheCallAndNotTheVolume) {
  MakeClosed();
  if (IsSkipped()) return;
  MakeBackingFile("f");
  SetMarks("f", {.immutable = true});
  Open();
  EXPECT_EQ(Errno(volume->names().Unlink(root(), "f")), EPERM);
  EXPECT_EQ(LookupErrno("f"), 0);
  EXPECT_EQ(Errno(volume->names().MakeDir(root(), "d", 0755, caller)), 0);
  SetMarks("f", {});
  EXPECT_EQ(Errno(volume->names().Unlink(root(), "f")), 0);
}

TEST_F(NamesTest, SetgidDirectoryHandsItsGroupDown) {
  Make();
  Node& dir = Dir(root(), "d");
  struct stat want {};
  want.st_mode = 02775;
  want.st_gid = 77;
  ASSERT_TRUE(volume->attrs().SetAttr(dir, kSetMode | kSetGid, want).ok());
  auto file = volume->names().MakeNode(dir, "f", S_IFREG | 0644, 0, caller);
  ASSERT_TRUE(file.ok());
  EXPECT_EQ(file->attr.st_gid, 77u);
  EXPECT_EQ(file->attr.st_mode & S_ISGID, 0u);
  auto inner = volume->names().MakeDir(dir, "s", 0755, caller);
  ASSERT_TRUE(inner.ok());
  EXPECT_EQ(inner->attr.st_gid, 77u);
  EXPECT_NE(inner->attr.st_mode & S_ISGID, 0u);
  auto program = volume->names().MakeNode(dir, "x", S_IFREG | 02755, 0, caller);
  ASSERT_TRUE(program.ok());
  EXPECT_EQ(program->attr.st_mode & S_ISGID, 0u);
  Caller member = caller;
  member.groups = {5, 77};
  program = volume->names().MakeNode(dir, "y", S_IFREG | 02755, 0, member);
  ASSERT_TRUE(program.ok());
  EXPECT_NE(program->attr.st_mode & S_ISGID, 0u);
}

TEST_F(NamesTest, ForgottenNodesAreFreedAndFoundAgain) {
  Make();
  Handle* const file = Create("a");
  Write(file, 0, "kept");
  Node& node = file->node;
  volume->open_files().Release(file);
  volume->names().Forget(node, 1);
  Handle* const again = OpenFile(Find("a"));
  EXPECT_EQ(Read(again, 0, 10), "kept");
  volume->open_files().Release(again);
}

TEST_F(NamesTest, ConcurrentRenamesOfEverythingKeepEveryFile) {
  Make();
  constexpr int kThreads = 4;
  Node& a = Dir(root(), "a");
  Node& b = Dir(root(), "b");
  for (int i = 0; i < kThreads; ++i) volume->open_files().Release(Create(a, std::to_string(i)));
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&, i] {
      const std::string name = std::to_string(i);
      for (int round = 0; round < 50; ++round) {
        Node& from = round % 2 == 0 ? a : b;
        Node& to = round % 2 == 0 ? b : a;
        EXPECT_EQ(Errno(volume->names().Rename(from, name, to, name, 0)), 0);
        const std::string dir = "dir" + name;
        EXPECT_EQ(Errno(volume->names().MakeDir(to, dir, 0755, caller)), 0);
        EXPECT_EQ(Errno(volume->names().RemoveDir(to, dir)), 0);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(List(a).size(), 2u + kThreads);
  EXPECT_EQ(List(b).size(), 2u);
}

}  // namespace
}  // namespace salius
