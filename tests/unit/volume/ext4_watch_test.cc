// Ext4Watch beside a real ext4. Data that is really lost is in tests/fault/test_thrown_away.py.
// Needs root.
#include "common/ext4_watch.h"

#include <fcntl.h>
#include <sched.h>
#include <unistd.h>

#include <iostream>
#include <string>

#include "absl/strings/match.h"
#include "common/check.h"
#include "common/file.h"
#include "gtest/gtest.h"
#include "tests/unit/volume/scratch_fs.h"

namespace salius {
namespace {

class Ext4WatchTest : public ::testing::Test {
 protected:
  Ext4WatchTest() : fs_(64 << 20, "mkfs.ext4 -q", "errors=continue") {}

  UniqueFd Root() { return *OpenAt(AT_FDCWD, fs_.path(), O_RDONLY | O_DIRECTORY); }

  // Remounts: like a resize that writes a harmless message into the kernel's log.
  void CauseHarmlessMessage() { MustRun("mount -o remount,rw " + fs_.path()); }

  ScratchFs fs_;
};

TEST_F(Ext4WatchTest, QuietFileSystemIsFine) {
  Ext4Watch watch(Root().get());
  EXPECT_TRUE(watch.Check().ok());
  MustRun("echo data > " + fs_.path() + "/file && sync -f " + fs_.path());
  EXPECT_TRUE(watch.Check().ok());
}

TEST_F(Ext4WatchTest, MessagesAreNoFailure) {
  Ext4Watch watch(Root().get());
  const auto before = Ext4Complaints(Root().get());
  for (int i = 0; i < 3; ++i) {
    CauseHarmlessMessage();
    EXPECT_TRUE(watch.Check().ok()) << watch.Check();
  }
  ASSERT_TRUE(before.ok()) << before.status();
  EXPECT_EQ(Ext4Complaints(Root().get()).value(), *before + 3)
      << "there was something to tell apart";
}

TEST_F(Ext4WatchTest, MessagesAreNoFailureWhenTheLogIsReadInBetween) {
  Ext4Watch watch(Root().get());
  for (int i = 0; i < 3; ++i) {
    CauseHarmlessMessage();
    watch.KeepUp();
  }
  EXPECT_TRUE(watch.Check().ok()) << watch.Check();
  fs_.Shutdown();
  watch.KeepUp();
  EXPECT_FALSE(watch.Check().ok());
}

TEST_F(Ext4WatchTest, EarlierMessagesDoNotCount) {
  FindAnErrorIn(fs_.path());
  CauseHarmlessMessage();
  Ext4Watch watch(Root().get());
  EXPECT_TRUE(watch.Check().ok()) << watch.Check();
  FindAnErrorIn(fs_.path());
  EXPECT_FALSE(watch.Check().ok());
}

TEST_F(Ext4WatchTest, ErrorIsReportedFromThenOn) {
  Ext4Watch watch(Root().get());
  FindAnErrorIn(fs_.path());
  const absl::Status first = watch.Check();
  EXPECT_EQ(first.code(), absl::StatusCode::kInternal) << first;
  EXPECT_TRUE(absl::StrContains(first.message(), "1 errors counted")) << first;
  EXPECT_TRUE(absl::StrContains(first.message(), "e2fsck")) << first;
  EXPECT_EQ(watch.Check(), first);
}

// Like "Delayed block allocation failed" it is a message and no error.
TEST_F(Ext4WatchTest, CriticalMessageIsReported) {
  Ext4Watch watch(Root().get());
  CauseHarmlessMessage();
  fs_.Shutdown();
  const absl::Status status = watch.Check();
  EXPECT_TRUE(absl::StrContains(status.message(), "shut down requested")) << status;
}

TEST_F(Ext4WatchTest, OtherFileSystemsMessagesDoNotCount) {
  ScratchFs other(64 << 20, "mkfs.ext4 -q");
  Ext4Watch watch(Root().get());
  other.Shutdown();
  EXPECT_TRUE(watch.Check().ok()) << watch.Check();
}

TEST_F(Ext4WatchTest, UnreadableMessageIsReported) {
  const auto say = [this] {
    SALIUS_CHECK(unshare(CLONE_NEWNS) == 0);
    MustRun("mount --make-rprivate / && mount --bind /dev/null /dev/kmsg");
    Ext4Watch watch(Root().get());
    SALIUS_CHECK_OK(watch.Check());
    CauseHarmlessMessage();
    std::cerr << watch.Check();
    _exit(0);
  };
  EXPECT_EXIT(say(), ::testing::ExitedWithCode(0), "cannot be read");
}

TEST(Ext4WatchOfOthersTest, OtherFileSystemsAreNotWatched) {
  const auto proc = OpenAt(AT_FDCWD, "/proc", O_RDONLY);
  ASSERT_TRUE(proc.ok());
  EXPECT_TRUE(Ext4Watch(proc->get()).Check().ok());
  EXPECT_EQ(Ext4Complaints(proc->get()).status().code(), absl::StatusCode::kUnimplemented);
}

}  // namespace
}  // namespace salius
