// The file system that a volume lies on, behind one interface: the kernel's (LinuxBacking), or one
// in memory for tests (tests/unit/storage/memory_backing.h). Conformance tests keep the two alike.
//
// Descriptors are numbers. Every method takes the numbers that its own backing returned, and those
// of the kernel are the kernel's. A call with a number that is not open returns EBADF. Errors keep
// the exact errno (common/file.h, StatusErrno).
//
// Its base, Files, has the part that log/ needs. `fd` and `dirfd` may be O_PATH unless a comment says
// that they must be open for reading or writing. Names are single path elements. Callers act as
// root: no method checks permissions.
//
// Threads: any. A method may wait for the disk.
#pragma once

#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/types.h>
#include <time.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/file.h"
#include "common/files.h"
#include "storage/block_calls.h"
#include "storage/fs_calls.h"

namespace salius {

class Backing : public Files {
 public:
  // ---- Descriptors
  // Opens `name` O_PATH | O_NOFOLLOW, but never a mount point there: EXDEV.
  virtual absl::StatusOr<BackingFd> OpenChild(int dirfd, const std::string& name) = 0;
  // Makes a file without a name on the file system of `dirfd`, open for reading and writing.
  virtual absl::StatusOr<BackingFd> OpenTmpFile(int dirfd) = 0;
  // Opens the object of `fd` again with `flags`.
  virtual absl::StatusOr<BackingFd> Reopen(int fd, int flags) = 0;
  // Returns the identity of an object, good while it exists; UNIMPLEMENTED where there is none.
  virtual absl::StatusOr<FileHandle> HandleOf(int fd) = 0;
  // Opens an object by its identity. NOT_FOUND (ESTALE) when it is gone. `mount_fd` is not O_PATH.
  virtual absl::StatusOr<BackingFd> OpenByHandle(int mount_fd, const FileHandle& handle,
                                                 int flags) = 0;
  // Sets or clears O_NOATIME of an open descriptor; an error is ignored.
  virtual void SetNoAtime(int fd, bool noatime) = 0;

  // ---- Attributes
  virtual absl::StatusOr<struct stat> Stat(int fd) = 0;
  // Does not follow a symbolic link; `name` "" is `dirfd` itself.
  virtual absl::StatusOr<struct stat> StatAt(int dirfd, const std::string& name) = 0;
  virtual absl::StatusOr<std::optional<timespec>> BirthTimeOf(int fd) = 0;
  virtual absl::StatusOr<fs::ChangeMarks> ChangeMarksOf(int fd) = 0;
  // Returns the path of the object from the root of all names ("... (deleted)" when it has none).
  virtual absl::StatusOr<std::string> PathOf(int fd) = 0;
  virtual absl::StatusOr<std::string> ReadLinkOf(int fd) = 0;
  // Chown clears set-id bits and the file's capability. -1 leaves an id. The object may be a
  // symbolic link, except for Chmod.
  virtual absl::Status Chown(int fd, uid_t uid, gid_t gid) = 0;
  virtual absl::Status Chmod(int fd, mode_t mode) = 0;
  virtual absl::Status SetTimes(int fd, const timespec times[2]) = 0;
  // Returns the time with which a change would be stamped now. `scratch`: fs::FileTimeNow.
  virtual timespec FileTimeNow(int scratch) = 0;

  // ---- Extended attributes
  // ENODATA when it is missing.
  virtual absl::StatusOr<std::string> XattrValue(int fd, const std::string& name) = 0;
  virtual absl::StatusOr<std::vector<std::string>> XattrNames(int fd) = 0;
  virtual absl::Status SetXattr(int fd, const std::string& name, std::string_view value) = 0;
  // OK when it is missing.
  virtual absl::Status RemoveXattr(int fd, const std::string& name) = 0;

  // ---- Data; `fd` is open for reading or writing
  virtual absl::Status Fallocate(int fd, int mode, uint64_t offset, uint64_t length) = 0;
  // SEEK_DATA or SEEK_HOLE; ENXIO at the end of the file.
  virtual absl::StatusOr<uint64_t> Seek(int fd, uint64_t offset, int whence) = 0;

  // ---- Pages in memory; `fd` is open for reading or writing
  static constexpr uint64_t kPageBytes = 4096;
  // Returns whether all pages of the range are in memory; true where that is not known. It begins no
  // fetch.
  virtual bool ArePagesCached(int fd, uint64_t offset, uint64_t length) = 0;
  // Begins to fetch a range of at most some pages, and does not wait for the data. It may wait for
  // the metadata that says where that is. Advice only. `fd` is open for reading.
  virtual void BeginFetch(int fd, uint64_t offset, uint64_t length) = 0;

  // ---- The file system
  // Returns the identity of its mount on this boot; UNIMPLEMENTED where there is none
  // (common/host.h, UniqueMountId).
  virtual absl::StatusOr<uint64_t> MountIdOf(int fd) = 0;

  // ---- Space; see storage/block_calls.h
  virtual absl::StatusOr<struct statvfs> StatVfs(int fd) = 0;
  virtual absl::StatusOr<FsSpace> FreeSpace(int fd) = 0;
  virtual bool SizeFits(int fd, uint64_t size) = 0;
  virtual bool CopiesOnWrite(int fd) = 0;
  virtual bool MayTakeBlocksBack(int fd) = 0;
  virtual uint64_t SharedBlockBytes(int root) = 0;
  virtual bool IsShared(int fd, uint64_t at) = 0;
  virtual uint64_t UnallocatedBytes(int fd, uint64_t offset, uint64_t length) = 0;
  virtual std::optional<fs::QuotaUse> QuotaOf(int fd, fs::QuotaType type, uint32_t id) = 0;
  virtual bool QuotaBindsRoot(int fd) = 0;

  // ---- Names
  virtual absl::Status MkdirAt(int dirfd, const std::string& name, mode_t mode) = 0;
  virtual absl::Status MakeNode(int dirfd, const std::string& name, mode_t mode, dev_t device) = 0;
  virtual absl::Status Symlink(const std::string& target, int dirfd, const std::string& name) = 0;
  virtual absl::Status LinkFd(int fd, int dirfd, const std::string& name) = 0;

  // ---- Directories
  // Returns all names but "." and "..".
  virtual absl::StatusOr<std::vector<std::string>> ListDir(int dirfd) = 0;
  virtual absl::StatusOr<bool> IsEmptyDir(int dirfd) = 0;
  // Returns whether an object that is renamed into the directory keeps what it is, under exactly
  // the name given: no case-folding or encrypted directory, none with a project of its own.
  // Immutable and append-only ones count (ChangeMarksOf).
  virtual absl::StatusOr<bool> IsPlainDir(int dirfd) = 0;
  // Returns whether changes of the directory's names are synchronous (`chattr +D` or `+S`).
  virtual absl::StatusOr<bool> IsSyncDir(int dirfd) = 0;
  // Gives the directory `dirfd` the same marks as `from`, and takes none away. A file system does so
  // when a directory is made in `from`, but not when one is moved there.
  virtual absl::Status InheritSync(int from, int dirfd) = 0;
  // Returns entries from the position of `fd` on, which is then the last one's `next_offset`; empty
  // at the end. `fd` is open for reading.
  virtual absl::StatusOr<std::vector<fs::RawDirEntry>> ReadDirents(int fd) = 0;
  virtual absl::Status SeekDir(int fd, uint64_t offset) = 0;
};

// Returns the kernel's file systems. It has no state.
Backing& LinuxBacking();

}  // namespace salius
