// Replay on a file system made for it: a full one, and one without file handles.
#include <optional>

#include "recovery/replay/replay.h"
#include "tests/unit/recovery/replay_testing.h"

namespace salius::recovery {
namespace {

constexpr FileId kRoot = kRootFileId;

TEST(ReplaySpaceTest, TheBallastIsFreedWhenTheDiskIsFull) {  // R63
  LoopExt4 disk(32);
  if (!disk.mounted()) GTEST_SKIP() << "needs root and a loop device";
  Tree tree(disk.path());
  const uint64_t kBallast = 4 << 20;
  {
    const UniqueFd fd = MustOpen(tree.At(".salius/ballast"), O_RDWR | O_CREAT);
    ASSERT_OK(fs::Fallocate(fd.get(), 0, 0, kBallast));
  }
  WriteFile(tree.At("f"), "");
  tree.SetId("f", 50);
  FillDisk(tree.At("filler"));
  Stamper s(1);
  const std::string data(100'000, 'd');
  std::string expected;
  for (int i = 0; i < 20; ++i) {
    s.Write(50, expected.size(), data);
    expected += data;
  }
  ASSERT_OK(tree.Run(s));
  EXPECT_TRUE(tree.report.ballast_used);
  EXPECT_EQ(ReadFile(tree.At("f")), expected);

  // Without a ballast the result is an error, not a wrong file.
  Stamper more(1);
  for (int i = 0; i < 60; ++i)
    more.Write(50, expected.size() + static_cast<uint64_t>(i) * data.size(), data);
  EXPECT_TRUE(absl::IsResourceExhausted(tree.Run(more)));
}

TEST(ReplaySpaceTest, FilesRemovedInTMakeRoomForItsData) {
  LoopExt4 disk(64);
  if (!disk.mounted()) GTEST_SKIP() << "needs root and a loop device";
  Tree tree(disk.path());
  const std::string old(24 << 20, 'o');
  for (const auto& [name, id] : {std::pair{"old", 50}, {"moved", 51}, {"one", 52}}) {
    WriteFile(tree.At(name), id == 50 ? old : name);
    tree.SetId(name, static_cast<FileId>(id));
  }
  ASSERT_EQ(link(tree.At("one").c_str(), tree.At("two").c_str()), 0);
  FillDisk(tree.At("filler"));
  Stamper s(1);
  s.Unlink(50, kRoot, "old");
  s.Unlink(52, kRoot, "one");
  s.Rename(51, kRoot, "moved", kRoot, "here");
  s.CreateFile(60, kRoot, "new");
  const std::string data(100'000, 'd');
  std::string expected;
  for (int i = 0; i < 200; ++i) {
    s.Write(60, expected.size(), data);
    expected += data;
  }
  ASSERT_OK(tree.Run(s));
  EXPECT_EQ(ReadFile(tree.At("new")), expected);
  EXPECT_EQ(ReadFile(tree.At("here")), "moved");
  EXPECT_EQ(ReadFile(tree.At("two")), "one");
  for (const char* gone : {"old", "one", "moved"}) EXPECT_FALSE(Exists(tree.At(gone))) << gone;
  EXPECT_EQ(tree.report.names_removed, 3u);

  // Where that does not suffice the result is an error.
  for (int i = 0; i < 100; ++i) s.Write(60, expected.size() + i * data.size(), data);
  EXPECT_TRUE(absl::IsResourceExhausted(tree.Run(s)));
}

// A full disk, on which 20 MiB are to be written. An id takes a block there.
class FullDiskTest : public ::testing::Test {
 protected:
  explicit FullDiskTest(const std::string& options = "-I 128") : disk_(64, options) {}
  void SetUp() override {
    if (!disk_.mounted()) GTEST_SKIP() << "needs root and a loop device";
    tree_.emplace(disk_.path());
    File("here", kHere, "x");
  }
  void File(const std::string& name, FileId id, const std::string& content) {
    WriteFile(tree_->At(name), content);
    tree_->SetId(name, id);
  }
  static std::string Large() { return std::string(24 << 20, 'o'); }
  static std::string Hidden(FileId id) { return ".salius/open/" + IdName(id); }
  void Fill() { FillDisk(tree_->At("filler")); }
  // Writes 20 MiB, and checks them.
  void WriteMuch() {
    const std::string data(100'000, 'd');
    for (int i = 0; i < 200; ++i) {
      s_.Write(kHere, expected_.size(), data);
      expected_ += data;
    }
  }
  // Removes the first of two files with one id and moves the other, its copy; then writes much.
  void RemoveTheFirstAndMoveItsCopy() {
    s_.Adopt(51, "first", tree_->HandleAt("first"));
    s_.Unlink(51, kRoot, "first");
    s_.Adopt(52, "none", tree_->HandleAt("none"));
    s_.Write(52, 0, "N");
    s_.Adopt(53, "copy", tree_->HandleAt("copy"));
    s_.Rename(53, kRoot, "copy", kRoot, "moved");
    s_.CreateFile(60, kRoot, "next");
    WriteMuch();
  }
  void ExpectReplayed() {
    ASSERT_OK(tree_->Run(s_));
    EXPECT_EQ(ReadFile(tree_->At("here")), expected_);
  }

  static constexpr FileId kHere = 50;
  LoopExt4 disk_;
  std::optional<Tree> tree_;
  Stamper s_{1};
  std::string expected_;
};

TEST_F(FullDiskTest, FileReplacedByARenameMakesRoom) {  // R63
  File("place", 51, Large());
  File("new", 52, "new");
  Fill();
  WriteMuch();
  s_.Rename(52, kRoot, "new", kRoot, "place", 51);
  ExpectReplayed();
  EXPECT_EQ(ReadFile(tree_->At("place")), "new");
  EXPECT_FALSE(Exists(tree_->At("new")));
}

// Replay goes in the order of the objects' ids: the writes come first.
TEST_F(FullDiskTest, HolesThatTheSessionMadeMakeRoom) {
  File("holes", kHere + 1, Large());
  Fill();
  s_.Stamp(Op::kFallocate, kHere + 1, "", 0, 23 << 20, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE);
  s_.Write(kHere + 1, 10, "in it");
  WriteMuch();
  ExpectReplayed();
  std::string holes(23 << 20, '\0');
  holes.replace(10, 5, "in it");
  EXPECT_EQ(ReadFile(tree_->At("holes")), holes + std::string(1 << 20, 'o'));
}

// Programs do this that allocate ahead, and free the rest when they close a file.
TEST_F(FullDiskTest, SpaceFreedByATruncateNeedsNoRoom) {
  File("ahead", kHere + 1, "");
  WriteMuch();
  s_.Stamp(Op::kFallocate, kHere + 1, "", 0, uint64_t{1} << 30, FALLOC_FL_KEEP_SIZE);
  s_.Write(kHere + 1, 0, std::string(10'000, 'a'));
  s_.Truncate(kHere + 1, 9'000);
  ExpectReplayed();
  EXPECT_EQ(ReadFile(tree_->At("ahead")), std::string(9'000, 'a'));
  // A truncate that makes the file longer frees nothing.
  s_.Stamp(Op::kFallocate, kHere + 1, "", 0, uint64_t{1} << 30, FALLOC_FL_KEEP_SIZE);
  s_.Truncate(kHere + 1, 9'001);
  EXPECT_TRUE(absl::IsResourceExhausted(tree_->Run(s_)));
}

TEST_F(FullDiskTest, ReservationAfterATruncateStays) {
  File("file", kHere + 1, "1234");
  s_.Write(kHere + 1, 0, std::string(10'000, 'a'));
  s_.Truncate(kHere + 1, 5'000);
  s_.Stamp(Op::kFallocate, kHere + 1, "", 8192, 1 << 20, FALLOC_FL_KEEP_SIZE);
  s_.Truncate(kHere + 1, 8'000);
  ASSERT_OK(tree_->Run(s_));
  struct stat st {};
  ASSERT_EQ(stat(tree_->At("file").c_str(), &st), 0);
  EXPECT_EQ(st.st_size, 8'000);
  EXPECT_GE(st.st_blocks * 512, 1 << 20);
}

// They were copied with their attributes. Replay ends before it has found them all.
TEST_F(FullDiskTest, OfTwoFilesWithOneIdTheOneThatTRemovedMakesRoom) {
  File("first", 51, Large());
  File("copy", 51, "copy");
  WriteFile(tree_->At("none"), "none");
  Fill();
  RemoveTheFirstAndMoveItsCopy();
  ExpectReplayed();
  EXPECT_EQ(ReadFile(tree_->At("moved")), "copy");
  EXPECT_EQ(ReadFile(tree_->At("none")), "None");
}

// The first file is gone already: no other file has the copy's id.
TEST_F(FullDiskTest, ACopyMakesNoRoomForItsFirstFile) {
  File("first", 51, "first");
  File("copy", 51, "copy");
  File(Hidden(70), 70, Large());
  WriteFile(tree_->At("none"), "none");
  RemoveTheFirstAndMoveItsCopy();
  ASSERT_EQ(unlink(tree_->At("first").c_str()), 0);
  Fill();
  ExpectReplayed();
  EXPECT_EQ(ReadFile(tree_->At("moved")), "copy");
}

TEST_F(FullDiskTest, UnneededHiddenFilesMakeRoom) {  // R71
  File(Hidden(70), 70, std::string(12 << 20, 'o'));  // no record knows it
  File(Hidden(71), 71, std::string(12 << 20, 'o'));
  File(Hidden(72), 72, "linked later");
  Fill();
  s_.Unlink(71, kRoot, "gone");
  s_.Link(72, kRoot, "linked");
  WriteMuch();
  ExpectReplayed();
  EXPECT_EQ(ReadFile(tree_->At("linked")), "linked later");
  EXPECT_FALSE(Exists(tree_->At(Hidden(70))));
  EXPECT_FALSE(Exists(tree_->At(Hidden(71))));
}

TEST_F(FullDiskTest, TruncatedDataMakesRoom) {
  File("long", kHere + 1, Large());
  Fill();
  s_.Truncate(kHere + 1, 10);
  WriteMuch();
  s_.Write(kHere + 1, 20, "end");
  ExpectReplayed();
  EXPECT_EQ(ReadFile(tree_->At("long")), std::string(10, 'o') + std::string(10, '\0') + "end");
}

// A session allocates them ahead of its writes on a disk that is nearly full.
TEST_F(FullDiskTest, BlocksBehindTheEndThatATruncateTookMakeRoom) {
  for (const auto& [name, id] : {std::pair{"cut", kHere + 1}, {"uncut", kHere + 2}}) {
    File(name, id, "1234");
    const UniqueFd fd = MustOpen(tree_->At(name), O_RDWR);
    ASSERT_OK(fs::Fallocate(fd.get(), FALLOC_FL_KEEP_SIZE, 1 << 20, 12 << 20));
  }
  Fill();
  s_.Write(kHere + 1, 2 << 20, "there");
  s_.Truncate(kHere + 1, 1 << 20);
  s_.Truncate(kHere + 2, 4);
  WriteMuch();
  ExpectReplayed();
  EXPECT_EQ(ReadFile(tree_->At("cut")).size(), size_t{1} << 20);
  for (const char* name : {"cut", "uncut"}) EXPECT_LE(tree_->Stat(name).st_blocks, 32) << name;
}

TEST_F(FullDiskTest, DataTruncatedLaterNeedsNoRoom) {  // R64
  Fill();
  const int64_t before = tree_->Stat("filler").st_size;
  s_.Stamp(Op::kFallocate, kHere, "", 0, uint64_t{1} << 30);
  WriteMuch();
  s_.Truncate(kHere, 10);
  s_.Write(kHere, 12, "end");
  ASSERT_OK(tree_->Run(s_));
  EXPECT_EQ(ReadFile(tree_->At("here")), std::string(10, 'd') + std::string(2, '\0') + "end");
  EXPECT_EQ(tree_->Stat("filler").st_size, before);
}

class FullExt3Test : public FullDiskTest {
 protected:
  FullExt3Test() : FullDiskTest("-O ^extent,^64bit") {}
};

// Another run begins with the record that is left out here, and needs its file.
TEST_F(FullExt3Test, AHiddenFileWhoseRecordIsLeftOutStays) {
  File(Hidden(40), 40, "nameless");
  File(Hidden(41), 41, std::string(1 << 20, 'o'));
  Fill();
  s_.Stamp(Op::kFallocate, 40, "", 0, 4096);  // an operation that ext3 does not know
  WriteMuch();
  EXPECT_TRUE(absl::IsResourceExhausted(tree_->Run(s_)));
  EXPECT_EQ(tree_->report.refused.size(), 1u);
  EXPECT_TRUE(Exists(tree_->At(Hidden(40))));
  EXPECT_FALSE(Exists(tree_->At(Hidden(41))));
}

TEST(ReplayOverlayTest, AFileSystemWithoutHandlesWorksToo) {
  TempDir dir;
  for (const char* sub : {"/lower", "/upper", "/work", "/mnt"}) {
    mkdir((dir.path() + sub).c_str(), 0755);
  }
  const std::string at = dir.path();
  const std::string options =
      "lowerdir=" + at + "/lower,upperdir=" + at + "/upper,workdir=" + at + "/work";
  const std::string mnt = at + "/mnt";
  if (!OwnMountNamespace() || mount("overlay", mnt.c_str(), "overlay", 0, options.c_str()) != 0) {
    GTEST_SKIP() << "cannot mount overlayfs here";
  }
  {
    Tree tree(mnt);
    mkdir(tree.At("d").c_str(), 0755);
    tree.SetId("d", 50);
    WriteFile(tree.At("d/f"), "....");
    tree.SetId("d/f", 51);
    mkdir(tree.At("gone").c_str(), 0755);
    tree.SetId("gone", 52);
    Stamper s(1);
    s.Write(51, 0, "x");
    s.Rename(50, kRoot, "d", kRoot, "e");
    s.Unlink(52, kRoot, "gone", true);
    s.CreateFile(60, 50, "new");
    s.Write(60, 0, "new");
    EXPECT_OK(tree.Run(s));
    EXPECT_EQ(ReadFile(tree.At("e/f")), "x...");
    EXPECT_EQ(ReadFile(tree.At("e/new")), "new");
    EXPECT_FALSE(Exists(tree.At("gone")));
    EXPECT_OK(tree.Run(s));
  }
  EXPECT_EQ(umount2(mnt.c_str(), 0), 0);
}

}  // namespace
}  // namespace salius::recovery
