// Space and quota: data that cannot be stored is refused before it is acknowledged (I8).
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>

#include <functional>
#include <string>

#include "storage/backing.h"
#include "storage/block_calls.h"
#include "storage/fs_calls.h"
#include "storage/quota.h"
#include "storage/space.h"
#include "tests/unit/volume/volume_fixture.h"

namespace salius {
namespace {

// Takes all blocks that `allocate(at, bytes)` can take.
void TakeAll(const std::function<absl::Status(uint64_t, uint64_t)>& allocate) {
  uint64_t at = 0;
  for (uint64_t step = uint64_t{64} << 20; step >= 4096;) {
    const absl::Status allocated = allocate(at, step);
    if (allocated.ok()) {
      at += step;
    } else {
      ASSERT_EQ(Errno(allocated), ENOSPC);
      step /= 2;
    }
  }
}

class SpaceTest : public VolumeFixture {
 protected:
  // Writes pieces until one is refused; returns the bytes that were taken.
  uint64_t Fill(Handle* file, size_t piece, int* error) {
    uint64_t at = 0;
    while (true) {
      const auto written =
          volume->files().Write(*file, at, std::string(piece, 'f'), false, Contract::kPlain);
      *error = Errno(written);
      if (*error != 0) return at;
      at += *written;
    }
  }
  void AllocateAll(Handle* file) {
    TakeAll([&](uint64_t at, uint64_t bytes) {
      return volume->files().Fallocate(*file, 0, at, bytes);
    });
  }
};

TEST_F(SpaceTest, FullDiskRefusesBeforeTheAckAndLosesNothing) {
  config.bulk_limit_bytes = uint64_t{1} << 40;
  Make(48 * kMiB);
  Handle* const file = Create("fill");
  int error = 0;
  uint64_t taken = Fill(file, 256 * 1024, &error);
  EXPECT_EQ(error, ENOSPC);
  EXPECT_GT(taken, 8 * kMiB);
  const auto more = [&] {
    const auto written =
        volume->files().Write(*file, taken, std::string(4096, 'f'), false, Contract::kPlain);
    if (written.ok()) taken += *written;
    return written.ok();
  };
  while (more()) {
  }
  // Overwriting needs no space.
  Write(file, 4096, std::string(8192, 'o'), Contract::kDurable);
  // Neither do bytes in an allocated block.
  EXPECT_TRUE(volume->stream().health().ok());
  ASSERT_TRUE(Fsync(file).ok());
  EXPECT_EQ(Stat(file->node).st_size, static_cast<off_t>(taken));
  EXPECT_EQ(Read(file, 4096, 8192), std::string(8192, 'o'));
  EXPECT_EQ(Read(file, taken - 4096, 8192), std::string(4096, 'f'));
  EXPECT_EQ(Errno(volume->files().Fallocate(*file, FALLOC_FL_KEEP_SIZE, taken, 8 * kMiB)), ENOSPC);
  // Space that becomes free is found.
  struct stat want {};
  want.st_size = static_cast<off_t>(taken - 2 * kMiB);
  ASSERT_TRUE(volume->attrs().SetAttr(file->node, kSetSize, want).ok());
  ASSERT_TRUE(volume->stream().Checkpoint().ok());
  Handle* const other = Create("other");
  Write(other, 0, std::string(kMiB, 'n'));
  volume->open_files().Release(other);
  volume->open_files().Release(file);
  Close();
}

// btrfs counts dirty pages as free space, and writes overwritten blocks elsewhere.
TEST_F(SpaceTest, FullBtrfsRefusesBeforeTheAck) {
  constexpr char kMkfs[] = "mkfs.btrfs -q -f";
  if (!ScratchFs::Supported(kMkfs, "rw")) GTEST_SKIP() << "needs btrfs";
  Make(320 * kMiB, kMkfs);
  Handle* const db = Create("db");
  Write(db, 0, std::string(256 * 1024, 'd'), Contract::kDurable);
  Handle* const fill = Create("fill");
  int error = 0;
  const uint64_t taken = Fill(fill, kMiB, &error);
  EXPECT_EQ(error, ENOSPC);
  EXPECT_GT(taken, 100 * kMiB);
  for (int i = 0; i < 100; ++i) {
    const auto written = volume->files().Write(*db, i % 64 * 4096, std::string(4096, 'e'), false,
                                               Contract::kDurable);
    if (!written.ok()) {
      ASSERT_EQ(Errno(written), ENOSPC) << i;
    }
    ASSERT_TRUE(volume->stream().health().ok()) << i;
  }
  EXPECT_TRUE(volume->stream().Checkpoint().ok());
  volume->open_files().Release(db);
  volume->open_files().Release(fill);
  Close();
}

// XFS zeroes the rest of the block where a file ends. When another file shares that, it needs a new
// block.
TEST_F(SpaceTest, EndWithinASharedBlockIsRefusedOnAFullDisk) {
  constexpr char kMkfs[] = "mkfs.xfs -q -f -m reflink=1";
  if (!ScratchFs::Supported(kMkfs, "rw")) GTEST_SKIP() << "needs XFS";
  Make(320 * kMiB, kMkfs);
  constexpr uint64_t kSize = 8192 + 100;
  Handle* const file = Create("f");
  Write(file, 0, std::string(kSize, 'f'), Contract::kDurable);
  ASSERT_TRUE(volume->files().Fallocate(*file, FALLOC_FL_KEEP_SIZE, 40960, 4096).ok());
  ASSERT_TRUE(volume->stream().Checkpoint().ok());
  MustRun("cp --reflink=always " + Backing("f") + " " + scratch->path() + "/copy");
  const auto rest = OpenAt(AT_FDCWD, scratch->path() + "/rest", O_RDWR | O_CREAT, 0644);
  SALIUS_CHECK_OK(rest);
  Handle* const fill = Create("fill");
  AllocateAll(fill);
  TakeAll([&](uint64_t at, uint64_t bytes) {
    return fs::Fallocate(rest->get(), 0, static_cast<int64_t>(at), bytes);
  });
  const auto truncate = [&](uint64_t size) {
    struct stat want {};
    want.st_size = static_cast<off_t>(size);
    const int error = Errno(volume->attrs().SetAttr(file->node, kSetSize, want));
    EXPECT_TRUE(volume->stream().Checkpoint().ok());
    return error;
  };
  EXPECT_EQ(truncate(5000), ENOSPC);
  EXPECT_EQ(truncate(100000), ENOSPC);
  EXPECT_EQ(
      Errno(volume->files().Write(*file, 40960, std::string(4096, 'g'), false, Contract::kDurable)),
      ENOSPC);
  EXPECT_EQ(Stat(file->node).st_size, static_cast<off_t>(kSize));
  EXPECT_EQ(truncate(4096), 0);
  volume->open_files().Release(file);
  volume->open_files().Release(fill);
  Close();
}

TEST_F(SpaceTest, PreallocatedFileIsWrittenOnAFullDisk) {
  config.bulk_limit_bytes = uint64_t{1} << 40;
  Make(48 * kMiB);
  Handle* const db = Create("db");
  ASSERT_TRUE(volume->files().Fallocate(*db, 0, 0, 2 * kMiB).ok());
  Handle* const fill = Create("fill");
  int error = 0;
  Fill(fill, 64 * 1024, &error);
  EXPECT_EQ(error, ENOSPC);
  for (uint64_t at = 0; at < 2 * kMiB; at += 128 * 1024) {
    Write(db, at, std::string(8192, 'd'), Contract::kDurable);
  }
  EXPECT_TRUE(volume->stream().health().ok());
  EXPECT_TRUE(volume->stream().Checkpoint().ok());
  volume->open_files().Release(db);
  volume->open_files().Release(fill);
}

// Allocated blocks leave the free space at once, not when other writers look again.
TEST_F(SpaceTest, AllocatedSpaceIsNotPromisedToOthers) {
  Make();
  Handle* const other = Create("other");
  Write(other, 0, std::string(4096, 'o'), Contract::kDurable);  // looks
  Handle* const fill = Create("fill");
  AllocateAll(fill);
  int error = 0;
  const uint64_t taken = Fill(other, 64 * 1024, &error);
  EXPECT_EQ(error, ENOSPC);
  EXPECT_LT(taken, kMiB);
  EXPECT_TRUE(volume->stream().Checkpoint().ok());
  EXPECT_TRUE(volume->stream().health().ok()) << volume->stream().health();
  volume->open_files().Release(other);
  volume->open_files().Release(fill);
}

// The present blocks are gone when the write is applied.
TEST_F(SpaceTest, AWriteCountsOnNoBlocksThatAnUnappliedTruncateFrees) {
  Make();
  Handle* const file = Create("file");
  Write(file, 0, std::string(8192, 'f'), Contract::kDurable);
  Handle* const fill = Create("fill");
  AllocateAll(fill);
  for (int i = 0; i < 20; ++i) {
    Handle* const emptied = OpenFile(file->node, O_RDWR | O_TRUNC);  // waits for nothing
    Write(emptied, 0, std::string(4096, 'g'));
    {
      absl::MutexLock lock(&file->node.state);
      for (const RecordRef& patch : file->node.patches.Touching(0, 4096)) {
        EXPECT_EQ(patch->header().op, Op::kWrite) << i;
      }
    }
    volume->open_files().Release(emptied);
  }
  EXPECT_TRUE(volume->stream().Checkpoint().ok());
  EXPECT_EQ(BackingContent("file"), std::string(4096, 'g'));
  volume->open_files().Release(file);
  volume->open_files().Release(fill);
}

TEST_F(SpaceTest, OwnerOverQuotaIsRefusedAndRootIsNot) {
  const std::string mkfs = "mkfs.ext4 -q -b 4096 -m 0 -O quota -E quotatype=usrquota:grpquota";
  if (!ScratchFs::Supported(mkfs, "usrquota,grpquota")) {
    GTEST_SKIP() << "no ext4 quotas in this kernel; QuotaTest has the logic";
  }
  MakeClosed(128 * kMiB, mkfs, "usrquota,grpquota");
  MustRun("setquota -u 1000 0 4096 0 8 " + scratch->path());
  Open();
  Handle* const file = Create("f");
  int error = 0;
  const uint64_t taken = Fill(file, 128 * 1024, &error);
  EXPECT_EQ(error, EDQUOT);
  EXPECT_GT(taken, 2 * kMiB);
  EXPECT_LE(taken, 4 * kMiB);
  Write(file, 0, "overwrite", Contract::kDurable);
  int inode_error = 0;
  for (int i = 0; i < 16 && inode_error == 0; ++i) {
    inode_error = Errno(volume->names().MakeDir(root(), "d" + std::to_string(i), 0755, caller));
  }
  EXPECT_EQ(inode_error, EDQUOT);
  const Caller privileged;
  auto created = volume->names().CreateFile(root(), "root", O_RDWR, 0644, privileged);
  ASSERT_TRUE(created.ok());
  Write(created->handle, 0, std::string(kMiB, 'r'), Contract::kDurable);
  volume->open_files().Release(created->handle);
  volume->open_files().Release(file);
}

// XFS reserves the blocks asked for before it looks which are allocated already.
TEST(SpaceOnXfsTest, PreallocatedBlocksAreWrittenOnAFullDisk) {
  constexpr char kMkfs[] = "mkfs.xfs -q -f";
  if (!ScratchFs::Supported(kMkfs, "rw")) GTEST_SKIP() << "needs XFS";
  constexpr uint64_t kMiB = uint64_t{1} << 20;
  const ScratchFs scratch(320 * kMiB, kMkfs);
  const auto ahead = OpenAt(AT_FDCWD, scratch.path() + "/ahead", O_RDWR | O_CREAT, 0644);
  const auto fill = OpenAt(AT_FDCWD, scratch.path() + "/fill", O_RDWR | O_CREAT, 0644);
  SALIUS_CHECK_OK(ahead);
  SALIUS_CHECK_OK(fill);
  const auto nothing = [] { return absl::OkStatus(); };
  SpaceGuard guard(LinuxBacking(), fill->get(), nothing);
  ASSERT_EQ(Errno(guard.Allocate(ahead->get(), 0, 0, 0, 8 * kMiB)), 0);
  TakeAll(
      [&](uint64_t at, uint64_t bytes) { return guard.Allocate(fill->get(), 0, 0, at, bytes); });
  EXPECT_EQ(Errno(guard.Reserve(ahead->get(), 0, 0, kMiB, kMiB, nothing)), 0);
  EXPECT_EQ(Errno(guard.Reserve(ahead->get(), 0, 0, 8 * kMiB, kMiB, nothing)), ENOSPC);
}

}  // namespace
}  // namespace salius
