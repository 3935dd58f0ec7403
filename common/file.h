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

// Returns an error "<what>: <text of err>" whose code follows from `err`. It keeps `err` itself,
// for StatusErrno(). `err` must not be 0. EIO becomes INTERNAL, ENOSPC and EDQUOT
// RESOURCE_EXHAUSTED.
absl::Status ErrnoStatus(int err, std::string_view what);

// Returns the errno to answer a system call with: 0 for ok, the one kept by ErrnoStatus(), or else
// the nearest to the code (EIO for an error that a caller cannot act on).
int StatusErrno(const absl::Status& status);

// Returns the path that `name` in `dirfd` has, for messages. It is `name` itself when that is
// absolute or `dirfd` is AT_FDCWD. PathOfFd returns the path of a descriptor, "" when unknown.
std::string PathAt(int dirfd, std::string_view name);
std::string PathOfFd(int fd);

// Returns the error with "<path>: " in front, unless it names the path already. OK stays OK.
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
  // Closes the descriptor held, ignoring an error, and takes `fd`. errno is left unchanged.
  void Reset(int fd = -1);
  // Closes and reports the error of close(2); afterwards none is held either way.
  absl::Status Close();

 private:
  int fd_ = -1;
};

// Calls openat(2) with O_CLOEXEC added. `dirfd` may be AT_FDCWD. `mode` counts with O_CREAT or
// O_TMPFILE.
absl::StatusOr<UniqueFd> OpenAt(int dirfd, std::string_view path, int flags, mode_t mode = 0);

// Calls mkdirat(2). ALREADY_EXISTS when the name is taken.
absl::Status MkdirAt(int dirfd, std::string_view path, mode_t mode);

// Makes directory `path`, and the directories missing above it. Only their owner may write to them,
// whatever the umask. Errors: those of mkdir(2).
absl::Status MakeDirs(const std::string& path);

// Makes a directory of this user's own likewise. Afterwards no other user may write to it, also
// when it was there before. PERMISSION_DENIED when it belongs to another user.
absl::Status MakeOwnDirs(const std::string& path);

// --- Reading and writing -----------------------------------------------------------------------

// Reads `n` bytes at offset `off`, however many calls it takes. Returns how many were read: fewer
// than `n` only at the end of the file.
absl::StatusOr<size_t> PreadFull(int fd, void* buf, size_t n, int64_t off);

// Writes all bytes at offset `off`. After an error any part of them may have been written.
absl::Status PwriteFull(int fd, absl::Span<const uint8_t> bytes, int64_t off);

// Writes all parts one after the other from offset `off`, with pwritev2(2) flags such as RWF_DSYNC.
// After an error any part of them may have been written.
absl::Status PwritevFull(int fd, absl::Span<const iovec> parts, int64_t off, int flags = 0);

// Call fsync(2), fdatasync(2), syncfs(2). An error means that data may be lost for good. The kernel
// reports it once, and a second call may succeed without having written anything. Never retry.
absl::Status FsyncFd(int fd);
absl::Status FdatasyncFd(int fd);
absl::Status SyncFs(int fd);

// Returns the whole file as bytes. OUT_OF_RANGE (EFBIG) when it is larger than `max_bytes`.
absl::StatusOr<std::string> ReadWholeFile(int dirfd, std::string_view path,
                                          size_t max_bytes = size_t{64} << 20);
absl::StatusOr<std::string> ReadWholeFile(std::string_view path);

// Makes `name` in `dirfd` hold `bytes`, through "<name>.tmp", which replaces it. After a crash it
// has the old content or the new, and once this has returned, the new. `name` may not contain a
// slash. Callers for the same name must take turns.
absl::Status WriteFileAtomically(int dirfd, std::string_view name, absl::Span<const uint8_t> bytes,
                                 mode_t mode = 0600);

// --- Facts about files -------------------------------------------------------------------------

// Returns the size in bytes, by fstat(2).
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

// Takes flock(2) exclusively without waiting. It is held until the last copy of the descriptor is
// closed. UNAVAILABLE when another process holds it; `what` names the file in the message.
absl::Status LockExclusive(int fd, std::string_view what = "file");

// --- File handles ------------------------------------------------------------------------------

// A file's identity within its file system, good across renames and reboots.
struct FileHandle {
  int32_t type = 0;
  std::string bytes;

  friend bool operator==(const FileHandle&, const FileHandle&) = default;
};

// Calls name_to_handle_at(2). `flags` as there (AT_EMPTY_PATH, AT_SYMLINK_FOLLOW). UNIMPLEMENTED
// where the file system has no handles.
absl::StatusOr<FileHandle> HandleOf(int dirfd, std::string_view path, int flags);

// Calls open_by_handle_at(2), with O_CLOEXEC added: needs CAP_DAC_READ_SEARCH. `mount_fd` is any
// descriptor on the file system (not O_PATH). NOT_FOUND (ESTALE) when the file is gone.
// RESOURCE_EXHAUSTED (ENOMEM) after a second of trying.
absl::StatusOr<UniqueFd> OpenByHandle(int mount_fd, const FileHandle& handle, int flags);

}  // namespace salius

#endif  // SALIUS_COMMON_FILE_H_
