// Replay when the file system refuses what the log says: what is left out, and what stops it.
#include "recovery/refusal.h"

#include <linux/fs.h>
#include <sys/ioctl.h>

#include <array>
#include <functional>
#include <string>
#include <vector>

#include "tests/unit/recovery/replay_testing.h"

namespace salius::recovery {
namespace {

constexpr FileId kRoot = kRootFileId;
constexpr FileId kFile = 50;

class RefusalTest : public ::testing::Test {
 protected:
  RefusalTest() : disk_(64, "-b 4096") {}
  void SetUp() override {
    if (!disk_.mounted()) GTEST_SKIP() << "needs root and a loop device";
    tree_.emplace(disk_.path());
    WriteFile(tree_->At("f"), "x");
    tree_->SetId("f", kFile);
  }
  void TearDown() override { tree_.reset(); }

  void SetXattr(const char* name, const std::string& value) {
    s_.Stamp(Op::kSetXattr, kFile, XattrBody{name, value}.Encode());
  }
  // Empty when there is none.
  std::string XattrOf(const char* name) {
    const UniqueFd fd = MustOpen(tree_->At("f"), O_PATH);
    bool found = false;
    return *fs::GetXattr(fd.get(), name, &found);
  }
  void Mark(const std::string& name, int flag) {
    const UniqueFd fd = MustOpen(tree_->At(name), O_RDONLY);
    ASSERT_EQ(ioctl(fd.get(), FS_IOC_SETFLAGS, &flag), 0) << strerror(errno);
  }
  // It must stop and say where and what to do, and go on when that was done.
  void ExpectStoppedByMark(const std::string& name) {
    Mark(name, FS_IMMUTABLE_FL);
    const absl::Status stopped = tree_->Run(s_);
    Mark(name, 0);
    EXPECT_EQ(stopped.code(), absl::StatusCode::kPermissionDenied) << stopped;
    for (const std::string& word : {std::string("chattr -i"), tree_->At(name)}) {
      EXPECT_NE(stopped.message().find(word), absl::string_view::npos) << stopped;
    }
    ASSERT_OK(tree_->Run(s_));
    EXPECT_TRUE(tree_->report.refused.empty());
  }

  LoopExt4 disk_;
  std::optional<Tree> tree_;
  Stamper s_{7};
};

// ext4 keeps all attributes of an inode in one block.
TEST_F(RefusalTest, AttributesThatWereTakenBackNeedNoRoomBesideTheLatest) {
  SetXattr("user.a", std::string(2100, 'a'));
  s_.Stamp(Op::kRemoveXattr, kFile, XattrBody{"user.a", ""}.Encode());
  SetXattr("user.b", std::string(3000, 'b'));
  for (int round = 0; round < 2; ++round) {  // the second time the disk is ahead
    ASSERT_OK(tree_->Run(s_)) << round;
    EXPECT_TRUE(tree_->report.refused.empty());
    EXPECT_EQ(XattrOf("user.b").size(), 3000u);
    EXPECT_EQ(XattrOf("user.a"), "");
  }
}

TEST_F(RefusalTest, AttributeWithoutRoomIsLeftOutWhenItIsTheLastChange) {
  SetXattr("user.a", std::string(2100, 'a'));
  SetXattr("user.b", std::string(3000, 'b'));
  for (int round = 0; round < 2; ++round) {  // the second time the disk is ahead
    ASSERT_OK(tree_->Run(s_)) << round;
    ASSERT_EQ(tree_->report.refused.size(), 1u);
    EXPECT_NE(tree_->report.refused[0].find("record 2"), std::string::npos);
    EXPECT_EQ(XattrOf("user.a").size(), 2100u);
    EXPECT_EQ(XattrOf("user.b"), "");
  }
}

TEST_F(RefusalTest, ValueBeforeTheOneThatIsLeftOutStays) {
  {
    const UniqueFd fd = MustOpen(tree_->At("f"), O_PATH);
    ASSERT_OK(fs::SetXattr(fd.get(), "user.b", "old"));
  }
  SetXattr("user.a", std::string(2100, 'a'));
  SetXattr("user.b", std::string(3000, 'b'));
  ASSERT_OK(tree_->Run(s_));
  EXPECT_EQ(tree_->report.refused.size(), 1u);
  EXPECT_EQ(XattrOf("user.b"), "old");
}

// What fits depends on the order in which it came.
class XattrOrderTest : public RefusalTest {
 protected:
  static constexpr std::array kNames = {"user.old", "user.other", "user.a",
                                        "user.b",   "user.c",     kAccessAclXattr};

