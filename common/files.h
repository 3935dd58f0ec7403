// The files of one file system behind an interface: the part of storage/backing.h that log/ and the
// files of `.salius` need.
//
// Descriptors are numbers. Every method takes the numbers that its own object returned, and those
// of the kernel are the kernel's. Errors keep the exact errno (common/file.h, StatusErrno). Names
// are single path elements.
//
// Threads: any. A method may wait for the disk.
#pragma once

#include <sys/types.h>
#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/file.h"
#include "common/file_system.h"

namespace salius {

class Files;

// Owns a descriptor of a Files object; -1 is none. A descriptor of the kernel has no owner object,
// so that it costs what UniqueFd costs.
class BackingFd {
 public:
  BackingFd() = default;
  BackingFd(UniqueFd fd) : number_(fd.Release()) {}  // NOLINT: a descriptor of the kernel
  // Takes a descriptor of `files`, which outlives this object.
  BackingFd(Files& files, int number) : files_(&files), number_(number) {}
  BackingFd(BackingFd&& other) noexcept
      : files_(other.files_), number_(std::exchange(other.number_, -1)) {}
  BackingFd& operator=(BackingFd&& other) noexcept {
    if (this != &other) {
      Reset();
      files_ = other.files_;
      number_ = std::exchange(other.number_, -1);
    }
    return *this;
  }
  ~BackingFd() { Reset(); }

  int get() const { return number_; }
  bool valid() const { return number_ >= 0; }
  // Gives the descriptor away.
  int Release() { return std::exchange(number_, -1); }
  // Closes the descriptor held, ignoring an error.
  void Reset();

 private:
  Files* files_ = nullptr;  // null: the kernel's
  int number_ = -1;
};

class Files {
 public:
  virtual ~Files() = default;

  // ---- Descriptors and names
  // Opens a name that exists; "." is `dirfd` itself, ".." the directory above it. `flags` as
  // open(2), without O_CREAT.
  virtual absl::StatusOr<BackingFd> OpenAt(int dirfd, const std::string& name, int flags) = 0;
  // Opens a regular file, making it with `mode` when it is not there. `flags` as open(2), among
  // them O_EXCL and O_TRUNC.
  virtual absl::StatusOr<BackingFd> CreateAt(int dirfd, const std::string& name, int flags,
                                             mode_t mode) = 0;
  // `flags`: 0 or AT_REMOVEDIR.
  virtual absl::Status Unlink(int dirfd, const std::string& name, int flags) = 0;
  // `flags`: those of renameat2(2).
  virtual absl::Status Rename(int from_dirfd, const std::string& from, int to_dirfd,
                              const std::string& to, unsigned flags) = 0;
  // Takes flock(2) exclusively without waiting, as LockExclusive of common/file.h does.
  virtual absl::Status Lock(int fd, std::string_view what) = 0;

  // ---- Data; `fd` is open for reading or writing
  // Returns the size of the file in bytes.
  virtual absl::StatusOr<uint64_t> SizeOf(int fd) = 0;
  // Returns how many bytes were read: fewer than `size` only at the end of the file.
  virtual absl::StatusOr<size_t> Pread(int fd, void* out, size_t size, uint64_t offset) = 0;
  // Writes the parts one after the other. After an error any part of them may have been written.
  virtual absl::Status Pwritev(int fd, absl::Span<const iovec> parts, uint64_t offset) = 0;
  absl::Status Pwrite(int fd, std::string_view data, uint64_t offset);
  // Writes likewise; on OK the parts are on the disk.
  virtual absl::Status PwritevSynced(int fd, absl::Span<const iovec> parts, uint64_t offset) = 0;
  // Writes parts at an offset, like Pwritev.
  using LongWrite = std::function<absl::Status(absl::Span<const iovec> parts, uint64_t offset)>;
  // Returns a function for long writes to `fd` of data that is not read back soon
  // (common/bulk_writer.h). The caller keeps `fd` open while it lives. Here: Pwritev.
  virtual LongWrite LongWrites(int fd);
  virtual absl::Status Truncate(int fd, uint64_t size) = 0;
  // Never to be repeated after an error (common/file.h, FsyncFd).
  virtual absl::Status Fsync(int fd) = 0;
  virtual absl::Status Fdatasync(int fd) = 0;
  virtual absl::Status SyncFs(int fd) = 0;
  // Has the next read of clean data come from the disk. Advice only.
  virtual void DropCache(int fd) = 0;

  // ---- The file system that `fd` lies on
  virtual absl::StatusOr<fs::FsKind> KindOf(int fd) = 0;
  // Returns how often it has complained of itself; UNIMPLEMENTED where it does not count that
  // (common/ext4_watch.h, Ext4Complaints).
  virtual absl::StatusOr<uint64_t> ComplaintsOf(int fd) = 0;

 private:
  friend class BackingFd;
  virtual void Close(int number) = 0;
};

// Do what the functions of the same names in common/file.h do.
absl::StatusOr<std::string> ReadWholeFile(Files& files, int dirfd, const std::string& name,
                                          size_t max_bytes);
absl::Status WriteFileAtomically(Files& files, int dirfd, const std::string& name,
                                 absl::Span<const uint8_t> bytes, mode_t mode = 0600);

}  // namespace salius
