// A volume on a file system of its own, and short forms of the calls that tests make.
//
// The file system is that of the program's flag (main.cc): in memory with --memory, which needs no
// root; xfs with --xfs; else ext4, both in a loop device. A test that needs a certain file system
// names its mkfs.
#pragma once

#include <fcntl.h>
#include <sys/stat.h>

#include <memory>
#include <string>

#include "client/volume/contract.h"
#include "client/volume/node.h"
#include "client/volume/volume.h"
#include "common/check.h"
#include "common/file.h"
#include "common/ids.h"
#include "gtest/gtest.h"
#include "storage/backing.h"
#include "tests/unit/storage/memory_backing.h"
#include "tests/unit/volume/scratch_fs.h"

namespace salius {

// The file system and the stream of tests that do not choose.
struct TestWorld {
  enum class Disk { kMemory, kExt4, kXfs };
  Disk disk = Disk::kExt4;
  bool early = false;        // name operations return before they are durable
  bool fake_stream = false;  // else the real pipeline in mode local; always so in memory
};
// Returns the one of this program (main.cc).
TestWorld& DefaultWorld();

class VolumeFixture : public ::testing::Test {
 protected:
  static constexpr uint64_t kMiB = uint64_t{1} << 20;

  // Makes the file system, of about that size, and the volume, and opens it.
  void Make(uint64_t bytes = 256 * kMiB);
  void Make(uint64_t bytes, const std::string& mkfs, const std::string& mount_options = "");
  // Makes only the file system and the volume.
  void MakeClosed(uint64_t bytes = 256 * kMiB);
  void MakeClosed(uint64_t bytes, const std::string& mkfs, const std::string& mount_options = "");
  void Open();
  void Close();  // cleanly
  void TearDown() override;

  Node& root() { return volume->root(); }
  Node& Find(const std::string& name) { return Find(root(), name); }
  Node& Find(Node& dir, const std::string& name);
  Node& Dir(Node& parent, const std::string& name);
  Handle* Create(const std::string& name, int flags = O_RDWR) {
    return Create(root(), name, flags);
  }
  Handle* Create(Node& dir, const std::string& name, int flags = O_RDWR);
  Handle* OpenFile(Node& node, int flags = O_RDWR);
  void Write(Handle* handle, uint64_t offset, const std::string& data,
             Contract contract = Contract::kPlain);
  // Syncs the file or directory and waits.
  absl::Status Fsync(Handle* handle);
  std::string Read(Handle* handle, uint64_t offset, size_t size);
  struct stat Stat(Node& node);

  // ---- The backing file system, behind the volume's back. Paths are relative to its directory.
  Backing& backing() { return memory != nullptr ? *memory : LinuxBacking(); }
  int backing_root() const { return root_.get(); }
  // With `early` these wait until everything is applied.
  BackingFd OpenBacking(const std::string& path, int flags = O_PATH | O_NOFOLLOW);
  bool IsThere(const std::string& path);
  std::string BackingContent(const std::string& path);
  // Returns and sets the id in the xattr.
  FileId IdOf(const std::string& path);
  void SetId(const std::string& path, FileId id);
  // Make an object whose parent is there.
  void MakeBackingFile(const std::string& path, const std::string& content = "");
  void MakeBackingDir(const std::string& path);
  // Sets the marks of chattr(1).
  void SetMarks(const std::string& path, const fs::ChangeMarks& marks);
  // Makes a directory synchronous, or no longer: `chattr +D`, on xfs `chattr +S`. Waits for nothing.
  void SetDirsync(const std::string& path, bool on);
  // Returns the path for other programs; not in memory.
  std::string DiskPath(const std::string& path) const { return scratch->path() + "/" + path; }

  std::unique_ptr<MemoryBacking> memory;  // null on a disk
  std::unique_ptr<ScratchFs> scratch;     // null in memory
  VolumeConfig config;
  bool noatime = false;                           // for Open()
  bool fake_stream = DefaultWorld().fake_stream;  // for Open() on a disk
  bool early = DefaultWorld().early;              // for Open(): VolumeOptions::names_early
  bool dirsync = false;                           // for Open()
  MountContract contract;                         // for Open()
  PendingNames::Bounds pending_names;             // for Open()
  FetchMode fetch = kDefaultFetch;                // for Open()
  uint64_t patch_memory = kDefaultPatchMemoryBytes;  // for Open()
  LaneWorkers* workers = nullptr;                     // for Open(): VolumeOptions::workers
  FileId id_ceiling = kRootFileId + 1;            // for Open() in memory
  uint64_t descriptors = 1 << 16;                 // for Open() in memory
  std::unique_ptr<Volume> volume;
  Caller caller{.uid = 1000, .gid = 1000, .umask = 022};

 private:
  void Configure();
  void MakeInMemory(uint64_t bytes);
  absl::StatusOr<std::unique_ptr<Volume>> OpenInMemory(const VolumeOptions& options);

  BackingFd root_, salius_, file_;
};

// Returns the errno of a call; 0 for success.
template <typename T>
int Errno(const absl::StatusOr<T>& result) {
  return StatusErrno(result.status());
}
inline int Errno(const absl::Status& status) { return StatusErrno(status); }

}  // namespace salius
