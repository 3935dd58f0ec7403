// Extended attributes in replay: whether they fit depends on the present ones, and on the order in
// which they came.
#include "recovery/replay/replay_xattrs.h"

#include <array>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "storage/posix_acl.h"
#include "tests/unit/recovery/xattr_testing.h"

namespace salius::recovery {
namespace {

// ext4 keeps all attributes of an inode in one block.
TEST_F(RefusedXattrTest, AttributesThatWereTakenBackNeedNoRoomBesideTheLatest) {  // R59
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

TEST_F(RefusedXattrTest, AttributeWithoutRoomIsLeftOutWhenItIsTheLastChange) {  // R60
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

TEST_F(RefusedXattrTest, EarlierValueOfAnOmittedAttributeStays) {
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

// A session that continued was not refused it, or has cancelled it.
TEST_F(RefusedXattrTest, AttributeWithoutRoomBehindWhichAnotherChangeFollowsIsAnError) {  // R61
  for (const bool link : {false, true}) {
    Stamper s(7);
    s.Stamp(Op::kSetXattr, kFile, XattrBody{"user.a", std::string(2100, 'a')}.Encode());
    s.Stamp(Op::kSetXattr, kFile, XattrBody{"user.b", std::string(3000, 'b')}.Encode());
    link ? s.Link(kFile, kRoot, "more") : s.Chmod(kFile, 0600);
    const absl::Status status = tree_->Run(s);
    EXPECT_EQ(StatusErrno(status), ENOSPC) << status;
    EXPECT_NE(status.message().find(tree_->At("f")), absl::string_view::npos) << status;
  }
}

// A later record that was cancelled, or is left out itself, counts as well.
TEST_F(RefusedXattrTest, OnlyTheLastChangeIsLeftOut) {
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

TEST_F(RefusedXattrTest, AttributeIsNotLeftOutOnAFullDisk) {
  SetXattr("user.a", std::string(3000, 'a'));
  FillDisk(tree_->At("filler"));
  EXPECT_TRUE(absl::IsResourceExhausted(tree_->Run(s_)));
  ASSERT_EQ(unlink(tree_->At("filler").c_str()), 0);
  ASSERT_OK(tree_->Run(s_));
  EXPECT_EQ(XattrOf("user.a").size(), 3000u);
}

// A run that was cut off while it looked for an order may have left the last one alone on the disk.
TEST_F(RefusedXattrTest, AttributeIsLeftOutAfterACutOffRunToo) {
  SetXattr("user.a", std::string(2100, 'a'));
  SetXattr("user.b", std::string(3000, 'b'));
  {
    const UniqueFd fd = MustOpen(tree_->At("f"), O_PATH);
    ASSERT_OK(fs::SetXattr(fd.get(), "user.b", std::string(3000, 'b')));
  }
  ASSERT_OK(tree_->Run(s_));
  ASSERT_EQ(tree_->report.refused.size(), 1u);
  EXPECT_NE(tree_->report.refused[0].find("record 2"), std::string::npos);
  EXPECT_EQ(XattrOf("user.a").size(), 2100u);
  EXPECT_EQ(XattrOf("user.b"), "");
}

TEST_F(RefusedXattrTest, AnAclThatIsLeftOutChangesNoPermissionBits) {
  for (const bool had_one : {false, true}) {
    Stamper s(7);
    if (had_one) {  // and the session removed it
      const UniqueFd fd = MustOpen(tree_->At("f"), O_PATH);
      ASSERT_OK(fs::SetXattr(fd.get(), kAccessAclXattr, Acl(1)));
      s.Stamp(Op::kRemoveXattr, kFile, XattrBody{kAccessAclXattr, ""}.Encode());
    }
    ASSERT_EQ(chmod(tree_->At("f").c_str(), 0600), 0);
    s.Stamp(Op::kSetXattr, kFile, XattrBody{"user.a", std::string(2100, 'a')}.Encode());
    s.Stamp(Op::kSetXattr, kFile, XattrBody{kAccessAclXattr, Acl(300)}.Encode());
    for (int round = 0; round < 2; ++round) {
      ASSERT_OK(tree_->Run(s)) << round;
      EXPECT_EQ(tree_->report.refused.size(), 1u);
      EXPECT_EQ(XattrOf("user.a").size(), 2100u);
      EXPECT_EQ(XattrOf(kAccessAclXattr), "");
      EXPECT_EQ(tree_->Stat("f").st_mode & 07777u, 0600u);
    }
  }
}

// A directory's own ACL and the one it hands on do not both fit.
TEST_F(RefusedXattrTest, DirectoryWithoutRoomForItsAclsIsLeftOutInEveryRun) {
  CreateBody body;
  body.dir = kRoot;
  body.name = "d";
  body.mode = S_IFDIR | 0751;
  body.xattrs = {{kAccessAclXattr, Acl(300)}, {kDefaultAclXattr, Acl(300)}};
  s_.Unlink(kFile, kRoot, "f");  // so that MakeRoom has work
  s_.Stamp(Op::kCreate, 60, body.Encode());
  for (int round = 0; round < 2; ++round) {  // the first was cut off before its clean-up
    ASSERT_OK(tree_->Run(s_)) << round;
    EXPECT_EQ(tree_->report.refused.size(), 1u);
    EXPECT_FALSE(Exists(tree_->At("d")));
  }
}

// The disk had them before an fsync, and the records after it need not repeat them.
TEST_F(RefusedXattrTest, PermissionBitsThatAreOnTheDiskStay) {
  using Stamp = std::function<void(Stamper&)>;
  const auto xattr = [](Stamper& s, const char* name, const std::string& value) {
    s.Stamp(value.empty() ? Op::kRemoveXattr : Op::kSetXattr, kFile,
            XattrBody{name, value}.Encode());
  };
  const Stamp acl = [&](Stamper& s) { xattr(s, kAccessAclXattr, Acl(2)); };
  const Stamp none = [&](Stamper& s) { xattr(s, kAccessAclXattr, ""); };
  const Stamp mode = [&](Stamper& s) { s.Chmod(kFile, 0600); };
  const Stamp nothing = [](Stamper&) {};
  const Stamp left_out = [&](Stamper& s) {
    xattr(s, "user.a", std::string(2100, 'a'));
    xattr(s, kAccessAclXattr, Acl(300));
  };
  for (const Stamp& behind : {nothing, left_out}) {
    for (const auto& order : {std::array{acl, none, mode}, std::array{acl, mode, none}}) {
      Stamper s(7);
      for (const Stamp& stamp : order) stamp(s);
      s.OnDisk(kFile, s.last());
      behind(s);
      ASSERT_EQ(chmod(tree_->At("f").c_str(), 0600), 0);
      for (int round = 0; round < 2; ++round) {
        ASSERT_OK(tree_->Run(s));
        EXPECT_EQ(tree_->Stat("f").st_mode & 07777u, 0600u);
      }
    }
  }
}

// Whether attributes fit depends on the order in which they came.
class XattrOrderTest : public RefusedXattrTest {
 protected:
  static constexpr std::array kNames = {"user.old", "user.other", "user.a",
                                        "user.b",   "user.c",     kAccessAclXattr};

  // Replays the records onto a file with the attributes `before` and any number of their changes,
  // from none to all. Returns false when the file system does not take them in the session's order.
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
    const auto start_with = [&](size_t some) {
      for (const char* name : kNames) EXPECT_OK(fs::RemoveXattr(fd.get(), name));
      return taken(before) && taken({changes.begin(), changes.begin() + static_cast<long>(some)});
    };
    if (!start_with(changes.size())) return false;
    const std::string there = All(fd.get());
    for (size_t ahead = 0; ahead <= changes.size(); ++ahead) {
      EXPECT_TRUE(start_with(ahead));
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
};

// The inode's own room takes one small value, and the block then just the large one and another.
TEST_F(XattrOrderTest, AttributesThatFittedInSessionOrderFit) {
  EXPECT_TRUE(
      ExpectReplayed({{"user.old", std::string(28, 't')}}, {{"user.a", "aaaa"},
                                                            {"user.old", ""},
                                                            {"user.b", std::string(28, 'b')},
                                                            {"user.c", std::string(4016, 'c')}}));
}

// Attributes that were removed meanwhile had displaced those that stayed.
TEST_F(XattrOrderTest, AttributeThatFittedBesideARemovedOneFits) {
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

// Its values from before the records need no room beside the first values that the records give.
TEST_F(XattrOrderTest, ValueReplacedTwiceNeedsNoRoom) {
  const std::vector<XattrBody> before = {{"user.old", std::string(3000, 'o')}};
  for (const std::string& first : {std::string(), std::string("short")}) {
    EXPECT_TRUE(ExpectReplayed(
        before, {{"user.old", first}, {"user.a", std::string(3000, 'a')}, {"user.old", "last"}}));
    EXPECT_TRUE(ExpectReplayed(before, {{"user.old", first},
                                        {"user.b", "b"},
                                        {"user.a", std::string(3000, 'a')},
                                        {"user.old", "last"}}));
  }
  // With its middle value on the disk none fits until it is removed, not even in the session's
  // order.
  EXPECT_TRUE(ExpectReplayed({}, {{"user.a", std::string(3500, 'a')},
                                  {"user.a", ""},
                                  {"user.old", std::string(3000, 'o')},
                                  {"user.old", "short"},
                                  {"user.a", std::string(3000, 'a')},
                                  {"user.old", "last"}}));
}

TEST_F(XattrOrderTest, FinalAclNeedsNoRoomBesideRemovedOnes) {
  EXPECT_TRUE(ExpectReplayed(
      {}, {{"user.a", std::string(2500, 'a')}, {"user.a", ""}, {kAccessAclXattr, Acl(300)}}));
}

// One ACL is small and lies in the inode's own room, which only the first attributes get. The other
// is large and displaced them until it was removed.
TEST_F(XattrOrderTest, AnAclThatIsReplacedAtTheEndNeedsNoOtherRoom) {
  EXPECT_TRUE(ExpectReplayed({}, {{kAccessAclXattr, Acl(1)},
                                  {"user.a", "aaaa"},
                                  {"user.b", std::string(4016, 'b')},
                                  {kAccessAclXattr, Acl(1)}}));
  for (const std::string& first : {std::string(), Acl(1)}) {
    EXPECT_TRUE(ExpectReplayed(
        {{kAccessAclXattr, Acl(300)}},
        {{kAccessAclXattr, first}, {"user.a", std::string(2500, 'a')}, {kAccessAclXattr, Acl(2)}}));
  }
  EXPECT_TRUE(ExpectReplayed({}, {{"user.a", std::string(3500, 'a')},
                                  {"user.a", ""},
                                  {kAccessAclXattr, Acl(300)},
                                  {kAccessAclXattr, Acl(1)},
                                  {"user.a", std::string(3000, 'a')},
                                  {kAccessAclXattr, Acl(2)}}));
}

TEST_F(XattrOrderTest, AnAclThatWasTakenBackNeedsNoRoom) {
  EXPECT_TRUE(ExpectReplayed(
      {},
      {{kAccessAclXattr, Acl(300)}, {kAccessAclXattr, ""}, {"user.a", std::string(2500, 'a')}}));
}

// As in the session, setting the ACL sets the bits, and chmod changes both.
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

// Two fill the inode's own room, and the others the block. With one of the others in the inode not
// all fit.
class FullInodeTest : public RefusedXattrTest {
 protected:
  // Sets and logs an attribute, as the session does.
  bool Put(const std::string& name, const std::string& value) {
    if (!fs::SetXattr(fd_.get(), name, value).ok()) return false;
    s_.Stamp(Op::kSetXattr, kFile, XattrBody{name, value}.Encode());
    values_[name] = value;
    return true;
  }
  void Remove(const std::string& name) {
    ASSERT_OK(fs::RemoveXattr(fd_.get(), name));
    s_.Stamp(Op::kRemoveXattr, kFile, XattrBody{name, ""}.Encode());
    values_.erase(name);
  }
  // Fills the room to the last byte but a few.
  void Fill() {
    for (size_t bytes = 16; bytes > 0; bytes -= 4) {
      for (int i = 0; Put(absl::StrFormat("user.y%d.%d", bytes, i), std::string(bytes, 'x')); ++i) {
      }
    }
    Put("user.z", "");
  }
  // Replays from an inode that the disk has without them.
  void ExpectReplayed() {
    for (const auto& [name, value] : values_) ASSERT_OK(fs::RemoveXattr(fd_.get(), name));
    ASSERT_OK(tree_->Run(s_));
    EXPECT_TRUE(tree_->report.refused.empty());
    for (const auto& [name, value] : values_) EXPECT_EQ(XattrOf(name.c_str()), value) << name;
  }

  std::map<std::string, std::string> values_;
};

// One is in the inode only because another left it.
TEST_F(FullInodeTest, ValuesThatFitInNoOtherOrderAreStored) {
  ASSERT_TRUE(Put("user.first", std::string(28, 'f')));
  for (int i = 0; i < 60; ++i)
    ASSERT_TRUE(Put(absl::StrFormat("user.x%d", i), std::string(16, 'x')));
  ASSERT_TRUE(Put("user.p", std::string(4, 'p')));
  ASSERT_TRUE(Put("user.q", std::string(4, 'q')));
  Remove("user.first");
  ASSERT_TRUE(Put("user.p", std::string(4, 'P')));
  ASSERT_TRUE(Put("user.q", std::string(4, 'Q')));
  Fill();
  ExpectReplayed();
}

}  // namespace
}  // namespace salius::recovery
