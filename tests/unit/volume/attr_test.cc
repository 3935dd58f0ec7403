// Attributes and extended attributes.
#include <errno.h>
#include <fcntl.h>
#include <sys/xattr.h>

#include <algorithm>
#include <string>

#include "storage/apply.h"
#include "storage/posix_acl.h"
#include "tests/unit/volume/volume_fixture.h"

namespace salius {
namespace {

using AttrTest = VolumeFixture;

TEST_F(AttrTest, NanosecondsThatNoRecordTakesAreRefused) {
  Make();
  Handle* const file = Create("f");
  struct stat want {};
  want.st_atim = want.st_mtim = {1000, 1'000'000'000};
  const Seq issued = volume->stream().watermarks().issued;
  EXPECT_EQ(Errno(volume->attrs().SetAttr(file->node, kSetAtime, want)), EINVAL);
  EXPECT_EQ(Errno(volume->attrs().SetAttr(file->node, kSetMtime, want)), EINVAL);
  EXPECT_EQ(volume->stream().watermarks().issued, issued);
  want.st_atim.tv_nsec = want.st_mtim.tv_nsec = 999'999'999;
  EXPECT_EQ(Errno(volume->attrs().SetAttr(file->node, kSetAtime | kSetMtime, want)), 0);
  volume->open_files().Release(file);
  Close();
}

TEST_F(AttrTest, EachPartOfSetAttrIsSetAndNothingElse) {
  Make();
  volume->open_files().Release(Create("f"));
  Node& node = Find("f");
  struct stat want {};
  want.st_mode = 04711;
  want.st_uid = 7;
  want.st_gid = 8;
  want.st_size = 5;
  want.st_atim = {100, 1};
  want.st_mtim = {200, 2};
  auto st = volume->attrs().SetAttr(
      node, kSetMode | kSetUid | kSetGid | kSetSize | kSetAtime | kSetMtime, want);
  ASSERT_TRUE(st.ok()) << st.status();
  EXPECT_EQ(st->st_mode, static_cast<mode_t>(S_IFREG | 04711));
  EXPECT_EQ(st->st_uid, 7u);
  EXPECT_EQ(st->st_gid, 8u);
  EXPECT_EQ(st->st_size, 5);
  EXPECT_EQ(st->st_atim.tv_sec, 100);
  EXPECT_EQ(st->st_mtim.tv_nsec, 2);
  struct stat none {};
  st = volume->attrs().SetAttr(node, kSetMtimeNow, none);
  ASSERT_TRUE(st.ok());
  const timespec now = backing().FileTimeNow(-1);
  EXPECT_NEAR(static_cast<double>(st->st_mtim.tv_sec), static_cast<double>(now.tv_sec), 60);
  EXPECT_EQ(st->st_atim.tv_sec, 100);
  EXPECT_EQ(st->st_uid, 7u);
  st = volume->attrs().SetAttr(node, 0, none);
  ASSERT_TRUE(st.ok());
  EXPECT_EQ(st->st_size, 5);
}

TEST_F(AttrTest, TruncateRefusesObjectsWithoutASize) {
  Make();
  struct stat want {};
  EXPECT_EQ(Errno(volume->attrs().SetAttr(Dir(root(), "d"), kSetSize, want)), EISDIR);
  auto fifo = volume->names().MakeNode(root(), "p", S_IFIFO | 0644, 0, caller);
  ASSERT_TRUE(fifo.ok());
  EXPECT_EQ(Errno(volume->attrs().SetAttr(*fifo->node, kSetSize, want)), EINVAL);
  volume->open_files().Release(Create("f"));
  want.st_size = -1;
  EXPECT_EQ(Errno(volume->attrs().SetAttr(Find("f"), kSetSize, want)), EINVAL);
}

TEST_F(AttrTest, AttributesOfSymlinksAndDirectories) {
  Make();
  auto link = volume->names().Symlink(root(), "l", "nowhere", caller);
  ASSERT_TRUE(link.ok());
  struct stat want {};
  want.st_uid = 9;
  want.st_mtim = {300, 0};
  auto st = volume->attrs().SetAttr(*link->node, kSetUid | kSetMtime, want);
  ASSERT_TRUE(st.ok()) << st.status();
  EXPECT_EQ(st->st_uid, 9u);
  EXPECT_EQ(st->st_mtim.tv_sec, 300);
  want.st_mode = 0700;
  st = volume->attrs().SetAttr(Dir(root(), "d"), kSetMode, want);
  ASSERT_TRUE(st.ok());
  EXPECT_EQ(st->st_mode & 07777, 0700u);
}

TEST_F(AttrTest, XattrsAreSetReplacedListedAndRemoved) {
  Make();
  volume->open_files().Release(Create("f"));
  Node& node = Find("f");
  EXPECT_EQ(Errno(volume->attrs().GetXattr(node, "user.a")), ENODATA);
  EXPECT_EQ(Errno(volume->attrs().SetXattr(node, "user.a", "1", XATTR_REPLACE, false)), ENODATA);
  EXPECT_EQ(Errno(volume->attrs().SetXattr(node, "user.a", "1", XATTR_CREATE, false)), 0);
  EXPECT_EQ(Errno(volume->attrs().SetXattr(node, "user.a", "2", XATTR_CREATE, false)), EEXIST);
  const std::string large(3000, 'x');
  EXPECT_EQ(Errno(volume->attrs().SetXattr(node, "user.b", large, 0, false)), 0);
  EXPECT_EQ(*volume->attrs().GetXattr(node, "user.b"), large);
  auto names = volume->attrs().ListXattr(node);
  ASSERT_TRUE(names.ok());
  std::sort(names->begin(), names->end());
  EXPECT_EQ(*names, (std::vector<std::string>{"user.a", "user.b"}));
  EXPECT_EQ(Errno(volume->attrs().RemoveXattr(node, "user.a")), 0);
  EXPECT_EQ(Errno(volume->attrs().RemoveXattr(node, "user.a")), ENODATA);
}

TEST_F(AttrTest, AnAclThatIsNotThereCanBeRemoved) {
  Make();
  Node& dir = Dir(root(), "d");
  for (const char* acl : {kAccessAclXattr, kDefaultAclXattr}) {
    EXPECT_EQ(Errno(volume->attrs().RemoveXattr(dir, acl)), 0) << acl;
  }
}

TEST_F(AttrTest, SaliusOwnXattrIsHiddenAndCannotBeChanged) {
  Make();
  volume->open_files().Release(Create("f"));
  Node& node = Find("f");
  EXPECT_NE(IdOf("f"), kNoFileId);
  EXPECT_EQ(Errno(volume->attrs().GetXattr(node, kFileIdXattr)), ENODATA);
  EXPECT_EQ(Errno(volume->attrs().SetXattr(node, kFileIdXattr, "12345678", 0, false)), EPERM);
  EXPECT_EQ(Errno(volume->attrs().RemoveXattr(node, kFileIdXattr)), ENODATA);
  EXPECT_TRUE(volume->attrs().ListXattr(node)->empty());
}

TEST_F(AttrTest, UnstorableXattrIsReportedAndTheVolumeContinues) {
  Make();
  volume->open_files().Release(Create("f"));
  Node& node = Find("f");
  EXPECT_EQ(Errno(volume->attrs().SetXattr(node, "user.big", std::string(60000, 'x'), 0, false)),
            ENOSPC);
  EXPECT_EQ(Errno(volume->attrs().SetXattr(node, "user.big", std::string(65537, 'x'), 0, false)),
            E2BIG);
  EXPECT_EQ(Errno(volume->attrs().SetXattr(node, "", "x", 0, false)), ERANGE);
  EXPECT_EQ(Errno(volume->attrs().SetXattr(node, "user.a", "x", 64, false)), EINVAL);
  EXPECT_EQ(Errno(volume->attrs().SetXattr(node, "nosuch.space", "x", 0, false)), EOPNOTSUPP);
  EXPECT_EQ(Errno(volume->attrs().SetXattr(node, "user.small", "x", 0, false)), 0);
}

TEST_F(AttrTest, SettingAnAclCanTakeSetgidAway) {
  Make();
  volume->open_files().Release(Create("f"));
  Node& node = Find("f");
  struct stat want {};
  want.st_mode = 02755;
  ASSERT_TRUE(volume->attrs().SetAttr(node, kSetMode, want).ok());
  EXPECT_EQ(Errno(volume->attrs().SetXattr(node, "user.a", "x", 0, /*kill_sgid=*/true)), 0);
  EXPECT_EQ(Stat(node).st_mode & 07777, 0755u);
}

TEST_F(AttrTest, StatFsCountsUnappliedRecords) {
  Make();
  auto st = volume->StatFs();
  ASSERT_TRUE(st.ok());
  EXPECT_GT(st->f_blocks, 0u);
  EXPECT_LE(st->f_bavail, st->f_blocks);
}

}  // namespace
}  // namespace salius
