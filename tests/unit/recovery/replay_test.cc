// Replay, case by case: how files are found, and which are written, kept and refused.
#include "recovery/replay/replay.h"

#include <sys/xattr.h>

#include "tests/unit/recovery/replay_testing.h"

namespace salius::recovery {
namespace {

constexpr FileId kRoot = kRootFileId;

class ReplayTest : public ::testing::Test {
 protected:
  TempDir dir_;
  Tree tree_{dir_.path()};
  Stamper s_{1};
};

TEST_F(ReplayTest, DataOfAFileWithAnIdIsFoundByScan) {
  WriteFile(tree_.At("f"), "0123456789");
  tree_.SetId("f", 50);
  s_.Write(50, 2, "ab");
  s_.Write(50, 4, "cd");
  s_.Write(50, 0, "X");
  ASSERT_OK(tree_.Run(s_));
  EXPECT_EQ(ReadFile(tree_.At("f")), "X1abcd6789");
  EXPECT_TRUE(tree_.report.tree_scanned);
  EXPECT_EQ(tree_.report.bytes_written, 5u);
}

TEST_F(ReplayTest, AnAdoptedFileIsFoundByItsHandleAfterItMoved) {
  WriteFile(tree_.At("old"), "data");
  s_.Adopt(50, "old", tree_.HandleAt("old"));
  s_.Write(50, 0, "DA");
  rename(tree_.At("old").c_str(), tree_.At("new").c_str());
  ASSERT_OK(tree_.Run(s_));
  EXPECT_EQ(ReadFile(tree_.At("new")), "DAta");
  EXPECT_EQ(tree_.IdOf("new"), 50u);
  EXPECT_FALSE(tree_.report.tree_scanned);
}

// A file was copied with its attributes while no session ran. The session names the one that it
// used.
TEST_F(ReplayTest, OfTwoFilesWithOneIdTheOneOfTheSessionIsChanged) {
  for (const char* name : {"a", "b"}) {
    WriteFile(tree_.At(name), "old");
    tree_.SetId(name, 50);
  }
  for (const std::string name : {"a", "b"}) {
    Stamper s(7);
    const FileHandle handle = tree_.HandleAt(name);
    AdoptBody body;
    body.handle_type = handle.type;
    body.handle = handle.bytes;
    s.Stamp(Op::kAdopt, 50, body.Encode());
    s.Write(50, 0, "new");
    ASSERT_OK(tree_.Run(s));
    EXPECT_EQ(ReadFile(tree_.At(name)), "new");
    EXPECT_EQ(ReadFile(tree_.At(name == "a" ? "b" : "a")), name == "a" ? "old" : "new");
  }
}

TEST_F(ReplayTest, CopyIsNotTakenForTheRemovedFile) {  // R66
  WriteFile(tree_.At("copy"), "old");
  tree_.SetId("copy", 50);
  s_.Write(50, 0, "new");
  s_.Unlink(50, kRoot, "gone", /*directory=*/false, /*only=*/true);
  ASSERT_OK(tree_.Run(s_));
  EXPECT_EQ(ReadFile(tree_.At("copy")), "old");
  EXPECT_FALSE(tree_.report.tree_scanned);
}

TEST_F(ReplayTest, AnAdoptedFileWithAStaleHandleIsFoundByItsPath) {
  mkdir(tree_.At("d").c_str(), 0755);
  WriteFile(tree_.At("gone"), "");
  const FileHandle stale = tree_.HandleAt("gone");
  unlink(tree_.At("gone").c_str());
  WriteFile(tree_.At("d/f"), "data");
  s_.Adopt(50, "d/f", stale);
  s_.Write(50, 0, "DA");
  ASSERT_OK(tree_.Run(s_));
  EXPECT_EQ(ReadFile(tree_.At("d/f")), "DAta");
  EXPECT_EQ(tree_.IdOf("d/f"), 50u);
}

TEST_F(ReplayTest, AnObjectWithAnotherIdIsNotTakenByPath) {
  WriteFile(tree_.At("gone"), "");
  const FileHandle stale = tree_.HandleAt("gone");
  unlink(tree_.At("gone").c_str());
  WriteFile(tree_.At("f"), "data");
  tree_.SetId("f", 77);
  s_.Adopt(50, "f", stale);
  s_.Write(50, 0, "DA");
  EXPECT_TRUE(absl::IsDataLoss(tree_.Run(s_)));
  EXPECT_EQ(ReadFile(tree_.At("f")), "data");
}

TEST_F(ReplayTest, APathThroughASymlinkIsNotFollowed) {
  mkdir(tree_.At("d").c_str(), 0755);
  WriteFile(tree_.At("d/f"), "data");
  ASSERT_EQ(symlink("d", tree_.At("l").c_str()), 0);
  s_.Adopt(50, "l/f", FileHandle{});
  s_.Write(50, 0, "DA");
  EXPECT_TRUE(absl::IsDataLoss(tree_.Run(s_)));
}

TEST_F(ReplayTest, ACreatedFileThatTheDiskLostIsRebuilt) {  // R68
  s_.MakeDir(60, kRoot, "d");
  s_.CreateFile(61, 60, "f");
  s_.Write(61, 0, "hello");
  s_.Chmod(61, 0600);
  s_.Create(62, 60, "l", S_IFLNK | 0777);
  s_.Create(63, 60, "p", S_IFIFO | 0620);
  ASSERT_OK(tree_.Run(s_));
  EXPECT_EQ(ReadFile(tree_.At("d/f")), "hello");
  EXPECT_EQ(tree_.Stat("d/f").st_mode, S_IFREG | 0600u);
  EXPECT_EQ(tree_.Stat("d/p").st_mode, S_IFIFO | 0620u);
  EXPECT_TRUE(S_ISLNK(tree_.Stat("d/l").st_mode));
  EXPECT_EQ(tree_.report.objects_rebuilt, 4u);
  EXPECT_EQ(tree_.IdOf("d"), 60u);
  ASSERT_OK(tree_.Clean());
  EXPECT_TRUE(std::filesystem::is_empty(tree_.At(".salius/tmp")));
}

TEST_F(ReplayTest, AnOldFileThatIsMissingIsDataLossAndChangesNothing) {  // R70
  WriteFile(tree_.At("other"), "o");
  tree_.SetId("other", 51);
  s_.Write(51, 0, "X");
  s_.Write(50, 0, "x");
  const absl::Status status = tree_.Run(s_);
  EXPECT_TRUE(absl::IsDataLoss(status));
  EXPECT_NE(status.message().find("50"), absl::string_view::npos);
  EXPECT_EQ(ReadFile(tree_.At("other")), "o");
}

TEST_F(ReplayTest, ForceKeepsFilesOfAMissingDirectory) {  // R70
  WriteFile(tree_.At("other"), "old data");
  tree_.SetId("other", 51);
  mkdir(tree_.At("moved").c_str(), 0755);
  tree_.SetId("moved", 52);
  s_.Rename(51, kRoot, "other", 60, "g");
  s_.CreateFile(61, 60, "n");
  s_.Write(61, 0, "new data");
  s_.Rename(52, kRoot, "moved", 60, "d");
  tree_.force = true;
  ASSERT_OK(tree_.Run(s_));
  ASSERT_OK(tree_.Clean());
  const std::string lost = tree_.At(".salius/lost/000000000000003c-");  // 60
  EXPECT_EQ(ReadFile(lost + "g"), "old data");
  EXPECT_EQ(ReadFile(lost + "n"), "new data");
  EXPECT_TRUE(std::filesystem::is_directory(lost + "d"));
  EXPECT_EQ(tree_.report.lost_and_found.size(), 3u);
}

// The disk is ahead of the records that are kept: a file under a name that goes has no other one.
TEST_F(ReplayTest, KeptFileSurvivesRemovalOfItsCurrentName) {  // R79
  WriteFile(tree_.At("log.2"), "older");
  tree_.SetId("log.2", 51);
  WriteFile(tree_.At("log.1"), "kept");  // "log" before a record that is left out
  tree_.SetId("log.1", 52);
  ASSERT_EQ(link(tree_.At("log.1").c_str(), tree_.At("twice").c_str()), 0);
  s_.Write(52, 0, "K");
  s_.Rename(51, kRoot, "log.1", kRoot, "log.2");
  s_.Unlink(53, kRoot, "twice");
  for (int at = 1; at < 100; ++at) {  // cut off at each step, then run to its end
    tree_.crash_at = at;
    if (tree_.Run(s_).ok()) break;
  }
  tree_.crash_at = 0;
  ASSERT_OK(tree_.Run(s_));
  ASSERT_OK(tree_.Clean());
  EXPECT_FALSE(Exists(tree_.At("log.1")));
  EXPECT_FALSE(Exists(tree_.At("twice")));
  EXPECT_EQ(ReadFile(tree_.At("log.2")), "older");
  std::string found;
  for (const auto& lost : std::filesystem::directory_iterator(tree_.At(".salius/lost"))) {
    found += ReadFile(lost.path());
  }
  EXPECT_EQ(found, "Kept");
}

// The file has another name that goes as well: it was created without one, and is open.
TEST_F(ReplayTest, AFileThatIsKeptDoesNotGoWithItsHiddenLink) {
  mkdir(tree_.At(".salius/open").c_str(), 0700);
  WriteFile(tree_.At("log.2"), "older");
  tree_.SetId("log.2", 51);
  WriteFile(tree_.At("log.1"), "kept");
  tree_.SetId("log.1", 52);
  ASSERT_EQ(link(tree_.At("log.1").c_str(), tree_.At(".salius/open/" + IdName(52)).c_str()), 0);
  s_.Write(52, 0, "K");
  s_.Rename(51, kRoot, "log.1", kRoot, "log.2");
  ASSERT_OK(tree_.Run(s_));
  ASSERT_OK(tree_.Clean());
  std::string found;
  for (const auto& lost : std::filesystem::directory_iterator(tree_.At(".salius/lost"))) {
    found += ReadFile(lost.path());
  }
  EXPECT_EQ(found, "Kept");
}

// A mount of a dead server does not answer, and a mount below is no part of the volume.
TEST_F(ReplayTest, ScanSkipsFileSystemsMountedBelow) {
  if (!OwnMountNamespace()) GTEST_SKIP() << "needs root";
  for (const char* dir : {"a", "m", "z"}) mkdir(tree_.At(dir).c_str(), 0755);
  UniqueFd device(open("/dev/fuse", O_RDWR | O_CLOEXEC));
  const std::string options =
      absl::StrFormat("fd=%d,rootmode=40000,user_id=0,group_id=0", device.get());
  ASSERT_EQ(mount("dead", tree_.At("m").c_str(), "fuse", 0, options.c_str()), 0) << strerror(errno);
  device.Reset();
  for (const char* name : {"a/f", "z/f"}) {
    WriteFile(tree_.At(name), "....");
    tree_.SetId(name, name[0]);
    s_.Write(static_cast<FileId>(name[0]), 0, "x");
  }
  const absl::Status status = tree_.Run(s_);
  EXPECT_EQ(umount2(tree_.At("m").c_str(), MNT_DETACH), 0);
  ASSERT_OK(status);
  EXPECT_EQ(ReadFile(tree_.At("a/f")), "x...");
  EXPECT_EQ(ReadFile(tree_.At("z/f")), "x...");
}

TEST_F(ReplayTest, ForceContinuesWithoutAMissingFileAndNamesIt) {  // R70
  WriteFile(tree_.At("other"), "o");
  tree_.SetId("other", 51);
  s_.Write(51, 0, "X");
  s_.Write(50, 0, "x");
  s_.Rename(52, kRoot, "a", kRoot, "b");
  tree_.force = true;
  ASSERT_OK(tree_.Run(s_));
  EXPECT_EQ(ReadFile(tree_.At("other")), "X");
  EXPECT_EQ(tree_.report.missing.size(), 2u);
}

TEST_F(ReplayTest, LostFileWithBulkDataIsDataLoss) {  // R69
  s_.CreateFile(60, kRoot, "bulk");
  s_.Write(60, 0, "x");
  s_.OnDisk(60, 2);
  EXPECT_TRUE(absl::IsDataLoss(tree_.Run(s_)));
}

TEST_F(ReplayTest, OnDiskDataIsNotOverwritten) {  // R55
  WriteFile(tree_.At("f"), "newer");
  tree_.SetId("f", 50);
  s_.Write(50, 0, "older");
  s_.OnDisk(50, 1);
  ASSERT_OK(tree_.Run(s_));
  EXPECT_EQ(ReadFile(tree_.At("f")), "newer");
  EXPECT_EQ(tree_.report.records_skipped, 1u);
}

TEST_F(ReplayTest, TimesThatAreOnTheDiskAreNotPutBack) {
  WriteFile(tree_.At("f"), "");
  tree_.SetId("f", 50);
  const timespec past_the_log[2] = {{7000, 0}, {7000, 0}};
  ASSERT_EQ(utimensat(AT_FDCWD, tree_.At("f").c_str(), past_the_log, 0), 0);
  s_.SetMtime(50, 1000);
  s_.OnDisk(50, 1);
  ASSERT_OK(tree_.Run(s_));
  EXPECT_EQ(tree_.Stat("f").st_mtime, 7000);
  s_.SetMtime(50, 2000);
  ASSERT_OK(tree_.Run(s_));
  EXPECT_EQ(tree_.Stat("f").st_mtime, 2000);
}

TEST_F(ReplayTest, AnOwnerThatIsOnTheDiskTakesNoCapabilityAway) {
  WriteFile(tree_.At("f"), "");
  tree_.SetId("f", 50);
  constexpr char kAttribute[] = "security.capability";
  // Version 2, cap_net_raw.
  const std::string capability("\x01\0\0\x02\0\x20\0\0\0\0\0\0\0\0\0\0\0\0\0\0", 20);
  if (setxattr(tree_.At("f").c_str(), kAttribute, capability.data(), capability.size(), 0) != 0) {
    GTEST_SKIP() << "needs root and a file system with capabilities";
  }
  AttrBody owner;
  owner.mask = kAttrUid;
  s_.Stamp(Op::kSetAttr, 50, owner.Encode());
  s_.Stamp(Op::kSetXattr, 50, XattrBody{kAttribute, capability}.Encode());
  s_.OnDisk(50, 2);
  ASSERT_OK(tree_.Run(s_));
  char there[64];
  EXPECT_EQ(getxattr(tree_.At("f").c_str(), kAttribute, there, sizeof(there)), 20);
}

TEST_F(ReplayTest, AMissingFileThatTLeavesUnboundIsSkipped) {  // R67
  s_.Write(50, 0, "x");
  s_.Unlink(50, kRoot, "f");
  ASSERT_OK(tree_.Run(s_));
  EXPECT_EQ(tree_.report.records_skipped, 1u);
}

TEST_F(ReplayTest, AnUnlinkedFileThatHasAnotherNameIsWritten) {
  WriteFile(tree_.At("one"), "....");
  tree_.SetId("one", 50);
  ASSERT_EQ(link(tree_.At("one").c_str(), tree_.At("two").c_str()), 0);
  s_.Write(50, 0, "x");
  s_.Unlink(50, kRoot, "one");
  unlink(tree_.At("one").c_str());
  ASSERT_OK(tree_.Run(s_));
  EXPECT_EQ(ReadFile(tree_.At("two")), "x...");
}

TEST_F(ReplayTest, MtimeComesFromTheRecord) {  // R57
  WriteFile(tree_.At("f"), "x");
  WriteFile(tree_.At("g"), "x");
  tree_.SetId("f", 50);
  tree_.SetId("g", 51);
  s_.Write(50, 0, "y");
  s_.Write(51, 0, "y");
  s_.SetMtime(51, 12345);
  ASSERT_OK(tree_.Run(s_));
  EXPECT_EQ(tree_.Stat("f").st_mtim.tv_sec, 1'600'000'000);
  EXPECT_EQ(tree_.Stat("f").st_mtim.tv_nsec, 1'000'000);
  EXPECT_EQ(tree_.Stat("g").st_mtim.tv_sec, 12345);
}

TEST_F(ReplayTest, MtimeOfADirectoryIsThatOfItsLastName) {  // R57
  mkdir(tree_.At("named").c_str(), 0755);
  mkdir(tree_.At("set").c_str(), 0755);
  tree_.SetId("named", 50);
  tree_.SetId("set", 51);
  s_.Create(60, 51, "f", S_IFREG | 0600);
  s_.SetMtime(51, 12345);
  s_.SetMtime(50, 12345);
  s_.Create(61, 50, "f", S_IFREG | 0600);
  s_.Create(52, kRoot, "made", S_IFDIR | 0755);
  ASSERT_OK(tree_.Run(s_));
  EXPECT_EQ(tree_.Stat("named").st_mtim.tv_sec, 1'600'000'000);
  EXPECT_EQ(tree_.Stat("named").st_mtim.tv_nsec, 4'000'000);
  EXPECT_EQ(tree_.Stat("set").st_mtim.tv_sec, 12345);
  EXPECT_EQ(tree_.Stat("made").st_mtim.tv_nsec, 5'000'000);
  EXPECT_EQ(tree_.Stat(".").st_mtim.tv_nsec, 5'000'000);
}

TEST_F(ReplayTest, ThreeFilesRenamedInACircle) {  // R75
  for (const auto& [name, id] : {std::pair("a", 50), std::pair("b", 51), std::pair("c", 52)}) {
    WriteFile(tree_.At(name), name);
    tree_.SetId(name, static_cast<FileId>(id));
  }
  s_.Rename(50, kRoot, "a", kRoot, "t");
  s_.Rename(51, kRoot, "b", kRoot, "a");
  s_.Rename(52, kRoot, "c", kRoot, "b");
  s_.Rename(50, kRoot, "t", kRoot, "c");
  ASSERT_OK(tree_.Run(s_));
  EXPECT_EQ(ReadFile(tree_.At("a")), "b");
  EXPECT_EQ(ReadFile(tree_.At("b")), "c");
  EXPECT_EQ(ReadFile(tree_.At("c")), "a");
  EXPECT_FALSE(Exists(tree_.At("t")));
}

TEST_F(ReplayTest, ADirectoryAndItsParentChangePlaces) {  // R74
  mkdir(tree_.At("p").c_str(), 0755);
  mkdir(tree_.At("p/c").c_str(), 0755);
  tree_.SetId("p", 50);
  tree_.SetId("p/c", 51);
  WriteFile(tree_.At("p/c/f"), "deep");
  s_.Rename(51, 50, "c", kRoot, "c");
  s_.Rename(50, kRoot, "p", 51, "p");
  ASSERT_OK(tree_.Run(s_));
  EXPECT_EQ(ReadFile(tree_.At("c/f")), "deep");
  EXPECT_TRUE(Exists(tree_.At("c/p")));
  EXPECT_FALSE(Exists(tree_.At("p")));
}

TEST_F(ReplayTest, ADirectoryAheadOfItsChildrensRemovalIsEmptiedAndRemoved) {  // R77
  mkdir(tree_.At("d").c_str(), 0755);
  mkdir(tree_.At("d/e").c_str(), 0755);
  WriteFile(tree_.At("d/e/f"), "x");
  tree_.SetId("d", 50);
  tree_.SetId("d/e", 51);
  tree_.SetId("d/e/f", 52);
  s_.Rename(52, 51, "f", kRoot, "kept");
  s_.Unlink(51, 50, "e", true);
  s_.Unlink(50, kRoot, "d", true);
  ASSERT_OK(tree_.Run(s_));
  EXPECT_FALSE(Exists(tree_.At("d")));
  EXPECT_EQ(ReadFile(tree_.At("kept")), "x");
  EXPECT_TRUE(tree_.report.lost_and_found.empty());
}

TEST_F(ReplayTest, UnknownFilesAreKeptInLost) {  // R78
  // One name belongs to another file at T, and one to a directory that T removed.
  WriteFile(tree_.At("a"), "from outside");
  mkdir(tree_.At("d").c_str(), 0755);
  tree_.SetId("d", 50);
  WriteFile(tree_.At("d/mine"), "also outside");
  s_.CreateFile(60, kRoot, "a");
  s_.Unlink(50, kRoot, "d", true);
  ASSERT_OK(tree_.Run(s_));
  EXPECT_EQ(tree_.IdOf("a"), 60u);
  EXPECT_FALSE(Exists(tree_.At("d")));
  ASSERT_EQ(tree_.report.lost_and_found.size(), 2u);
  std::set<std::string> kept;
  for (const std::string& name : tree_.report.lost_and_found) {
    kept.insert(ReadFile(tree_.At(".salius/lost/" + name)));
  }
  EXPECT_EQ(kept, (std::set<std::string>{"from outside", "also outside"}));
}

TEST_F(ReplayTest, LostNamesDoNotCollide) {
  for (int i = 0; i < 3; ++i) {
    WriteFile(tree_.At("a"), std::to_string(i));
    Stamper s(1);
    s.CreateFile(static_cast<FileId>(60 + i), kRoot, "a");
    s.Unlink(static_cast<FileId>(60 + i), kRoot, "a");
    ASSERT_OK(tree_.Run(s));
    EXPECT_FALSE(Exists(tree_.At("a")));
  }
  int kept = 0;
  for (const auto& entry : std::filesystem::directory_iterator(tree_.At(".salius/lost"))) {
    (void)entry;
    ++kept;
  }
  EXPECT_EQ(kept, 3);
}

TEST_F(ReplayTest, AFileRemovedWithoutAnIdGoes) {  // R76
  WriteFile(tree_.At("a"), "x");
  mkdir(tree_.At("d").c_str(), 0755);
  s_.Unlink(kNoFileId, kRoot, "a");
  s_.Unlink(kNoFileId, kRoot, "d", true);
  ASSERT_OK(tree_.Run(s_));
  EXPECT_FALSE(Exists(tree_.At("a")));
  EXPECT_FALSE(Exists(tree_.At("d")));
  EXPECT_TRUE(tree_.report.lost_and_found.empty());
}

TEST_F(ReplayTest, DataRecordsForADirectoryAreDataLoss) {
  mkdir(tree_.At("d").c_str(), 0755);
  tree_.SetId("d", 50);
  s_.Write(50, 0, "x");
  EXPECT_TRUE(absl::IsDataLoss(tree_.Run(s_)));
}

// The power went between the rename and the id of its whiteout. Another file then took the place of
// the second one.
TEST_F(ReplayTest, CutOffWhiteoutIsMadeAgain) {
  for (const char* name : {"a", "b"}) {
    WriteFile(tree_.At(name), name);
    tree_.SetId(name, name[0] == 'a' ? 50 : 51);
  }
  s_.RenameWithWhiteout(50, kRootFileId, "a", kRootFileId, "x", kNoFileId, 60);
  s_.RenameWithWhiteout(51, kRootFileId, "b", kRootFileId, "y", kNoFileId, 61);
  s_.Create(62, kRootFileId, "new", S_IFREG | 0600);
  s_.Rename(62, kRootFileId, "new", kRootFileId, "b", 61, 0, /*only=*/true);
  for (const auto& [from, to] : {std::pair("a", "x"), std::pair("b", "y")}) {
    ASSERT_EQ(renameat2(AT_FDCWD, tree_.At(from).c_str(), AT_FDCWD, tree_.At(to).c_str(),
                        RENAME_WHITEOUT),
              0);
  }
  ASSERT_OK(tree_.Run(s_));
  EXPECT_EQ(tree_.IdOf("a"), 60u);
  EXPECT_EQ(tree_.Stat("a").st_mode, static_cast<mode_t>(S_IFCHR));
  EXPECT_EQ(tree_.Stat("a").st_rdev, 0u);
  EXPECT_EQ(tree_.Stat("a").st_uid, 7u);
  EXPECT_EQ(tree_.IdOf("x"), 50u);
  EXPECT_EQ(tree_.IdOf("b"), 62u);
  EXPECT_EQ(tree_.IdOf("y"), 51u);
  EXPECT_TRUE(tree_.report.lost_and_found.empty());
}

// A whiteout that was made first: the power went before it got its name, or with all of it.
TEST_F(ReplayTest, WhiteoutThatLacksItsNameGetsIt) {
  for (const char* name : {"a", "b"}) {
    WriteFile(tree_.At(name), name);
    tree_.SetId(name, name[0] == 'a' ? 50 : 51);
    rename(tree_.At(name).c_str(), tree_.At(std::string(name) + "-moved").c_str());
  }
  const std::string made = ".salius/tmp/000000000000003c";  // 60
  ASSERT_EQ(mknod(tree_.At(made).c_str(), S_IFCHR, 0), 0);
  tree_.SetId(made, 60);
  s_.RenameWithWhiteout(50, kRootFileId, "a", kRootFileId, "a-moved", kNoFileId, 60);
  s_.RenameWithWhiteout(51, kRootFileId, "b", kRootFileId, "b-moved", kNoFileId, 61);
  const ino_t ino = tree_.Stat(made).st_ino;
  ASSERT_OK(tree_.Run(s_));
  EXPECT_EQ(tree_.IdOf("a"), 60u);
  EXPECT_EQ(tree_.Stat("a").st_ino, ino);
  EXPECT_EQ(tree_.IdOf("b"), 61u);
  EXPECT_EQ(tree_.Stat("b").st_mode, static_cast<mode_t>(S_IFCHR));
  EXPECT_EQ(tree_.IdOf("a-moved"), 50u);
  EXPECT_EQ(tree_.IdOf("b-moved"), 51u);
}

// Its adopt record identifies the file, whatever its attribute.
TEST_F(ReplayTest, DamagedIdOfAnAdoptedFileIsReplaced) {
  WriteFile(tree_.At("f"), "data");
  ASSERT_EQ(setxattr(tree_.At("f").c_str(), kFileIdXattr, "bad", 3, 0), 0);
  s_.Adopt(50, "f", tree_.HandleAt("f"));
  s_.Write(50, 0, "DA");
  ASSERT_OK(tree_.Run(s_));
  EXPECT_EQ(ReadFile(tree_.At("f")), "DAta");
  EXPECT_EQ(tree_.IdOf("f"), 50u);
}

TEST_F(ReplayTest, ADamagedIdOnTheDiskIsDataLoss) {
  WriteFile(tree_.At("a"), "x");
  {
    const UniqueFd fd = MustOpen(tree_.At("a"), O_PATH);
    ASSERT_OK(fs::SetXattr(fd.get(), kFileIdXattr, "short"));
  }
  s_.CreateFile(60, kRoot, "a");
  EXPECT_TRUE(absl::IsDataLoss(tree_.Run(s_)));
}

TEST_F(ReplayTest, AttributesOfACreatedFileAreSetAgain) {  // R58
  // Its name reached the disk, its owner and mode did not.
  WriteFile(tree_.At("f"), "x");
  chmod(tree_.At("f").c_str(), 0600);
  tree_.SetId("f", 60);
  s_.Create(60, kRoot, "f", S_IFREG | 04751);
  ASSERT_OK(tree_.Run(s_));
  EXPECT_EQ(tree_.Stat("f").st_mode & 07777u, 04751u);
}

TEST_F(ReplayTest, CleaningRemovesLeftoversAndKeepsNonEmptyOnes) {
  WriteFile(tree_.At(".salius/tmp/0000000000000050"), "x");
  WriteFile(tree_.At(".salius/open/0000000000000051"), "x");
  mkdir(tree_.At(".salius/tmp/empty").c_str(), 0700);
  mkdir(tree_.At(".salius/tmp/full").c_str(), 0700);
  WriteFile(tree_.At(".salius/tmp/full/f"), "precious");
  ASSERT_OK(tree_.Clean());
  EXPECT_TRUE(std::filesystem::is_empty(tree_.At(".salius/tmp")));
  EXPECT_TRUE(std::filesystem::is_empty(tree_.At(".salius/open")));
  EXPECT_EQ(ReadFile(tree_.At(".salius/lost/tmp-full/f")), "precious");
}

TEST_F(ReplayTest, AFileOfAnEarlierRunsDisplacedDirectoryIsFound) {
  // A run was cut off after it had displaced directory 50, which holds a file that must be written.
  mkdir(tree_.At(".salius/tmp/0000000000000032").c_str(), 0755);  // 0x32 = 50
  tree_.SetId(".salius/tmp/0000000000000032", 50);
  WriteFile(tree_.At(".salius/tmp/0000000000000032/f"), "....");
  tree_.SetId(".salius/tmp/0000000000000032/f", 51);
  s_.Write(51, 0, "x");
  s_.Rename(50, kRoot, "old", kRoot, "new");
  ASSERT_OK(tree_.Run(s_));
  EXPECT_EQ(ReadFile(tree_.At("new/f")), "x...");
}

}  // namespace
}  // namespace salius::recovery
