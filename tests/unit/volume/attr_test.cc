// Attributes and extended attributes.
#include <errno.h>
#include <fcntl.h>
#include <sys/xattr.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <string>
#include <utility>

#include "storage/apply.h"
#include "storage/posix_acl.h"
#include "tests/unit/volume/volume_fixture.h"

namespace salius {
namespace {

class AttrTest : public VolumeFixture {};

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
  EXPECT_NEAR(static_cast<double>(st->st_mtim.tv_sec), static_cast<double>(time(nullptr)), 60);
  EXPECT_EQ(st->st_atim.tv_sec, 100);
  EXPECT_EQ(st->st_uid, 7u);
  st = volume->attrs().SetAttr(node, 0, none);
  ASSERT_TRUE(st.ok());
  EXPECT_EQ(st->st_size, 5);
}

// A file system may stamp with a finer clock once a program has read a time.
TEST_F(AttrTest, NowIsNeverBeforeTheLastWrite) {
  for (const char* const mkfs : {"mkfs.ext4 -q -b 4096 -m 0", "mkfs.xfs -q", "mkfs.btrfs -q"}) {
    if (!ScratchFs::Supported(mkfs, "rw")) continue;
    Make(320 * kMiB, mkfs);
    Handle* const file = Create("f");
    struct stat none {};
    int back = 0;
    for (int i = 0; i < 200; ++i) {
      Write(file, 0, "one");
      Stat(file->node);
      Write(file, 0, "two");
      const timespec before = Stat(file->node).st_mtim;
      const auto st = volume->attrs().SetAttr(file->node, kSetMtimeNow, none);
      ASSERT_TRUE(st.ok()) << st.status();
      const timespec after = st->st_mtim;
      back += std::pair(after.tv_sec, after.tv_nsec) < std::pair(before.tv_sec, before.tv_nsec);
    }
    EXPECT_EQ(back, 0) << mkfs;
    volume->open_files().Release(file);
    TearDown();
  }
}

TEST_F(AttrTest, NowIsKnownWithoutAnInodeLeftToAskTheFileSystem) {
  MakeClosed(256 * kMiB, "mkfs.ext4 -q -b 4096 -m 0 -N 64");
  int made = 0;
  while (OpenAt(AT_FDCWD, Backing(std::to_string(made)), O_CREAT | O_RDWR, 0644).ok()) ++made;
  ASSERT_EQ(unlink(Backing(std::to_string(made - 1)).c_str()), 0);  // the session's own
  Open();
  struct stat none {};
  const auto st = volume->attrs().SetAttr(Find("0"), kSetMtimeNow, none);
  ASSERT_TRUE(st.ok()) << st.status();
  EXPECT_NEAR(static_cast<double>(st->st_mtim.tv_sec), static_cast<double>(time(nullptr)), 60);
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

// The kernel asks for an ACL before it uses the mode; only "there is none" lets it continue.
TEST_F(AttrTest, AFileSystemWithoutAclsHasNone) {
  const std::string mkfs = "mkfs.btrfs -q";  // ext4 no longer has such an option
  if (!ScratchFs::Supported(mkfs, "noacl")) GTEST_SKIP() << "no btrfs without ACLs in this kernel";
  Make(256 * kMiB, mkfs, "noacl");
  if (IsSkipped()) return;
  Node& dir = Dir(root(), "d");
  for (const char* acl : {kAccessAclXattr, kDefaultAclXattr}) {
    EXPECT_EQ(getxattr(Backing("d").c_str(), acl, nullptr, 0), -1);
    EXPECT_EQ(errno, EOPNOTSUPP);
    EXPECT_EQ(Errno(volume->attrs().GetXattr(dir, acl)), ENODATA) << acl;
  }
}

TEST_F(AttrTest, SaliusOwnXattrIsHiddenAndCannotBeChanged) {
  Make();
  volume->open_files().Release(Create("f"));
  Node& node = Find("f");
  EXPECT_NE(*ReadFileIdAt(AT_FDCWD, Backing("f")), kNoFileId);
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
