// Attributes on certain file systems.
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <sys/xattr.h>
#include <time.h>
#include <unistd.h>

#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "client/volume/prediction.h"
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

// Returns whether the kernel gives the exact time to the first change after a look at a ctime.
bool GivesExactTimes() {
  utsname name{};
  int major = 0;
  int minor = 0;
  return uname(&name) == 0 && sscanf(name.release, "%d.%d", &major, &minor) == 2 &&
         std::pair(major, minor) >= std::pair(6, 13);
}

// Programs see the disk's ctime when the kernel has forgotten the inode. The last change of each file
// is long ago, so the disk gets a step of the clock at first.
TEST_F(AttrOnDiskTest, CtimeOfTheDiskIsNotBeforeThePredictedOne) {
  if (!GivesExactTimes()) GTEST_SKIP() << "before Linux 6.13 it may be a step of the clock before";
  early = fake_stream = true;
  for (const char* const mkfs : {"mkfs.ext4 -q -b 4096 -m 0", "mkfs.xfs -q", "mkfs.btrfs -q"}) {
    if (!ScratchFs::Supported(mkfs, "rw")) continue;
    Make(320 * kMiB, mkfs);
    const auto apply_all = [&] {
      ASSERT_TRUE(volume->stream().WaitApplied(volume->stream().watermarks().issued).ok());
    };
    std::vector<Handle*> files;
    for (int i = 0; i < 100; ++i) files.push_back(Create(std::to_string(i)));
    apply_all();
    timespec made{};
    timespec now{};
    ASSERT_EQ(clock_gettime(CLOCK_REALTIME, &made), 0);
    while (!IsBefore(made, now)) ASSERT_EQ(clock_gettime(CLOCK_REALTIME_COARSE, &now), 0);
    int back = 0;
    for (Handle* const file : files) {
      struct stat want {};
      want.st_mode = 0600;
      ASSERT_TRUE(volume->attrs().SetAttr(file->node, kSetMode, want).ok());
      const timespec shown = Stat(file->node).st_ctim;
      apply_all();
      const absl::StatusOr<struct stat> disk = backing().Stat(file->node.path_fd.get());
      ASSERT_TRUE(disk.ok()) << disk.status();
      back += IsBefore(disk->st_ctim, shown);
      volume->open_files().Release(file);
    }
    EXPECT_EQ(back, 0) << mkfs;
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
