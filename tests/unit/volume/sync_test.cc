// Effects of a checkpoint's sync on the disk, on real file systems in loop devices (root).
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include <string>
#include <tuple>

#include "absl/strings/numbers.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "common/bytes.h"
#include "common/check.h"
#include "common/file.h"
#include "common/file_system.h"
#include "gtest/gtest.h"
#include "log/applied_mark.h"
#include "storage/backing.h"
#include "storage/volume_config.h"
#include "tests/unit/volume/scratch_fs.h"

namespace salius {
namespace {

// Returns the number of flushes that the device of `fd`'s file system got.
uint64_t Flushes(int fd) {
  struct stat st;
  SALIUS_CHECK(fstat(fd, &st) == 0);
  const absl::StatusOr<std::string> text = ReadWholeFile(
      absl::StrFormat("/sys/dev/block/%d:%d/stat", major(st.st_dev), minor(st.st_dev)));
  SALIUS_CHECK_OK(text);
  const std::vector<std::string> fields = absl::StrSplit(*text, ' ', absl::SkipWhitespace());
  uint64_t flushes = 0;
  SALIUS_CHECK(fields.size() > 15 && absl::SimpleAtoi(fields[15], &flushes));
  return flushes;
}

class SyncTest : public ::testing::TestWithParam<const char*> {};

// When another program has put the log on the disk, XFS's syncfs flushes nothing.
TEST_P(SyncTest, DriveCacheIsFlushedOnEachSync) {
  ScratchFs scratch(uint64_t{400} << 20, GetParam());
  const auto root = OpenAt(AT_FDCWD, scratch.path(), O_RDONLY | O_DIRECTORY);
  ASSERT_TRUE(root.ok()) << root.status();
  const auto make = [&](const char* name) {
    auto fd = OpenAt(root->get(), name, O_RDWR | O_CREAT, 0600);
    SALIUS_CHECK_OK(fd);
    SALIUS_CHECK_OK(PwriteFull(fd->get(), AsBytes(std::string(4096, 'o')), 0));
    return *std::move(fd);
  };
  const UniqueFd data = make("data"), neighbour = make("neighbour"), lock = make("lock");
  ASSERT_TRUE(SyncFs(root->get()).ok());
  ASSERT_TRUE(PwriteFull(data.get(), AsBytes("n"), 0).ok());
  ASSERT_TRUE(PwriteFull(neighbour.get(), AsBytes("n"), 0).ok());
  ASSERT_TRUE(FsyncFd(neighbour.get()).ok());
  const uint64_t before = Flushes(root->get());
  ASSERT_TRUE(SyncVolume(LinuxBacking(), root->get(), lock.get()).ok());
  EXPECT_GT(Flushes(root->get()), before);
}

TEST(FsKindTest, MountedWithoutBarriersIsSeen) {
  for (const bool off : {false, true}) {
    ScratchFs scratch(64 << 20, "mkfs.ext4 -q", off ? "nobarrier" : "");
    const auto root = OpenAt(AT_FDCWD, scratch.path(), O_RDONLY | O_DIRECTORY);
    ASSERT_TRUE(root.ok()) << root.status();
    EXPECT_EQ(fs::KindOf(root->get())->flushes_nothing, off);
  }
}

TEST(AppliedMarkTest, MarkIsReliedOnWhereAStoreNeedsNoJournal) {  // R17
  for (const auto& [mkfs, options, relied] : {std::tuple{"mkfs.ext4 -q", "", true},
                                              {"mkfs.ext4 -q", "data=journal", false},
                                              {"mkfs.xfs -q", "", false}}) {
    ScratchFs scratch(uint64_t{400} << 20, mkfs, options);
    const auto root = OpenAt(AT_FDCWD, scratch.path(), O_RDONLY | O_DIRECTORY);
    ASSERT_TRUE(root.ok()) << root.status();
    EXPECT_EQ(AppliedMark::IsReliedOn(LinuxBacking(), root->get()), relied)
        << mkfs << " " << options;
  }
}

INSTANTIATE_TEST_SUITE_P(FileSystems, SyncTest, ::testing::Values("mkfs.ext4 -q", "mkfs.xfs -q"));

}  // namespace
}  // namespace salius
