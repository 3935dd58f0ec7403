// Patches when the kernel refuses to apply some, and the descriptors that applied ones leave.
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>

#include <filesystem>
#include <string>
#include <system_error>

#include "log/record.h"
#include "tests/unit/volume/fake_stream.h"
#include "tests/unit/volume/volume_fixture.h"

namespace salius {
namespace {

class OverlayOnDiskTest : public VolumeFixture {
 protected:
  // Returns how many of this process's descriptors of that file are open for writing.
  static int OpenForWriting(const std::string& path) {
    int count = 0;
    for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
      std::error_code gone;
      if (std::filesystem::read_symlink(entry.path(), gone) != path) continue;
      const int flags = fcntl(std::stoi(entry.path().filename()), F_GETFL);
      if ((flags & O_PATH) == 0 && (flags & O_ACCMODE) != O_RDONLY) ++count;
    }
    return count;
  }
};

TEST_F(OverlayOnDiskTest, WritesThatWereAppliedTogetherHoldNothingAnyMore) {
  Make();
  Handle* file = Create("a");
  Node& node = file->node;
  Write(file, 0, std::string(16384, 'x'), Contract::kDurable);
  ASSERT_TRUE(volume->stream().Checkpoint().ok());
  const auto free_before = volume->StatFs();
  ASSERT_TRUE(free_before.ok());
  for (uint64_t at = 0; at < 16384; at += 4096) Write(file, at, std::string(4096, 'y'));
  EXPECT_LT(volume->StatFs()->f_bavail, free_before->f_bavail);
  EXPECT_GT(OpenForWriting(DiskPath("a")), 0);
  volume->open_files().Release(file);
  EXPECT_EQ(OpenForWriting(DiskPath("a")), 0) << "a closed file has a descriptor";
  EXPECT_EQ(Stat(node).st_size, 16384);
  EXPECT_EQ(OpenForWriting(DiskPath("a")), 0) << "an apply left its descriptor";
  EXPECT_EQ(volume->StatFs()->f_bavail, free_before->f_bavail);

  // Nor does the node itself, or the removed file would keep its inode.
  ASSERT_TRUE(volume->names().Unlink(root(), "a").ok());
  EXPECT_EQ(volume->StatFs()->f_ffree, free_before->f_ffree);
  volume->names().Forget(node, 1);
  EXPECT_EQ(volume->StatFs()->f_ffree, free_before->f_ffree + 1);
}

TEST_F(OverlayOnDiskTest, DataOfAFailedApplyIsStillRead) {
  Make();
  Handle* const file = Create("a");
  for (uint64_t at = 0; at < 12288; at += 4096) Write(file, at, std::string(4096, 'a' + at / 4096));
  signal(SIGXFSZ, SIG_IGN);
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const rlimit small{6000, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  EXPECT_EQ(Stat(file->node).st_size, 12288);
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  EXPECT_EQ(Errno(volume->stream().health()), EFBIG);
  EXPECT_EQ(Read(file, 0, 12288),
            std::string(4096, 'a') + std::string(4096, 'b') + std::string(4096, 'c'));
  volume->open_files().Release(file);
}

TEST_F(OverlayOnDiskTest, SizeIsRightAfterAnOperationThatCouldNotBeApplied) {
  Make();
  Handle* const file = Create("a");
  ASSERT_EQ(*volume->files().Write(*file, 0, "on", /*append=*/true, Contract::kPlain), 2u);
  ASSERT_EQ(*volume->files().Write(*file, 0, "e", /*append=*/true, Contract::kPlain), 1u);
  EXPECT_EQ(Stat(file->node).st_size, 3);
  // The limit on the size of files is set only while the record is applied.
  signal(SIGXFSZ, SIG_IGN);
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  FakeStream& fake = FakeOf(volume->stream());
  fake.before_apply = [&](const RecordRef& record) {
    if (record->header().op != Op::kFallocate) return;
    const rlimit small{4096, before.rlim_max};
    SALIUS_CHECK(setrlimit(RLIMIT_FSIZE, &small) == 0);
  };
  EXPECT_EQ(Errno(volume->files().Fallocate(*file, 0, 0, 1 << 20)), EFBIG);
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  fake.before_apply = nullptr;
  EXPECT_EQ(fake.Issued(Op::kCancel).size(), 1u);
  ASSERT_EQ(*volume->files().Write(*file, 0, "two", /*append=*/true, Contract::kPlain), 3u);
  EXPECT_EQ(Read(file, 0, 1 << 20), "onetwo");
  volume->open_files().Release(file);
}

}  // namespace
}  // namespace salius
