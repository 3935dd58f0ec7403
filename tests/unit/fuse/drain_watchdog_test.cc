#include "client/mount/drain_watchdog.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <memory>

#include "common/bytes.h"
#include "common/check.h"
#include "common/event.h"
#include "common/file.h"
#include "tests/unit/volume/scratch_fs.h"

namespace salius {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kLong{3'600'000};

class DrainWatchdogTest : public ::testing::Test {
 protected:
  void Start(milliseconds idle, milliseconds most, std::function<uint64_t()> progress) {
    watchdog_ = std::make_unique<DrainWatchdog>(
        DrainWatchdog::Options{idle, most, std::move(progress), [this](const std::string& why) {
                                 why_ = why;
                                 gave_up_.Set();
                               }});
  }

  std::string why_;  // written before gave_up_ is set
  Event gave_up_;
  std::unique_ptr<DrainWatchdog> watchdog_;
};

TEST_F(DrainWatchdogTest, GivesUpWhenTheDiskGivesNothing) {
  Start(milliseconds{60}, kLong, [] { return uint64_t{7}; });
  ASSERT_TRUE(gave_up_.WaitFor(kLong));
  EXPECT_NE(why_.find("nothing written"), std::string::npos) << why_;
}

// A watchdog that gave up for lack of progress would do so before the end, and say so.
TEST_F(DrainWatchdogTest, WaitsWhileTheDiskWorksButNotForEver) {
  std::atomic<uint64_t> written = 0;
  Start(milliseconds{600}, milliseconds{1500}, [&] { return ++written; });
  ASSERT_TRUE(gave_up_.WaitFor(kLong));
  EXPECT_EQ(why_.find("nothing written"), std::string::npos) << why_;
  EXPECT_GT(written, 2u);
}

TEST_F(DrainWatchdogTest, DrainedVolumeIsNotGivenUp) {
  Start(kLong, kLong, [] { return uint64_t{0}; });
  watchdog_.reset();
  EXPECT_FALSE(gave_up_.WaitFor(milliseconds{0}));
}

TEST(WrittenSoFarTest, ChangesWithASyncAndIsConstantWithoutADevice) {
  ScratchFs scratch(uint64_t{64} << 20, "mkfs.ext4 -q");
  const UniqueFd fd = *OpenAt(AT_FDCWD, scratch.path() + "/f", O_RDWR | O_CREAT, 0600);
  struct stat st {};
  ASSERT_EQ(fstat(fd.get(), &st), 0);
  const uint64_t before = WrittenSoFar(st.st_dev);
  ASSERT_TRUE(PwriteFull(fd.get(), AsBytes("bytes"), 0).ok());
  ASSERT_EQ(fsync(fd.get()), 0);
  EXPECT_GT(WrittenSoFar(st.st_dev), before);
  ASSERT_EQ(stat("/proc", &st), 0);
  EXPECT_EQ(WrittenSoFar(st.st_dev), 0u);
}

}  // namespace
}  // namespace salius
