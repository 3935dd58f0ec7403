// Attributes on certain file systems.
#include <errno.h>
#include <fcntl.h>
#include <sys/xattr.h>
#include <time.h>
#include <unistd.h>

#include <string>
#include <utility>

#include "storage/posix_acl.h"
#include "tests/unit/volume/volume_fixture.h"

namespace salius {
namespace {

using AttrOnDiskTest = VolumeFixture;

// A file system may stamp with a finer clock once a program has read a time.
TEST_F(AttrOnDiskTest, NowIsNeverBeforeTheLastWrite) {
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

TEST_F(AttrOnDiskTest, NowIsKnownWithoutAnInodeLeftToAskTheFileSystem) {
  MakeClosed(256 * kMiB, "mkfs.ext4 -q -b 4096 -m 0 -N 64");
  int made = 0;
  while (OpenAt(AT_FDCWD, DiskPath(std::to_string(made)), O_CREAT | O_RDWR, 0644).ok()) ++made;
  ASSERT_EQ(unlink(DiskPath(std::to_string(made - 1)).c_str()), 0);  // the session's own
  Open();
  struct stat none {};
  const auto st = volume->attrs().SetAttr(Find("0"), kSetMtimeNow, none);
  ASSERT_TRUE(st.ok()) << st.status();
  EXPECT_NEAR(static_cast<double>(st->st_mtim.tv_sec), static_cast<double>(time(nullptr)), 60);
}

// The kernel asks for an ACL before it uses the mode; only "there is none" lets it continue.
TEST_F(AttrOnDiskTest, AFileSystemWithoutAclsHasNone) {
  const std::string mkfs = "mkfs.btrfs -q";  // ext4 no longer has such an option
  if (!ScratchFs::Supported(mkfs, "noacl")) GTEST_SKIP() << "no btrfs without ACLs in this kernel";
  Make(256 * kMiB, mkfs, "noacl");
  if (IsSkipped()) return;
  Node& dir = Dir(root(), "d");
  for (const char* acl : {kAccessAclXattr, kDefaultAclXattr}) {
    EXPECT_EQ(getxattr(DiskPath("d").c_str(), acl, nullptr, 0), -1);
    EXPECT_EQ(errno, EOPNOTSUPP);
    EXPECT_EQ(Errno(volume->attrs().GetXattr(dir, acl)), ENODATA) << acl;
  }
}

}  // namespace
}  // namespace salius
