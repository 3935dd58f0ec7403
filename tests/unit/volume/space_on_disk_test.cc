// Space and quota on certain file systems.
#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include <string>

#include "storage/backing.h"
#include "storage/fs_calls.h"
#include "storage/space.h"
#include "tests/unit/volume/fake_stream.h"
#include "tests/unit/volume/space_fixture.h"

namespace salius {
namespace {

using SpaceOnDiskTest = SpaceFixture;

// btrfs counts dirty pages as free space, and writes overwritten blocks elsewhere.
TEST_F(SpaceOnDiskTest, FullBtrfsRefusesBeforeTheAck) {
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

// An ext4 has no room for a name where the index of the directory is full, however much is free.
TEST_F(SpaceOnDiskTest, NameInADirectoryWhoseIndexIsFullIsRefusedBeforeTheAck) {
  early = true;
  fake_stream = true;
  Make(256 * kMiB, "mkfs.ext4 -q -b 1024 -N 8192");
  MakeBackingFile("f");
  MakeBackingDir("d");
  MakeBackingDir("small");
  const std::string file = DiskPath("f");
  const auto name = [](int i) {
    std::string number = std::to_string(i);
    return number + std::string(250 - number.size(), 'x');
  };
  int made = 0;
  // Once the first range of hashes is full, others follow.
  for (int refused = 0; refused < 500; ++made) {
    if (link(file.c_str(), DiskPath("d/" + name(made)).c_str()) == 0) continue;
    ASSERT_EQ(errno, ENOSPC);
    ++refused;
  }
  Node& d = Find("d");
  FakeStream& fake = FakeOf(volume->stream());
  const auto waited = [&] { return fake.applied == fake.Issued().back()->seq(); };
  EXPECT_EQ(Errno(volume->names().MakeDir(Find("small"), "early", 0755, caller)), 0);
  EXPECT_FALSE(waited());
  int error = 0;
  for (int i = 0; i < 5000 && error == 0; ++i) {
    error = Errno(volume->names().MakeNode(d, name(made + i), 0644, 0, caller));
  }
  ASSERT_EQ(error, ENOSPC);
  EXPECT_TRUE(volume->stream().health().ok());
  // To remove a name takes no room.
  EXPECT_EQ(Errno(volume->names().Unlink(d, name(0))), 0);
  EXPECT_FALSE(waited());
  Close();
}

// XFS zeroes the rest of the block where a file ends. When another file shares that, it needs a new
// block.
TEST_F(SpaceOnDiskTest, EndWithinASharedBlockIsRefusedOnAFullDisk) {
  constexpr char kMkfs[] = "mkfs.xfs -q -f -m reflink=1";
  if (!ScratchFs::Supported(kMkfs, "rw")) GTEST_SKIP() << "needs XFS";
  Make(320 * kMiB, kMkfs);
  constexpr uint64_t kSize = 8192 + 100;
  Handle* const file = Create("f");
  Write(file, 0, std::string(kSize, 'f'), Contract::kDurable);
  ASSERT_TRUE(volume->files().Fallocate(*file, FALLOC_FL_KEEP_SIZE, 40960, 4096).ok());
  ASSERT_TRUE(volume->stream().Checkpoint().ok());
  MustRun("cp --reflink=always " + DiskPath("f") + " " + scratch->path() + "/copy");
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

TEST_F(SpaceOnDiskTest, OwnerOverQuotaIsRefusedAndRootIsNot) {
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
