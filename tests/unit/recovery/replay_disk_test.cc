// Replay on a file system made for it: one that is full, one that hands out no file handles.
#include "recovery/replay.h"
#include "tests/unit/recovery/replay_testing.h"

namespace salius::recovery {
namespace {

constexpr FileId kRoot = kRootFileId;

TEST(ReplaySpaceTest, TheBallastIsFreedWhenTheDiskIsFull) {
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

  // Without a ballast left it is an error, not a wrong file.
  Stamper more(1);
  for (int i = 0; i < 60; ++i)
    more.Write(50, expected.size() + static_cast<uint64_t>(i) * data.size(), data);
  EXPECT_TRUE(absl::IsResourceExhausted(tree.Run(more)));
}

TEST(ReplaySpaceTest, WhatTRemovedMakesRoomForWhatItHas) {
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

  // Where that is not enough it is an error.
  for (int i = 0; i < 100; ++i) s.Write(60, expected.size() + i * data.size(), data);
  EXPECT_TRUE(absl::IsResourceExhausted(tree.Run(s)));
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
