// Space and quota: data that cannot be stored is refused before it is acknowledged (I8).
#include <errno.h>
#include <fcntl.h>

#include <string>

#include "tests/unit/volume/space_fixture.h"

namespace salius {
namespace {

using SpaceTest = SpaceFixture;

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
      file->node.seen_records().extents.ForEachRecord(
          [&](const RecordRef& record) { EXPECT_EQ(record->header().op, Op::kWrite) << i; });
    }
    volume->open_files().Release(emptied);
  }
  EXPECT_TRUE(volume->stream().Checkpoint().ok());
  EXPECT_EQ(BackingContent("file"), std::string(4096, 'g'));
  volume->open_files().Release(file);
  volume->open_files().Release(fill);
}

}  // namespace
}  // namespace salius
