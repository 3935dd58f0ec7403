// The checks and syncs at the begin of a session.
#include <fcntl.h>
#include <unistd.h>

#include <functional>
#include <string>

#include "client/session/pipeline.h"
#include "common/bytes.h"
#include "log/record.h"
#include "log/stable_log.h"
#include "log/state_file.h"
#include "storage/backing.h"
#include "tests/unit/volume/volume_fixture.h"

namespace salius {
namespace {

class OpenTest : public VolumeFixture {
 protected:
  absl::Status Refusal() {
    absl::StatusOr<VolumeDir> dir = VolumeDir::Open(scratch->path(), /*lock=*/true);
    SALIUS_CHECK_OK(dir);
    return Volume::Open(*std::move(dir), {.config = config},
                                StartPipeline).status();
  }
  void ChangeState(const std::function<void(VolumeState&)>& change) {
    const UniqueFd salius = *OpenAt(AT_FDCWD, DiskPath(kSaliusDir), O_RDONLY | O_DIRECTORY);
    VolumeState state = StateFile::Open(LinuxBacking(), salius.get(), kStateFileName)->state();
    change(state);
    SALIUS_CHECK(unlinkat(salius.get(), kStateFileName, 0) == 0);
    SALIUS_CHECK_OK(StateFile::Create(LinuxBacking(), salius.get(), kStateFileName, state));
  }
};

// An fsync of the file through the mount has nothing to do.
TEST_F(OpenTest, ExistingFilesAreSynced) {
  MakeClosed(64 * kMiB, "mkfs.ext4 -q -b 4096 -m 0", "commit=1000");
  if (IsSkipped()) return;
  {
    const UniqueFd fd = *OpenAt(AT_FDCWD, DiskPath("f"), O_WRONLY | O_CREAT, 0600);
    ASSERT_TRUE(PwriteFull(fd.get(), AsBytes("bytes"), 0).ok());
  }
  Open();
  EXPECT_EQ(scratch->StatAfterPowerCut("f").st_size, 5);
}

TEST_F(OpenTest, ANoteOfAnotherVolumeIsRefused) {  // R2
  MakeClosed(64 * kMiB);
  if (IsSkipped()) return;
  ChangeState([](VolumeState& state) { state.volume.bytes[0] ^= 1; });
  const absl::Status refused = Refusal();
  EXPECT_TRUE(absl::IsDataLoss(refused)) << refused;
  EXPECT_NE(refused.message().find(kVolumeFileName), absl::string_view::npos) << refused;
}

// The last session's note may have become unreadable, or an older one was put back.
TEST_F(OpenTest, ACleanNoteThatIsOlderThanTheStableLogIsRefused) {  // R2
  MakeClosed(64 * kMiB);
  if (IsSkipped()) return;
  {
    const UniqueFd salius = *OpenAt(AT_FDCWD, DiskPath(kSaliusDir), O_RDONLY | O_DIRECTORY);
    StableLog log =
        *StableLog::Open(LinuxBacking(), salius.get(), kStableLogFileName, config.volume, nullptr);
    RecordHeader header;
    header.op = Op::kWrite;
    header.volume = config.volume;
    header.epoch = 5;
    header.seq = 1;
    header.file_id = 7;
    const std::string record = EncodeRecord(header, "acknowledged");
    const StableLog::Item item{AsBytes(record), {}};
    ASSERT_TRUE(log.Append({item}).ok());
  }
  ChangeState([](VolumeState& state) { state.epoch = 4; });
  const absl::Status refused = Refusal();
  EXPECT_TRUE(absl::IsDataLoss(refused)) << refused;
  EXPECT_NE(refused.message().find("session 5"), absl::string_view::npos) << refused;
  ChangeState([](VolumeState& state) { state.epoch = 5; });
  Open();
}

TEST_F(OpenTest, BallastThatARecoveryUsedUpIsMadeAgain) {
  MakeClosed(64 * kMiB);
  if (IsSkipped()) return;
  const std::string ballast = DiskPath(std::string(kSaliusDir) + "/" + kBallastFileName);
  ASSERT_EQ(unlink(ballast.c_str()), 0);
  Open();
  struct stat st {};
  ASSERT_EQ(stat(ballast.c_str(), &st), 0);
  EXPECT_GE(static_cast<uint64_t>(st.st_blocks) * 512, config.ballast_bytes);
}

// Recovery could not pin the records that such a session acknowledges.
TEST_F(OpenTest, AConfigThatNamesALargerStableLogIsRefused) {
  MakeClosed();
  if (IsSkipped()) return;
  auto dir = VolumeDir::Open(scratch->path(), /*lock=*/true);
  ASSERT_TRUE(dir.ok()) << dir.status();
  dir->config.stable_log_bytes += 4096;
  const absl::Status refused =
      Volume::Open(std::move(*dir), {.config = config}, StartPipeline).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument) << refused;
  EXPECT_NE(refused.message().find("stable_log = "), absl::string_view::npos);
}

}  // namespace
}  // namespace salius
