#include "tests/unit/storage/backing_worlds.h"

#include <linux/fs.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <utility>

namespace salius {

void BackingTest::SetUp() {
  umask(0);
  if (GetParam() == World::kMemory) {
    memory_ = std::make_unique<MemoryBacking>();
    backing_ = memory_.get();
    root_ = std::move(*memory_->Reopen(memory_->root(), O_RDONLY | O_DIRECTORY));
    return;
  }
  if (geteuid() != 0) GTEST_SKIP() << "loop devices need root";
  const bool xfs = GetParam() == World::kXfs;
  scratch_ = std::make_unique<ScratchFs>(uint64_t{320} << 20,
                                         xfs ? "mkfs.xfs -q" : "mkfs.ext4 -q -b 4096 -m 0");
  backing_ = &LinuxBacking();
  SALIUS_CHECK(mkdir((scratch_->path() + "/root").c_str(), 0755) == 0);
  auto root = OpenAt(AT_FDCWD, scratch_->path() + "/root", O_RDONLY | O_DIRECTORY);
  SALIUS_CHECK_OK(root);
  root_ = std::move(*root);
}

BackingFd BackingTest::Open(const std::string& name, int flags) {
  auto fd = backing().OpenAt(root(), name, flags);
  SALIUS_CHECK_OK(fd) << name;
  return std::move(*fd);
}

BackingFd BackingTest::OpenNew(const std::string& name) {
  MakeFile(name);
  return Open(name, O_RDWR);
}

struct stat BackingTest::Stat(const std::string& name) {
  auto st = backing().StatAt(root(), name);
  SALIUS_CHECK_OK(st) << name;
  return *st;
}

std::string BackingTest::Content(const std::string& name) {
  const BackingFd fd = Open(name, O_RDONLY);
  std::string content(static_cast<size_t>(Stat(name).st_size), '?');
  auto size = backing().Pread(fd.get(), content.data(), content.size(), 0);
  SALIUS_CHECK_OK(size);
  content.resize(*size);
  return content;
}

void BackingTest::DropPages(int fd) {
  if (in_memory()) return memory_->DropPages(fd);
  SALIUS_CHECK(posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED) == 0);
}

void BackingTest::SetMarks(const std::string& name, const fs::ChangeMarks& marks) {
  if (in_memory()) return memory_->SetMarks(Open(name).get(), marks);
  const BackingFd fd = Open(name, O_RDONLY);
  int flags = 0;
  SALIUS_CHECK(ioctl(fd.get(), FS_IOC_GETFLAGS, &flags) == 0);
  flags &= ~(FS_IMMUTABLE_FL | FS_APPEND_FL);
  flags |= (marks.immutable ? FS_IMMUTABLE_FL : 0) | (marks.append_only ? FS_APPEND_FL : 0);
  SALIUS_CHECK(ioctl(fd.get(), FS_IOC_SETFLAGS, &flags) == 0);
}

void BackingTest::SetDirsync(const std::string& name, bool dirsync) {
  const BackingFd fd = Open(name, O_RDONLY | O_DIRECTORY);
  if (in_memory()) return memory_->SetDirsync(fd.get(), dirsync);
  constexpr int kEither = FS_DIRSYNC_FL | FS_SYNC_FL;
  int flags = 0;
  SALIUS_CHECK(ioctl(fd.get(), FS_IOC_GETFLAGS, &flags) == 0);
  // xfs has only the mark of all changes.
  for (const int mark : {FS_DIRSYNC_FL, FS_SYNC_FL}) {
    int wanted = (flags & ~kEither) | (dirsync ? mark : 0);
    if (ioctl(fd.get(), FS_IOC_SETFLAGS, &wanted) == 0) return;
  }
  SALIUS_CHECK(false) << "a directory cannot be made synchronous";
}

}  // namespace salius
