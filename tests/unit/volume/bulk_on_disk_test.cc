// Bulk files whose disk loses its power or is gone.
#include <errno.h>
#include <sys/stat.h>

#include "log/record.h"
#include "tests/unit/volume/bulk_fixture.h"
#include "tests/unit/volume/fake_stream.h"

namespace salius {
namespace {

using BulkOnDiskTest = BulkFixture;

// An fdatasync of allocated blocks does not write the times.
TEST_F(BulkOnDiskTest, FsyncPutsTheTimesOnTheDiskToo) {
  Make(64 * kMiB, "mkfs.ext4 -q -b 4096 -m 0", "commit=1000");  // nothing else writes the times
  Handle* const file = OldFile("a");
  MakeBulk(file);
  struct stat want {};
  want.st_mtim = {1000, 0};
  ASSERT_TRUE(volume->attrs().SetAttr(file->node, kSetMtime, want).ok());
  ASSERT_TRUE(volume->stream().Checkpoint().ok());
  ASSERT_TRUE(volume->stream().Checkpoint().ok());  // not bulk any more
  MakeBulk(file);
  ASSERT_TRUE(Fsync(file).ok());
  ASSERT_EQ(fake().Issued(Op::kOnDisk).size(), 1u);
  const timespec mtime = Stat(file->node).st_mtim;
  EXPECT_NE(mtime.tv_sec, 1000);
  const timespec found = scratch->StatAfterPowerCut("a").st_mtim;
  EXPECT_EQ(found.tv_sec, mtime.tv_sec);
  EXPECT_EQ(found.tv_nsec, mtime.tv_nsec);
  volume->open_files().Release(file);
}

TEST_F(BulkOnDiskTest, RenameOverAnotherFileFailsWhenBulkDataCannotBeSynced) {
  Make();
  volume->open_files().Release(Create("target"));
  Handle* const file = OldFile("a");
  MakeBulk(file);
  scratch->Shutdown();
  EXPECT_EQ(Errno(volume->names().Rename(root(), "a", root(), "target", 0)), EIO);
  EXPECT_TRUE(fake().Issued(Op::kRename).empty());
  volume->open_files().Release(file);
}

}  // namespace
}  // namespace salius
