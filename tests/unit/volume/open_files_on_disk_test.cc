// Open files and directories on certain file systems.
#include <fcntl.h>
#include <sys/stat.h>

#include <string>

#include "tests/unit/volume/volume_fixture.h"

namespace salius {
namespace {

using OpenFilesOnDiskTest = VolumeFixture;

// The kernel leaves times to the process that serves the file.
TEST_F(OpenFilesOnDiskTest, ReadingLeavesTheAccessTimeWhereThatIsAskedFor) {
  Make(64 * kMiB);
  if (IsSkipped()) return;
  Handle* const file = Create("f");
  Write(file, 0, "data");
  volume->open_files().Release(file);
  const auto stays = [&](int flags) {
    const timespec times[2] = {{1000, 0}, {0, UTIME_OMIT}};
    SALIUS_CHECK(utimensat(AT_FDCWD, DiskPath("f").c_str(), times, 0) == 0);
    Handle* const reader = OpenFile(Find("f"), O_RDONLY | flags);
    EXPECT_EQ(Read(reader, 0, 10), "data");
    volume->open_files().Release(reader);
    struct stat st {};
    SALIUS_CHECK(stat(DiskPath("f").c_str(), &st) == 0);
    return st.st_atim.tv_sec == 1000;
  };
  EXPECT_FALSE(stays(0));
  EXPECT_TRUE(stays(O_NOATIME));
  Close();
  noatime = true;
  Open();
  EXPECT_TRUE(stays(0));
}

// btrfs lists up to the last name that existed at the last seek.
TEST_F(OpenFilesOnDiskTest, ReadDirEndsWhileItsEntriesAreRenamed) {
  constexpr char kMkfs[] = "mkfs.btrfs -q -f";
  if (!ScratchFs::Supported(kMkfs, "rw")) GTEST_SKIP() << "needs btrfs";
  Make(320 * kMiB, kMkfs);
  Node& dir = Dir(root(), "d");
  const std::string filler(200, 'x');  // so that they are not read at once
  for (int i = 0; i < 300; ++i)
    volume->open_files().Release(Create(dir, filler + std::to_string(i)));
  auto handle = volume->open_files().OpenDir(dir);
  ASSERT_TRUE(handle.ok());
  uint64_t offset = 0;
  int listed = 0;
  for (bool more = true; more && listed < 2000;) {
    std::string name;
    more = false;
    ASSERT_TRUE(volume->names()
                    .ReadDir(**handle, offset,
                             [&](const DirEntry& entry) {
                               if (more) return false;
                               name = entry.name;
                               offset = entry.next_offset;
                               return more = true;
                             })
                    .ok());
    if (name.empty() || name == "." || name == "..") continue;
    ++listed;
    ASSERT_EQ(Errno(volume->names().Rename(dir, name, dir, name + "'", 0)), 0);
  }
  EXPECT_EQ(listed, 300);
  volume->open_files().Release(*handle);
}

}  // namespace
}  // namespace salius
