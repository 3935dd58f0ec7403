// Names on certain file systems, and inherited ACLs compared with the kernel's.
#include <errno.h>

#include <string>

#include "tests/unit/volume/volume_fixture.h"

namespace salius {
namespace {

using NamesOnDiskTest = VolumeFixture;

TEST_F(NamesOnDiskTest, FailedApplyIsReportedAndCancelled) {
  // 32 inodes, 11 of them reserved by ext4 and some in use by .salius.
  Make(16 * kMiB, "mkfs.ext4 -q -b 4096 -m 0 -N 32 -O ^has_journal");
  int made = 0;
  int error = 0;
  for (; made < 64 && error == 0; ++made) {
    auto entry = volume->names().MakeDir(root(), "d" + std::to_string(made), 0755, caller);
    error = Errno(entry);
    if (entry.ok()) volume->names().Forget(*entry->node, 1);
  }
  EXPECT_EQ(error, ENOSPC);
  EXPECT_GT(made, 2);
  EXPECT_TRUE(volume->stream().health().ok());
  EXPECT_EQ(Errno(volume->names().Lookup(root(), "d" + std::to_string(made - 1))), ENOENT);
  // A failed object is not left behind, and there is room again after a removal.
  EXPECT_EQ(Errno(volume->names().RemoveDir(root(), "d0")), 0);
  EXPECT_EQ(Errno(volume->names().MakeDir(root(), "again", 0755, caller)), 0);
}

TEST_F(NamesOnDiskTest, DefaultAclIsInheritedInsteadOfTheUmask) {
  Make();
  Node& dir = Dir(root(), "d");
  MustRun("setfacl -d -m u:4242:rwx,g::rx,o::- " + DiskPath("d"));
  auto file = volume->names().MakeNode(dir, "f", S_IFREG | 0666, 0, caller);
  ASSERT_TRUE(file.ok()) << file.status();
  // Owner rw; mask rwx & rw = rw; other none.
  EXPECT_EQ(file->attr.st_mode & 07777, 0660u);
  auto acl = volume->attrs().GetXattr(*file->node, "system.posix_acl_access");
  EXPECT_TRUE(acl.ok());
  auto inner = volume->names().MakeDir(dir, "s", 0777, caller);
  ASSERT_TRUE(inner.ok());
  EXPECT_TRUE(volume->attrs().GetXattr(*inner->node, "system.posix_acl_default").ok());
  // The kernel gives the same result.
  MustRun("umask 022; touch " + DiskPath("d/k") + "; getfacl -cE " + DiskPath("d/f") + " > " +
          DiskPath("f.acl") + "; getfacl -cE " + DiskPath("d/k") + " > " + DiskPath("k.acl") +
          "; cmp " + DiskPath("f.acl") + " " + DiskPath("k.acl"));
}

}  // namespace
}  // namespace salius
