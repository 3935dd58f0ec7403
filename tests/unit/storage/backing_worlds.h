// The backings on which one test runs: in memory, and ext4 and xfs in loop devices (root).
#pragma once

#include <fcntl.h>
#include <sys/stat.h>

#include <memory>
#include <string>

#include "common/check.h"
#include "common/file.h"
#include "gtest/gtest.h"
#include "storage/backing.h"
#include "tests/unit/storage/memory_backing.h"
#include "tests/unit/volume/scratch_fs.h"

namespace salius {

enum class World { kMemory, kExt4, kXfs };

// A test with an empty directory on one backing.
class BackingTest : public testing::TestWithParam<World> {
 protected:
  void SetUp() override;

  Backing& backing() { return *backing_; }
  int root() const { return root_.get(); }
  bool in_memory() const { return memory_ != nullptr; }

  // Makes a regular file, a directory.
  void MakeFile(const std::string& name) {
    SALIUS_CHECK_OK(backing().MakeNode(root(), name, S_IFREG | 0644, 0));
  }
  void MakeDir(const std::string& name) { SALIUS_CHECK_OK(backing().MkdirAt(root(), name, 0755)); }
  // Opens a name; without flags O_PATH | O_NOFOLLOW.
  BackingFd Open(const std::string& name, int flags = O_PATH | O_NOFOLLOW);
  // Makes a file that is open for reading and writing.
  BackingFd OpenNew(const std::string& name);
  struct stat Stat(const std::string& name);
  std::string Content(const std::string& name);
  // Takes the pages of a file out of memory, those that are on the disk.
  void DropPages(int fd);
  // Sets the marks of chattr(1).
  void SetMarks(const std::string& name, const fs::ChangeMarks& marks);
  // Makes a directory synchronous, or no longer (`chattr +D`).
  void SetDirsync(const std::string& name, bool dirsync);

 private:
  std::unique_ptr<ScratchFs> scratch_;
  std::unique_ptr<MemoryBacking> memory_;
  Backing* backing_ = nullptr;
  BackingFd root_;
};

// Returns the errno of a call; 0 for success.
inline int Errno(const absl::Status& status) { return status.ok() ? 0 : StatusErrno(status); }
template <typename T>
int Errno(const absl::StatusOr<T>& result) {
  return Errno(result.status());
}

inline std::string NameOf(const testing::TestParamInfo<World>& info) {
  return info.param == World::kMemory ? "Memory" : info.param == World::kExt4 ? "Ext4" : "Xfs";
}
#define SALIUS_IN_EVERY_WORLD(fixture)      \
  INSTANTIATE_TEST_SUITE_P(Worlds, fixture, \
                           testing::Values(World::kMemory, World::kExt4, World::kXfs), NameOf)

}  // namespace salius
