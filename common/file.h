// The operating system's files, with full reads and writes, and the only mapping between errno and
// Status. Other code sees errno values only in the FUSE front and the preload library.
#ifndef SALIUS_COMMON_FILE_H_
#define SALIUS_COMMON_FILE_H_

#include <sys/types.h>
#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace salius {

// --- errno and Status --------------------------------------------------------------------------

// An error "<what>: <text of err>" whose code follows from `err` and which keeps `err` itself, for
// StatusErrno(). `err` must not be 0. EIO becomes INTERNAL, ENOSPC and EDQUOT RESOURCE_EXHAUSTED.
absl::Status ErrnoStatus(int err, std::string_view what);

// The errno to answer a system call with: 0 for ok, the one kept by ErrnoStatus(), or else the
// nearest to the code (EIO for whatever a caller cannot act on).
int StatusErrno(const absl::Status& status);

// The path that `name` in `dirfd` has, for messages: as given when it is absolute or `dirfd` is
// AT_FDCWD. PathOfFd: of a descriptor; "" when it is not known.
std::string PathAt(int dirfd, std::string_view name);
std::string PathOfFd(int fd);

// The error with "<path>: " in front, unless it names the path already. OK stays OK.
absl::Status AtPath(const absl::Status& status, std::string_view path);

// --- Descriptors -------------------------------------------------------------------------------

// Owns a file descriptor; -1 is none.
class UniqueFd {
 public:
  UniqueFd() = default;
  explicit UniqueFd(int fd) : fd_(fd) {}
  UniqueFd(UniqueFd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  UniqueFd& operator=(UniqueFd&& other) noexcept {
    if (this != &other) Reset(std::exchange(other.fd_, -1));
    return *this;
  }
  ~UniqueFd() { Reset(); }

  int get() const { return fd_; }
  bool valid() const { return fd_ >= 0; }
  // Gives the descriptor away.
  int Release() { return std::exchange(fd_, -1); }
  // Closes the one held, its error ignored, and takes `fd`. errno is left as it was.
  void Reset(int fd = -1);
  // Closes and reports what close(2) said; afterwards none is held either way.
  absl::Status Close();

 private:
  int fd_ = -1;
};

// openat(2) with O_CLOEXEC added. `dirfd` may be AT_FDCWD. `mode` counts with O_CREAT or O_TMPFILE.
absl::StatusOr<UniqueFd> OpenAt(int dirfd, std::string_view path, int flags, mode_t mode = 0);

// mkdirat(2). ALREADY_EXISTS when the name is taken.
absl::Status MkdirAt(int dirfd, std::string_view path, mode_t mode);

// Makes directory `path`, and what is missing above it; only their owner may write to them,
// whatever the umask. Errors: mkdir(2)'s.
absl::Status MakeDirs(const std::string& path);

// The same for a directory of this user's own: afterwards nobody else may write to it, also when it
// was there before. PERMISSION_DENIED when it belongs to another.
absl::Status MakeOwnDirs(const std::string& path);

// --- Reading and writing -----------------------------------------------------------------------

// Reads `n` bytes at offset `off`, however many calls it takes. Returns how many there were: fewer
// than `n` only at the end of the file.
absl::StatusOr<size_t> PreadFull(int fd, void* buf, size_t n, int64_t off);

// Writes all bytes at offset `off`. After an error any part of them may have been written.
absl::Status PwriteFull(int fd, absl::Span<const uint8_t> bytes, int64_t off);

// Writes all parts one after the other from offset `off`, with pwritev2(2) flags such as RWF_DSYNC.
// After an error any part of them may have been written.
absl::Status PwritevFull(int fd, absl::Span<const iovec> parts, int64_t off, int flags = 0);

// fsync(2), fdatasync(2), syncfs(2). An error means that data may be lost for good: the kernel
// reports it once and a second call may succeed without having written anything. Never retry.
absl::Status FsyncFd(int fd);
absl::Status FdatasyncFd(int fd);
absl::Status SyncFs(int fd);

// The whole file as bytes. OUT_OF_RANGE (EFBIG) when it is larger than `max_bytes`.
absl::StatusOr<std::string> ReadWholeFile(int dirfd, std::string_view path,
                                          size_t max_bytes = size_t{64} << 20);
absl::StatusOr<std::string> ReadWholeFile(std::string_view path);

// Makes `name` in `dirfd` hold `bytes`, through "<name>.tmp", which it replaces: after a crash it
// is the old content or the new, and once this has returned, the new. `name` may not contain a
// slash. Callers for the same name must take turns.
absl::Status WriteFileAtomically(int dirfd, std::string_view name, absl::Span<const uint8_t> bytes,
                                 mode_t mode = 0600);

// --- Facts about files -------------------------------------------------------------------------

// Size in bytes, by fstat(2).
absl::StatusOr<uint64_t> FileSize(int fd);

// Room on the file system that `fd` lies on.
struct FsSpace {
  uint64_t bytes_total = 0;
  uint64_t bytes_free = 0;   // Free, the part reserved for root included.
  uint64_t bytes_avail = 0;  // Free for anyone.
  uint64_t inodes_free = 0;  // 0 where the file system does not count inodes (btrfs).
  uint64_t inodes_total = 0;
};
absl::StatusOr<FsSpace> StatfsFree(int fd);

// Takes flock(2) exclusively without waiting; it is held until the last copy of the descriptor is
// closed. UNAVAILABLE when someone else holds it; `what` names the file in the message.
absl::Status LockExclusive(int fd, std::string_view what = "file");

// --- File handles ------------------------------------------------------------------------------

// A file's identity within its file system, good across renames and reboots.
struct FileHandle {
  int32_t type = 0;
  std::string bytes;

  friend bool operator==(const FileHandle&, const FileHandle&) = default;
};

// name_to_handle_at(2). `flags` as there (AT_EMPTY_PATH, AT_SYMLINK_FOLLOW). UNIMPLEMENTED where
// the file system has no handles.
absl::StatusOr<FileHandle> HandleOf(int dirfd, std::string_view path, int flags);

// open_by_handle_at(2), with O_CLOEXEC added: needs CAP_DAC_READ_SEARCH. `mount_fd` is any
// descriptor on the file system (not O_PATH). NOT_FOUND (ESTALE) when the file is gone.
// RESOURCE_EXHAUSTED (ENOMEM) after a second of trying.
absl::StatusOr<UniqueFd> OpenByHandle(int mount_fd, const FileHandle& handle, int flags);

}  // namespace salius

#endif  // SALIUS_COMMON_FILE_H_
