// Features of the backing in memory alone: planned errors, power cuts, limits, quota figures.
#include "tests/unit/storage/memory_backing.h"

#include <errno.h>
#include <fcntl.h>

#include <string>

#include "common/check.h"
#include "gtest/gtest.h"

namespace salius {
namespace {

using Call = MemoryBacking::Call;

int Errno(const absl::Status& status) { return status.ok() ? 0 : StatusErrno(status); }

std::string Content(MemoryBacking& memory, const std::string& name) {
  auto fd = memory.OpenAt(memory.root(), name, O_RDONLY);
  if (!fd.ok()) return "(none)";
  std::string content(100, '\0');
  content.resize(*memory.Pread(fd->get(), content.data(), content.size(), 0));
  return content;
}

TEST(MemoryBackingTest, PlannedErrorComesOnce) {
  MemoryBacking memory;
  const BackingFd f = memory.NewFile("f");
  memory.FailNth(Call::kWrite, 2, EIO);
  EXPECT_EQ(Errno(memory.Pwrite(f.get(), "a", 0)), 0);
  EXPECT_EQ(Errno(memory.Pwrite(f.get(), "b", 0)), EIO);
  EXPECT_EQ(Content(memory, "f"), "a");
  EXPECT_EQ(Errno(memory.Pwrite(f.get(), "c", 0)), 0);
  EXPECT_EQ(memory.calls(Call::kWrite), 3u);
}

TEST(MemoryBackingTest, PowerCutKeepsWhatWasSynced) {
  MemoryBacking memory;
  BackingFd f = memory.NewFile("f");
  SALIUS_CHECK_OK(memory.Pwrite(f.get(), "synced", 0));
  SALIUS_CHECK_OK(memory.SyncFs(memory.root()));
  SALIUS_CHECK_OK(memory.Pwrite(f.get(), "later.", 0));
  memory.NewFile("new").Reset();
  memory.PowerCut();
  EXPECT_EQ(Errno(memory.Stat(f.get()).status()), EBADF);
  EXPECT_EQ(Content(memory, "f"), "synced");
  EXPECT_EQ(Content(memory, "new"), "(none)");
}

TEST(MemoryBackingTest, SyncedFileKeepsItsDataButNoNewName) {
  MemoryBacking memory;
  BackingFd f = memory.NewFile("f");
  SALIUS_CHECK_OK(memory.SyncFs(memory.root()));
  SALIUS_CHECK_OK(memory.LinkFd(f.get(), memory.root(), "g"));
  SALIUS_CHECK_OK(memory.Pwrite(f.get(), "data", 0));
  SALIUS_CHECK_OK(memory.Fsync(f.get()));
  BackingFd fresh = memory.NewFile("fresh");
  SALIUS_CHECK_OK(memory.Fsync(fresh.get()));
  memory.PowerCut();
  EXPECT_EQ(Content(memory, "f"), "data");
  EXPECT_EQ(Content(memory, "g"), "(none)");
  EXPECT_EQ(memory.StatAt(memory.root(), "f")->st_nlink, 1u);
  EXPECT_EQ(Content(memory, "fresh"), "(none)");
}

TEST(MemoryBackingTest, FailedSyncKeepsNothing) {
  MemoryBacking memory;
  BackingFd f = memory.NewFile("f");
  SALIUS_CHECK_OK(memory.SyncFs(memory.root()));
  SALIUS_CHECK_OK(memory.Pwrite(f.get(), "data", 0));
  memory.FailNth(Call::kSync, 1, EIO);
  EXPECT_EQ(Errno(memory.Fsync(f.get())), EIO);
  memory.PowerCut();
  EXPECT_EQ(Content(memory, "f"), "");
}

TEST(MemoryBackingTest, SpaceOfARemovedFileComesBackAtItsLastClose) {
  MemoryBacking memory;
  const uint64_t before = memory.FreeSpace(memory.root())->bytes_avail;
  BackingFd f = memory.NewFile("f");
  SALIUS_CHECK_OK(memory.Pwrite(f.get(), std::string(8192, 'x'), 0));
  SALIUS_CHECK_OK(memory.Unlink(memory.root(), "f", 0));
  EXPECT_EQ(memory.FreeSpace(memory.root())->bytes_avail, before - 8192);
  EXPECT_EQ(memory.open(), 1u);
  f.Reset();
  EXPECT_EQ(memory.FreeSpace(memory.root())->bytes_avail, before);
  EXPECT_EQ(memory.open(), 0u);
}

TEST(MemoryBackingTest, FullDiskTakesAPartOfAWrite) {
  MemoryBacking memory({.bytes = 3 * 4096});  // one block is the root's
  const BackingFd f = memory.NewFile("f");
  EXPECT_EQ(Errno(memory.Pwrite(f.get(), std::string(4 * 4096, 'x'), 0)), ENOSPC);
  EXPECT_EQ(memory.Stat(f.get())->st_size, 2 * 4096);
  EXPECT_EQ(Errno(memory.Pwrite(f.get(), "over", 0)), 0);
  EXPECT_EQ(Errno(memory.MkdirAt(memory.root(), "d", 0755)), ENOSPC);
}

TEST(MemoryBackingTest, LimitsOfInodesLinksAndXattrs) {
  MemoryBacking memory({.inodes = 2, .max_links = 2, .max_xattr_bytes = 20});
  const BackingFd f = memory.NewFile("f");
  EXPECT_EQ(Errno(memory.MkdirAt(memory.root(), "d", 0755)), ENOSPC);
  EXPECT_EQ(Errno(memory.LinkFd(f.get(), memory.root(), "g")), 0);
  EXPECT_EQ(Errno(memory.LinkFd(f.get(), memory.root(), "h")), EMLINK);
  EXPECT_EQ(Errno(memory.SetXattr(f.get(), "user.a", "1234")), 0);
  EXPECT_EQ(Errno(memory.SetXattr(f.get(), "user.b", "12345")), ENOSPC);
}

TEST(MemoryBackingTest, QuotaFiguresFollowTheOwner) {
  MemoryBacking memory;
  const BackingFd f = memory.NewFile("f");
  SALIUS_CHECK_OK(memory.Pwrite(f.get(), "x", 0));
  EXPECT_EQ(memory.QuotaOf(memory.root(), fs::QuotaType::kUser, 7), std::nullopt);
  memory.SetQuota(fs::QuotaType::kUser, 7, {.bytes_hard = 1 << 20});
  EXPECT_EQ(memory.QuotaOf(memory.root(), fs::QuotaType::kUser, 7)->bytes_used, 0u);
  SALIUS_CHECK_OK(memory.Chown(f.get(), 7, 7));
  const auto use = memory.QuotaOf(memory.root(), fs::QuotaType::kUser, 7);
  EXPECT_EQ(use->bytes_used, 4096u);
  EXPECT_EQ(use->inodes_used, 1u);
  EXPECT_EQ(use->bytes_hard, uint64_t{1} << 20);
  EXPECT_EQ(memory.QuotaOf(memory.root(), fs::QuotaType::kGroup, 7), std::nullopt);
}

TEST(MemoryBackingTest, NumbersAreNoneOfTheKernel) {
  MemoryBacking memory;
  EXPECT_EQ(Errno(fs::Stat(memory.root()).status()), EBADF);
  EXPECT_EQ(Errno(memory.Stat(0).status()), EBADF);
}

}  // namespace
}  // namespace salius