  // The records, on a file with the attributes `before`, and on one that has all of it: both are
  // given theirs in the session's order. False when the file system does not take them in that.
  bool ExpectReplayed(const std::vector<XattrBody>& before, const std::vector<XattrBody>& changes) {
    const UniqueFd fd = MustOpen(tree_->At("f"), O_PATH);
    const auto taken = [&](const std::vector<XattrBody>& some) {
      for (const auto& [name, value] : some) {
        const absl::Status put =
            value.empty() ? fs::RemoveXattr(fd.get(), name) : fs::SetXattr(fd.get(), name, value);
        if (!put.ok()) return false;
      }
      return true;
    };
    for (const bool ahead : {false, true}) {
      for (const char* name : kNames) EXPECT_OK(fs::RemoveXattr(fd.get(), name));
      if (!taken(before) || !taken(changes)) return false;
      const std::string there = All(fd.get());
      if (!ahead) {
        for (const char* name : kNames) EXPECT_OK(fs::RemoveXattr(fd.get(), name));
        EXPECT_TRUE(taken(before));
      }
      Stamper stamper(7);
      for (const XattrBody& change : changes) {
        stamper.Stamp(change.value.empty() ? Op::kRemoveXattr : Op::kSetXattr, kFile,
                      change.Encode());
      }
      EXPECT_OK(tree_->Run(stamper)) << ahead;
      EXPECT_EQ(All(fd.get()), there) << ahead;
      EXPECT_TRUE(tree_->report.refused.empty()) << ahead;
    }
    return true;
  }
  std::string All(int fd) {
    std::string all;
    for (const char* name : kNames) {
      bool found = false;
      const std::string value = *fs::GetXattr(fd, name, &found);
      absl::StrAppend(&all, name, " ", found, " ", value.size(), " ");
    }
    return all;
  }
  // So many users may read.
  static std::string Acl(int users) {
    std::string acl;
    const auto add = [&](uint16_t tag, uint16_t bits, uint32_t whom) {
      acl.append(reinterpret_cast<const char*>(&tag), 2);
      acl.append(reinterpret_cast<const char*>(&bits), 2);
      acl.append(reinterpret_cast<const char*>(&whom), 4);
    };
    const uint32_t version = 2;
    acl.append(reinterpret_cast<const char*>(&version), 4);
    add(0x01, 7, UINT32_MAX);
    for (int i = 0; i < users; ++i) add(0x02, 4, 1000 + static_cast<uint32_t>(i));
    add(0x04, 0, UINT32_MAX);
    add(0x10, 5, UINT32_MAX);
    add(0x20, 1, UINT32_MAX);
    return acl;
  }
};

// The inode's own room takes one small value, and the block then just the large one and another.
TEST_F(XattrOrderTest, WhatFittedInTheOrderOfTheSessionDoes) {
  EXPECT_TRUE(
      ExpectReplayed({{"user.old", std::string(28, 't')}}, {{"user.a", "aaaa"},
                                                            {"user.old", ""},
                                                            {"user.b", std::string(28, 'b')},
                                                            {"user.c", std::string(4016, 'c')}}));
}

// What was removed meanwhile had been in the way of those that stayed.
TEST_F(XattrOrderTest, WhatFittedBesideWhatWasRemovedDoes) {
  int taken = 0;
  for (size_t small = 4; small <= 32; small += 4) {
    for (size_t large = 3988; large <= 4036; large += 4) {
      SCOPED_TRACE(absl::StrCat(small, " and ", large));
      taken += ExpectReplayed(
          {{"user.old", std::string(small, 'o')}, {"user.other", std::string(large, 'p')}},
          {{"user.a", "aaaa"}, {"user.old", ""}, {"user.b", std::string(small, 'b')}});
    }
  }
  EXPECT_GT(taken, 20);
}

// What it had when the records begin needs no room beside what they say of it first.
TEST_F(XattrOrderTest, WhatIsReplacedTwiceNeedsNoRoom) {
  const std::vector<XattrBody> before = {{"user.old", std::string(3000, 'o')}};
  for (const std::string& first : {std::string(), std::string("short")}) {
    EXPECT_TRUE(ExpectReplayed(
        before, {{"user.old", first}, {"user.a", std::string(3000, 'a')}, {"user.old", "last"}}));
    EXPECT_TRUE(ExpectReplayed(before, {{"user.old", first},
                                        {"user.b", "b"},
                                        {"user.a", std::string(3000, 'a')},
                                        {"user.old", "last"}}));
  }
}

TEST_F(XattrOrderTest, AnAclAtTheEndNeedsNoRoomBesideWhatWasTakenBack) {
  EXPECT_TRUE(ExpectReplayed(
      {}, {{"user.a", std::string(2500, 'a')}, {"user.a", ""}, {kAccessAclXattr, Acl(300)}}));
}

TEST_F(XattrOrderTest, AnAclThatWasTakenBackNeedsNoRoom) {
  EXPECT_TRUE(ExpectReplayed(
      {},
      {{kAccessAclXattr, Acl(300)}, {kAccessAclXattr, ""}, {"user.a", std::string(2500, 'a')}}));
}

// As in the session: what sets the ACL sets the bits, and chmod changes both.
TEST_F(XattrOrderTest, PermissionBitsFollowFromTheLastOfAclAndChmod) {
  const auto run = [&](const std::function<void(Stamper&)>& stamp) {
    const UniqueFd fd = MustOpen(tree_->At("f"), O_PATH);
    EXPECT_OK(fs::RemoveXattr(fd.get(), kAccessAclXattr));
    EXPECT_OK(fs::Chmod(fd.get(), 0644));
    Stamper stamper(7);
    stamp(stamper);
    mode_t mode = 0;
    for (int round = 0; round < 2; ++round) {  // the second time the disk is ahead
      EXPECT_OK(tree_->Run(stamper));
      const mode_t now = tree_->Stat("f").st_mode & 07777;
      EXPECT_TRUE(round == 0 || now == mode) << now << " after " << mode;
      mode = now;
    }
    return mode;
  };
  const auto set = [](Stamper& stamper, const std::string& acl) {
    stamper.Stamp(acl.empty() ? Op::kRemoveXattr : Op::kSetXattr, kFile,
                  XattrBody{kAccessAclXattr, acl}.Encode());
  };
  EXPECT_EQ(run([&](Stamper& s) { set(s, Acl(2)); }), 0751u);
  EXPECT_EQ(run([&](Stamper& s) {
              set(s, Acl(2));
              s.Chmod(kFile, 02620);
            }),
            02620u);
  EXPECT_EQ(run([&](Stamper& s) {
              s.Chmod(kFile, 02620);
              set(s, Acl(2));
            }),
            02751u);
  EXPECT_EQ(run([&](Stamper& s) {
              set(s, Acl(2));
              set(s, "");
            }),
            0751u);
}

// A session that went on was not refused it, or has cancelled it.
TEST_F(RefusalTest, AttributeWithoutRoomBehindWhichAnotherChangeFollowsIsAnError) {
  SetXattr("user.a", std::string(2100, 'a'));
  SetXattr("user.b", std::string(3000, 'b'));
  s_.Chmod(kFile, 0600);
  const absl::Status status = tree_->Run(s_);
  EXPECT_EQ(StatusErrno(status), ENOSPC) << status;
  EXPECT_NE(status.message().find(tree_->At("f")), absl::string_view::npos) << status;
}

// One that was cancelled, or is left out itself, follows as well.
TEST_F(RefusalTest, OnlyTheVeryLastIsLeftOut) {
  SetXattr("user.a", std::string(2100, 'a'));
  SetXattr("user.b", std::string(3000, 'b'));
  SetXattr("user.c", std::string(3000, 'c'));
  EXPECT_EQ(StatusErrno(tree_->Run(s_)), ENOSPC);
  EXPECT_LE(tree_->report.refused.size(), 1u);
  Stamper cancelled(7);
  for (const char* name : {"user.a", "user.b", "user.c"}) {
    cancelled.Stamp(Op::kSetXattr, kFile, XattrBody{name, std::string(2100, 'x')}.Encode());
  }
  cancelled.Cancel(3);
  EXPECT_EQ(StatusErrno(tree_->Run(cancelled)), ENOSPC);
}

TEST_F(RefusalTest, AttributeIsNotLeftOutOnAFullDisk) {
  SetXattr("user.a", std::string(3000, 'a'));
  {
    const UniqueFd fd = MustOpen(tree_->At("filler"), O_RDWR | O_CREAT);
    const std::string block(4096, 'x');
    for (int64_t at = 0; PwriteFull(fd.get(), AsBytes(block), at).ok(); at += 4096) {
    }
  }
  EXPECT_TRUE(absl::IsResourceExhausted(tree_->Run(s_)));
  ASSERT_EQ(unlink(tree_->At("filler").c_str()), 0);
  ASSERT_OK(tree_->Run(s_));
  EXPECT_EQ(XattrOf("user.a").size(), 3000u);
}

// As it refused the session that died before it had cancelled it.
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

// EMLINK of ext4.
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

TEST_F(MostLinksTest, OneMoreIsLeftOut) {
  s_.Chmod(kFile, 0600);
  s_.Link(kFile, kRoot, "more");
  ASSERT_OK(tree_->Run(s_));
  EXPECT_EQ(tree_->report.refused.size(), 1u);
  EXPECT_FALSE(Exists(tree_->At("more")));
  EXPECT_EQ(tree_->Stat("f").st_mode & 07777u, 0600u);
}

TEST_F(MostLinksTest, OneMoreBehindWhichTheDirectoryChangesIsAnError) {
  s_.Link(kFile, kRoot, "more");
  s_.CreateFile(60, kRoot, "later");
  EXPECT_EQ(StatusErrno(tree_->Run(s_)), EMLINK);
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

// EMLINK of a directory, which an ext4 has that was an ext3 once.
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
  Stamper stamper(7);
  stamper.Rename(52, 50, "moved", 51, "moved");
  ASSERT_OK(tree.Run(stamper));
  ASSERT_EQ(tree.report.refused.size(), 1u);
  ASSERT_OK(tree.Clean());
  EXPECT_TRUE(Exists(tree.At("from/moved/inside")));
  EXPECT_TRUE(tree.report.lost_and_found.empty());
}

TEST_F(RefusalTest, AttributesOfAFileThatWasMadeImmutableMeanwhile) {
  s_.Chmod(kFile, 0600);
  ExpectStoppedByMark("f");
  EXPECT_EQ(tree_->Stat("f").st_mode & 07777u, 0600u);
}

TEST_F(RefusalTest, DataOfAFileThatWasMadeImmutableMeanwhile) {
  s_.Write(kFile, 0, "new");
  ExpectStoppedByMark("f");
  EXPECT_EQ(ReadFile(tree_->At("f")), "new");
}

TEST_F(RefusalTest, NameInADirectoryThatWasMadeImmutableMeanwhile) {
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
