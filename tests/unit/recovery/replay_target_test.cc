// The backing file system as recovery's target. Needs root.
#include "recovery/replay/replay_target.h"

#include "common/check.h"
#include "gtest/gtest.h"
#include "storage/volume_config.h"
#include "tests/unit/volume/scratch_fs.h"

namespace salius::recovery {
namespace {

// The syncs of ext4 succeed all the same; see common/ext4_watch.h.
TEST(BackingFileSystemTest, NothingCountsAsSyncedOnceExt4HasFoundAnError) {
  const ScratchFs scratch(64 << 20, "mkfs.ext4 -q", "errors=continue");
  VolumeConfig config = DefaultVolumeConfig();
  config.log_max_bytes = 4 << 20;
  config.stable_log_bytes = 7 << 20;
  config.ballast_bytes = 1 << 20;
  SALIUS_CHECK_OK(CreateVolume(scratch.path(), config));
  const auto dir = VolumeDir::Open(scratch.path(), /*lock=*/true);
  ASSERT_TRUE(dir.ok()) << dir.status();
  ReplayContext context;
  context.root_fd = dir->root_fd;
  context.salius_fd = dir->salius_fd;
  context.ext4 = dir->ext4.get();
  EXPECT_TRUE(BackingFileSystem().Sync(context).ok());
  FindAnErrorIn(scratch.path());
  EXPECT_EQ(BackingFileSystem().Sync(context).code(), absl::StatusCode::kInternal);
}

}  // namespace
}  // namespace salius::recovery
