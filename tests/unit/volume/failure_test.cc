// A backing disk that fails turns the volume read-only and keeps its log (I8). Real pipeline.
#include <errno.h>
#include <fcntl.h>

#include <string>

#include "client/session/pipeline.h"
#include "log/state_file.h"
#include "tests/unit/volume/scratch_fs.h"
#include "tests/unit/volume/volume_fixture.h"

namespace salius {
namespace {

class FailureTest : public VolumeFixture {
 protected:
  void ExpectReadOnly(Handle* file) {
    EXPECT_FALSE(volume->stream().health().ok());
    EXPECT_EQ(Errno(volume->files().Write(*file, 0, "x", false, Contract::kPlain)), EIO);
    EXPECT_EQ(Errno(Fsync(file)), EIO);
    EXPECT_EQ(Errno(Fsync(file)), EIO) << "a failed sync was forgotten";
    EXPECT_EQ(Errno(volume->names().MakeDir(root(), "d", 0755, caller)), EROFS);
    EXPECT_EQ(Errno(volume->names().Rename(root(), "a", root(), "b", 0)), EROFS);
    EXPECT_NE(Errno(volume->Close()), 0);
  }
};

TEST_F(FailureTest, FailedSyncOfACheckpointTurnsTheVolumeReadOnly) {
  Make();
  Handle* const file = Create("a");
  Write(file, 0, "data", Contract::kDurable);
  scratch->Shutdown();
  EXPECT_FALSE(volume->stream().Checkpoint().ok());
  ExpectReadOnly(file);
  volume->open_files().Release(file);
}

TEST_F(FailureTest, FailedFsyncOfABulkFileTurnsTheVolumeReadOnly) {
  config.bulk_limit_bytes = 4096;
  Make();
  Handle* const file = Create("a");
  ASSERT_TRUE(volume->stream().Checkpoint().ok());
  Write(file, 0, std::string(65536, 'b'));
  scratch->Shutdown();
  EXPECT_EQ(Errno(Fsync(file)), EIO);
  EXPECT_EQ(Errno(Fsync(file)), EIO);
  EXPECT_EQ(Errno(volume->files().Write(*file, 0, "x", false, Contract::kPlain)), EIO);
  EXPECT_EQ(Errno(volume->names().Unlink(root(), "a")), EROFS);
  EXPECT_EQ(Errno(volume->health()), EIO);
  EXPECT_NE(Errno(volume->Close()), 0);
  volume->open_files().Release(file);
}

// Its syncs succeed all the same; see common/ext4_watch.h.
TEST_F(FailureTest, NoCheckpointIsMadeOnceExt4HasFoundAnError) {
  Make();
  Handle* const file = Create("a");
  Write(file, 0, "data", Contract::kDurable);
  FindAnErrorIn(scratch->path());
  EXPECT_FALSE(volume->stream().Checkpoint().ok());
  ExpectReadOnly(file);
  volume->open_files().Release(file);
}

TEST_F(FailureTest, FsyncOfABulkFileFailsOnceExt4HasFoundAnError) {
  config.bulk_limit_bytes = 4096;
  Make();
  Handle* const file = Create("a");
  ASSERT_TRUE(volume->stream().Checkpoint().ok());
  Write(file, 0, std::string(65536, 'b'));
  FindAnErrorIn(scratch->path());
  EXPECT_EQ(Errno(Fsync(file)), EIO);
  EXPECT_EQ(Errno(volume->health()), EIO);
  volume->open_files().Release(file);
}

TEST_F(FailureTest, NothingIsDurableInTheStableLogOnceExt4HasFoundAnError) {
  Make();
  Handle* const file = Create("a");
  Write(file, 0, "data", Contract::kDurable);
  FindAnErrorIn(scratch->path());
  EXPECT_EQ(Errno(volume->files().Write(*file, 0, "x", false, Contract::kDurable)), EIO);
  ExpectReadOnly(file);
  volume->open_files().Release(file);
}

TEST_F(FailureTest, VolumeThatWasNotClosedIsNotOpenedWithoutRecovery) {
  Make();
  Handle* const file = Create("a");
  Write(file, 0, "data", Contract::kDurable);
  volume->open_files().Release(file);
  volume.reset();  // like a crash of the process
  auto dir = VolumeDir::Open(scratch->path(), true);
  ASSERT_TRUE(dir.ok()) << dir.status();
  auto opened = Volume::Open(std::move(*dir), {.config = config}, StartPipeline);
  EXPECT_TRUE(absl::IsFailedPrecondition(opened.status())) << opened.status();
}

TEST_F(FailureTest, ClosedVolumeIsCleanAndReopens) {
  Make();
  Handle* const file = Create("a");
  Write(file, 0, "data");
  volume->open_files().Release(file);
  Close();
  Open();
  EXPECT_EQ(BackingContent("a"), "data");
}

}  // namespace
}  // namespace salius
