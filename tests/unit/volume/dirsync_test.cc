// Operations on names that wait although they could return early: dirsync, of the mount and of a
// directory. The stream applies nothing by itself.
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>

#include <string>

#include "common/metrics.h"
#include "tests/unit/volume/fake_stream.h"
#include "tests/unit/volume/volume_fixture.h"

namespace salius {
namespace {

class DirsyncTest : public VolumeFixture {
 protected:
  void SetUp() override {
    early = true;
    Make();
  }

  // Makes a directory, and returns whether that waited until it was durable and applied.
  bool Waits(Node& dir, const std::string& name) {
    EXPECT_EQ(Errno(volume->names().MakeDir(dir, name, 0755, caller)), 0);
    return IsLastApplied();
  }
  bool IsLastApplied() {
    FakeStream& fake = FakeOf(volume->stream());
    const Seq last = fake.Issued().back()->seq();
    return fake.applied >= last && fake.durable >= last;
  }
  static double Waited(const std::string& reason) {
    return GetCounter("salius_volume_name_waits_total", "", {{"reason", reason}}).Value();
  }
};

TEST_F(DirsyncTest, MarkOfADirectoryCountsFromTheNextOperationOn) {
  if (IsSkipped()) return;
  MakeBackingDir("d");
  Node& d = Find("d");
  const double waited = Waited("dirsync");
  EXPECT_FALSE(Waits(d, "a"));
  SetDirsync("d", true);
  EXPECT_TRUE(Waits(d, "b"));
  EXPECT_FALSE(Waits(root(), "other")) << "another directory";
  EXPECT_EQ(Waited("dirsync"), waited + 1);
  SetDirsync("d", false);
  EXPECT_FALSE(Waits(d, "c"));
  EXPECT_EQ(Waited("dirsync"), waited + 1);
}

// Recovery in the same life trusts what counts as applied.
TEST_F(DirsyncTest, WhiteoutThatGetsNoOwnerIsNotApplied) {
  if (IsSkipped() || memory == nullptr) return;
  MakeBackingDir("d");
  Node& d = Find("d");
  SetDirsync("d", true);
  volume->open_files().Release(VolumeFixture::Create(d, "f"));
  memory->FailNth(MemoryBacking::Call::kSetXattr, 1, ENOSPC);
  EXPECT_NE(Errno(volume->names().Rename(d, "f", d, "g", RENAME_WHITEOUT, caller)), 0);
  FakeStream& fake = FakeOf(volume->stream());
  EXPECT_LT(fake.applied, fake.Issued(Op::kRename).back()->seq());
}

TEST_F(DirsyncTest, EveryKindOfOperationWaits) {
  if (IsSkipped()) return;
  MakeBackingDir("d");
  MakeBackingDir("e");
  Node& d = Find("d");
  Node& e = Find("e");
  SetDirsync("d", true);
  NameOps& names = volume->names();
  volume->open_files().Release(VolumeFixture::Create(d, "f"));
  EXPECT_TRUE(IsLastApplied()) << "create";
  ASSERT_EQ(Errno(names.Symlink(d, "l", "target", caller)), 0);
  EXPECT_TRUE(IsLastApplied()) << "symlink";
  ASSERT_EQ(Errno(names.Link(Find(d, "f"), d, "g")), 0);
  EXPECT_TRUE(IsLastApplied()) << "link";
  ASSERT_EQ(Errno(names.Rename(d, "g", d, "h", 0)), 0);
  EXPECT_TRUE(IsLastApplied()) << "rename";
  ASSERT_EQ(Errno(names.Rename(d, "h", e, "h", 0)), 0);
  EXPECT_TRUE(IsLastApplied()) << "rename to another directory";
  ASSERT_EQ(Errno(names.Rename(e, "h", d, "h", 0)), 0);
  EXPECT_TRUE(IsLastApplied()) << "rename from another directory";
  ASSERT_EQ(Errno(names.Unlink(d, "h")), 0);
  EXPECT_TRUE(IsLastApplied()) << "unlink";
  EXPECT_TRUE(Waits(d, "sub"));
  ASSERT_EQ(Errno(names.RemoveDir(d, "sub")), 0);
  EXPECT_TRUE(IsLastApplied()) << "rmdir";
}

TEST_F(DirsyncTest, DirectoryInheritsTheMark) {
  if (IsSkipped()) return;
  MakeBackingDir("d");
  Node& d = Find("d");
  EXPECT_FALSE(Waits(d, "before"));
  SetDirsync("d", true);
  EXPECT_TRUE(Waits(d, "sub"));
  EXPECT_TRUE(Waits(Find(d, "sub"), "below"));
  EXPECT_TRUE(Waits(Find(Find(d, "sub"), "below"), "deeper"));
  EXPECT_FALSE(Waits(Find(d, "before"), "other")) << "made before the mark";
}

TEST_F(DirsyncTest, OptionOfTheMountCountsForEveryDirectory) {
  if (IsSkipped()) return;
  Close();
  dirsync = true;
  Open();
  EXPECT_TRUE(Waits(root(), "a"));
  EXPECT_TRUE(Waits(Find("a"), "b"));
  volume->name_waits().SetDirsync(false);  // remount without sync
  EXPECT_FALSE(Waits(root(), "c"));
  volume->name_waits().SetDirsync(true);
  EXPECT_TRUE(Waits(root(), "d"));
}

TEST_F(DirsyncTest, OperationThatWaitsTakesEarlierNamesAlong) {
  if (IsSkipped()) return;
  MakeBackingDir("d");
  SetDirsync("d", true);
  EXPECT_FALSE(Waits(root(), "early"));
  EXPECT_GE(volume->pending_names().size().entries, 1u);
  EXPECT_GT(volume->pending_names().size().bytes, 0u);
  EXPECT_TRUE(Waits(Find("d"), "late"));
  EXPECT_EQ(volume->pending_names().size().entries, 0u);
  EXPECT_EQ(volume->pending_names().size().bytes, 0u);
  EXPECT_TRUE(IsThere("early"));
}

TEST_F(DirsyncTest, DirectoryThatIsMovedWhileItGetsASubdirectoryCountsIt) {
  if (IsSkipped()) return;
  MakeBackingDir("d");
  MakeBackingDir("d/moved");
  Node& d = Find("d");
  Node& moved = Find(d, "moved");
  SetDirsync("d", true);
  FakeStream& fake = FakeOf(volume->stream());
  int made = -1;
  fake.on_wait_durable = [&](Seq) {
    if (made == -1) made = Errno(volume->names().MakeDir(moved, "sub", 0755, caller));
  };
  ASSERT_EQ(Errno(volume->names().Rename(d, "moved", d, "to", 0)), 0);
  fake.on_wait_durable = nullptr;
  ASSERT_EQ(made, 0);
  EXPECT_FALSE(IsLastApplied());
  const nlink_t links = Stat(moved).st_nlink;
  ASSERT_EQ(Errno(fake.WaitApplied(fake.Issued().back()->seq())), 0);
  EXPECT_EQ(Stat(moved).st_nlink, links);
}

TEST_F(DirsyncTest, LinkToAFileWithManyNamesWaitsAndIsCounted) {
  if (IsSkipped()) return;
  MakeBackingFile("f");
  Node& f = Find("f");
  const double waited = Waited("operation");
  for (int i = 1; i < 100; ++i) {
    ASSERT_EQ(Errno(volume->names().Link(f, root(), "f" + std::to_string(i))), 0);
  }
  EXPECT_EQ(Waited("operation"), waited);
  ASSERT_EQ(Errno(volume->names().Link(f, root(), "more")), 0);
  EXPECT_TRUE(IsLastApplied());
  EXPECT_EQ(Waited("operation"), waited + 1);
}

}  // namespace
}  // namespace salius
