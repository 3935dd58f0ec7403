// ClaimOnThisHost: two directories with one UUID. Needs root (trusted xattrs).
#include "storage/host_claim.h"

#include <fcntl.h>
#include <unistd.h>

#include <string>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/bytes.h"
#include "common/file.h"
#include "gtest/gtest.h"
#include "storage/fs_calls.h"
#include "tests/unit/log/test_dir.h"

namespace salius {
namespace {

class HostClaimTest : public testing::Test {
 protected:
  HostClaimTest() {
    config_ = DefaultVolumeConfig();
    config_.log_max_bytes = 1 << 20;
    config_.stable_log_bytes = 3 << 20;
    config_.ballast_bytes = 0;
    SALIUS_CHECK_OK(CreateVolume(one_.path(), config_));
    SALIUS_CHECK_OK(CreateVolume(copy_.path(), config_));
  }
  VolumeDir Locked(const TestDir& dir) {
    absl::StatusOr<VolumeDir> opened = VolumeDir::Open(dir.path(), /*lock=*/true);
    SALIUS_CHECK_OK(opened);
    return *std::move(opened);
  }
  std::string LockName() const { return config_.volume.ToString() + ".lock"; }

  TestDir one_, copy_, run_;
  VolumeConfig config_;
};

TEST_F(HostClaimTest, AnotherDirectoryWithTheSameUuidIsRefusedWhileTheFirstIsHeld) {  // R4
  {
    VolumeDir first = Locked(one_);
    ASSERT_TRUE(ClaimOnThisHost(first, run_.path()).ok());
    const VolumeDir moved = std::move(first);
    VolumeDir second = Locked(copy_);
    const absl::Status refused = ClaimOnThisHost(second, run_.path());
    EXPECT_TRUE(absl::IsUnavailable(refused)) << refused;
    const std::string message(refused.message());
    EXPECT_NE(message.find(absl::StrCat("process ", getpid())), std::string::npos) << message;
    EXPECT_NE(message.find(one_.path()), std::string::npos) << message;
    EXPECT_NE(message.find("salius init --copy"), std::string::npos) << message;
  }
  VolumeDir second = Locked(copy_);
  EXPECT_TRUE(ClaimOnThisHost(second, run_.path()).ok());
}

TEST_F(HostClaimTest, ALastHolderOfTheSameDirectoryIsWaitedFor) {
  VolumeDir dir = Locked(one_);
  const auto root = fs::StatAt(dir.root_fd, "");
  ASSERT_TRUE(root.ok());
  UniqueFd held = run_.Open(LockName(), O_RDWR | O_CREAT);
  ASSERT_TRUE(LockExclusive(held.get()).ok());
  const std::string note = absl::StrFormat("1 %d %d %s\n", root->st_dev, root->st_ino, one_.path());
  ASSERT_TRUE(PwriteFull(held.get(), AsBytes(note), 0).ok());
  std::thread end([&held] { held.Reset(); });
  EXPECT_TRUE(ClaimOnThisHost(dir, run_.path()).ok());
  end.join();
}

TEST_F(HostClaimTest, AHolderThatSaysNothingIsRefusedAfterAWhile) {
  VolumeDir dir = Locked(one_);
  const UniqueFd held = run_.Open(LockName(), O_RDWR | O_CREAT);
  ASSERT_TRUE(LockExclusive(held.get()).ok());
  for (const char* note : {"", "nonsense"}) {
    ASSERT_TRUE(fs::Truncate(held.get(), 0).ok());
    ASSERT_TRUE(PwriteFull(held.get(), AsBytes(note), 0).ok());
    const absl::Status refused = ClaimOnThisHost(dir, run_.path());
    EXPECT_TRUE(absl::IsUnavailable(refused)) << refused;
  }
}

TEST_F(HostClaimTest, ClaimIsFreeWhereNoNoteCanBeWritten) {
  ASSERT_TRUE(PwriteFull(run_.Open("file", O_RDWR | O_CREAT).get(), AsBytes("x"), 0).ok());
  VolumeDir dir = Locked(one_);
  EXPECT_TRUE(ClaimOnThisHost(dir, run_.path() + "/file/below").ok());
  EXPECT_EQ(dir.claim_fd, -1);
}

}  // namespace
}  // namespace salius
