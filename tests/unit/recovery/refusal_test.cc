// Replay when the file system refuses a change of the log: changes that are left out, and changes
// that stop it.
#include "recovery/replay/refusal.h"

#include <string>

#include "tests/unit/recovery/refusal_testing.h"

namespace salius::recovery {
namespace {

// The file system refused it to the session too, which died before it had cancelled it.
TEST(RefusalOnExt3Test, AnAllocationThatTheFileSystemDoesNotKnowIsRefusedNotFatal) {
  LoopExt4 disk(16, "-O ^extent,^64bit");
  if (!disk.mounted()) GTEST_SKIP() << "needs root and a loop device";
  Tree tree(disk.path());
  WriteFile(tree.At("f"), "x");
  tree.SetId("f", 50);
  Stamper stamper(7);
  stamper.Stamp(Op::kFallocate, 50, "", 0, 4096);
  ASSERT_OK(tree.Run(stamper));
  EXPECT_EQ(tree.report.refused.size(), 1u);
  EXPECT_EQ(ReadFile(tree.At("f")), "x");
}

// ext4 takes no target that does not fit into a block.
TEST(RefusalOnSmallBlocksTest, SymlinkWithTooLongATargetIsLeftOut) {  // R60
  LoopExt4 disk(16, "-b 1024");
  if (!disk.mounted()) GTEST_SKIP() << "needs root and a loop device";
  Tree tree(disk.path());
  CreateBody body;
  body.dir = kRoot;
  body.name = "link";
  body.mode = S_IFLNK | 0777;
  body.symlink_target = std::string(1100, 't');
  Stamper stamper(7);
  stamper.Stamp(Op::kCreate, 50, body.Encode());
  ASSERT_OK(tree.Run(stamper));
  EXPECT_EQ(tree.report.refused.size(), 1u);
  EXPECT_FALSE(Exists(tree.At("link")));
}

// Tests with EMLINK of ext4.
class MostLinksTest : public RefusalTest {
 protected:
  void SetUp() override {
    RefusalTest::SetUp();
    if (IsSkipped()) return;
    mkdir(tree_->At("links").c_str(), 0755);
    const std::string file = tree_->At("f");
    for (int i = 1; i < 65000; ++i) {
      ASSERT_EQ(link(file.c_str(), tree_->At("links/" + std::to_string(i)).c_str()), 0) << i;
    }
  }
};

TEST_F(MostLinksTest, OneMoreIsLeftOut) {  // R60
  s_.Chmod(kFile, 0600);
  s_.Link(kFile, kRoot, "more");
  ASSERT_OK(tree_->Run(s_));
  EXPECT_EQ(tree_->report.refused.size(), 1u);
  EXPECT_FALSE(Exists(tree_->At("more")));
  EXPECT_EQ(tree_->Stat("f").st_mode & 07777u, 0600u);
}

// In any order of names and directories the last link was refused, not the one before it.
TEST_F(MostLinksTest, LinkPastTheLimitIsLeftOutAndEarlierOnesStay) {
  for (const FileId id : {FileId{60}, FileId{61}}) {
    const std::string name = "d" + std::to_string(id);
    mkdir(tree_->At(name).c_str(), 0755);
    tree_->SetId(name, id);
  }
  for (const bool renamed : {false, true}) {
    for (const FileId other : {kRoot, FileId{60}}) {
      SCOPED_TRACE(absl::StrCat(renamed, " ", other));
      const std::string c = other == kRoot ? "c" : "d61/c", b = other == kRoot ? "b" : "d60/b";
      const FileId c_dir = other == kRoot ? kRoot : FileId{61};
      Stamper s(7);
      if (renamed) {
        s.Rename(kFile, kRoot, "f", c_dir, "c");
      } else {
        ASSERT_EQ(unlink(tree_->At("links/1").c_str()), 0);
        s.Link(kFile, c_dir, "c");
      }
      s.Link(kFile, other, "b");
      for (int round = 0; round < 2; ++round) {
        ASSERT_OK(tree_->Run(s));
        EXPECT_EQ(tree_->report.refused.size(), 1u);
        EXPECT_TRUE(Exists(tree_->At(c)));
        EXPECT_FALSE(Exists(tree_->At(b)));
      }
      if (renamed) {
        ASSERT_EQ(rename(tree_->At(c).c_str(), tree_->At("f").c_str()), 0);
      } else {
        ASSERT_EQ(rename(tree_->At(c).c_str(), tree_->At("links/1").c_str()), 0);
      }
    }
  }
}

TEST_F(MostLinksTest, OneMoreBehindWhichTheDirectoryChangesIsAnError) {  // R61
  s_.Link(kFile, kRoot, "more");
  s_.CreateFile(60, kRoot, "later");
  EXPECT_EQ(StatusErrno(tree_->Run(s_)), EMLINK);
}

TEST_F(MostLinksTest, OneMoreBehindWhichTheFileChangesIsAnError) {
  s_.Link(kFile, kRoot, "more");
  s_.Chmod(kFile, 0600);
  EXPECT_EQ(StatusErrno(tree_->Run(s_)), EMLINK);
  EXPECT_TRUE(tree_->report.refused.empty());
}

TEST_F(MostLinksTest, OneMoreBehindWhichACancelledOneFollowsIsAnError) {
  s_.Link(kFile, kRoot, "more");
  s_.CreateFile(60, kRoot, "later");
  s_.Cancel(2);
  EXPECT_EQ(StatusErrno(tree_->Run(s_)), EMLINK);
}

TEST_F(MostLinksTest, ARenameNeedsNoMore) {
  s_.Rename(kFile, kRoot, "f", kRoot, "g");
  ASSERT_OK(tree_->Run(s_));
  EXPECT_TRUE(tree_->report.refused.empty());
  EXPECT_FALSE(Exists(tree_->At("f")));
  EXPECT_EQ(tree_->Stat("g").st_nlink, 65000u);
}

// The session was not refused the steps that only replay makes.
TEST(RefusalOnExt3Test, IntermediateDirectoryWithoutRoomIsNotLeftOut) {
  LoopExt4 disk(160, "-b 1024 -O ^dir_nlink -N 70000");
  if (!disk.mounted()) GTEST_SKIP() << "needs root and a loop device";
  Tree tree(disk.path());
  const auto make = [&](const std::string& name) { return mkdir(tree.At(name).c_str(), 0755); };
  ASSERT_EQ(make("d"), 0);
  tree.SetId("d", 50);
  int made = 0;
  while (make(".salius/tmp/" + std::to_string(made)) == 0) ++made;
  ASSERT_EQ(errno, EMLINK) << made;
  Stamper stamper(7);
  stamper.Unlink(50, kRoot, "d", /*directory=*/true);
  EXPECT_EQ(StatusErrno(tree.Run(stamper)), EMLINK);
  EXPECT_TRUE(tree.report.refused.empty());
  ASSERT_OK(tree.Clean());
  ASSERT_OK(tree.Run(stamper));
  EXPECT_FALSE(Exists(tree.At("d")));
}

// An ext4 that was an ext3 has EMLINK for directories.
TEST(RefusalOnExt3Test, ADirectoryThatFindsNoRoomAmongOthersStaysWhereItWas) {
  LoopExt4 disk(160, "-b 1024 -O ^dir_nlink -N 70000");
  if (!disk.mounted()) GTEST_SKIP() << "needs root and a loop device";
  Tree tree(disk.path());
  const auto make = [&](const std::string& name) { return mkdir(tree.At(name).c_str(), 0755); };
  for (const char* name : {"from", "to", "from/moved", "from/moved/inside"}) {
    ASSERT_EQ(make(name), 0);
  }
  int made = 0;
  while (make("to/" + std::to_string(made)) == 0) ++made;
  ASSERT_EQ(errno, EMLINK) << made;
  tree.SetId("from", 50);
  tree.SetId("to", 51);
  tree.SetId("from/moved", 52);
  Stamper early(7);
  early.awaited = false;
  early.Create(53, 51, "made", S_IFDIR | 0755);
  EXPECT_EQ(StatusErrno(tree.Run(early)), EMLINK) << "its caller has its success";
  EXPECT_TRUE(tree.report.refused.empty());
  ASSERT_OK(tree.Clean());
  Stamper stamper(7);
  stamper.Rename(52, 50, "moved", 51, "moved");
  ASSERT_OK(tree.Run(stamper));
  ASSERT_EQ(tree.report.refused.size(), 1u);
  ASSERT_OK(tree.Clean());
  EXPECT_TRUE(Exists(tree.At("from/moved/inside")));
  EXPECT_TRUE(tree.report.lost_and_found.empty());
}

TEST_F(RefusalTest, AttributesOfAFileThatWasMadeImmutableMeanwhile) {  // R62
  s_.Chmod(kFile, 0600);
  ExpectStoppedByMark("f");
  EXPECT_EQ(tree_->Stat("f").st_mode & 07777u, 0600u);
}

TEST_F(RefusalTest, DataOfAFileThatWasMadeImmutableMeanwhile) {  // R62
  s_.Write(kFile, 0, "new");
  ExpectStoppedByMark("f");
  EXPECT_EQ(ReadFile(tree_->At("f")), "new");
}

TEST_F(RefusalTest, NameInADirectoryThatWasMadeImmutableMeanwhile) {  // R62
  mkdir(tree_->At("d").c_str(), 0755);
  tree_->SetId("d", 60);
  s_.CreateFile(61, 60, "n");
  ExpectStoppedByMark("d");
  EXPECT_TRUE(Exists(tree_->At("d/n")));
}

TEST_F(RefusalTest, AdoptionThatWasRefusedIsNoReasonToStop) {
  WriteFile(tree_->At("old"), "x");
  Mark("old", FS_IMMUTABLE_FL);
  s_.Adopt(70, "old", tree_->HandleAt("old"));
  const absl::Status status = tree_->Run(s_);
  Mark("old", 0);
  ASSERT_OK(status);
  EXPECT_EQ(tree_->IdOf("old"), kNoFileId);
}

}  // namespace
}  // namespace salius::recovery
