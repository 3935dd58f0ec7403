// The system calls on the backing file system that common/file.h does not have, each returning a
// Status that keeps the exact errno. The only place in log/ that sees errno.
//
// `fd` may be O_PATH wherever a comment says so: such calls go through /proc/self/fd, which acts on
// the object itself, symbolic links included where the kernel allows it.
#ifndef SALIUS_LOG_FS_CALLS_H_
#define SALIUS_LOG_FS_CALLS_H_

#include <sys/stat.h>
#include <sys/types.h>
#include <time.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/file.h"

namespace salius::fs {

// Returns "/proc/self/fd/<fd>". EBADF when `fd` is not open: the path would give ENOENT.
absl::StatusOr<std::string> ProcPath(int fd);

// Opens `name` in `dirfd` O_PATH | O_NOFOLLOW, but never a mount point there: EXDEV.
absl::StatusOr<UniqueFd> OpenChild(int dirfd, const std::string& name);
// Returns the path at which the kernel knows the object ("... (deleted)" when it has none).
absl::StatusOr<std::string> PathOf(int fd);
// The marks of an object as immutable, or append-only (chattr(1)). `fd` may be O_PATH.
struct ChangeMarks {
  bool immutable = false;
  bool append_only = false;
};
absl::StatusOr<ChangeMarks> ChangeMarksOf(int fd);
// Returns when the object was made; nothing where its file system does not keep that. `fd` may be
// O_PATH.
absl::StatusOr<std::optional<timespec>> BirthTimeOf(int fd);

// Calls fstatat(2) with AT_EMPTY_PATH, not following symbolic links; `name` "" is `dirfd` itself.
absl::StatusOr<struct stat> StatAt(int dirfd, const std::string& name);

// Read and change extended attributes; `fd` may be O_PATH. GetXattr returns "" and `*found` = false
// when there is no such attribute. RemoveXattr of one that is not there is OK.
absl::StatusOr<std::string> GetXattr(int fd, const std::string& name, bool* found);
absl::Status SetXattr(int fd, const std::string& name, std::string_view value);
absl::Status RemoveXattr(int fd, const std::string& name);

// Set owner, permission bits and times; `fd` may be O_PATH, and a symbolic link except for Chmod.
absl::Status Chown(int fd, uid_t uid, gid_t gid);
absl::Status Chmod(int fd, mode_t mode);
absl::Status SetTimes(int fd, const timespec times[2]);

absl::Status Truncate(int fd, uint64_t size);
absl::Status Fallocate(int fd, int mode, uint64_t offset, uint64_t length);

// Make and remove names. MakeNode is mknodat(2): regular files, FIFOs, sockets, devices.
absl::Status MakeNode(int dirfd, const std::string& name, mode_t mode, dev_t device);
absl::Status Symlink(const std::string& target, int dirfd, const std::string& name);
absl::Status Unlink(int dirfd, const std::string& name, int flags);
absl::Status RenameNoReplace(int dirfd, const std::string& from, const std::string& to);
// Exchanges the two objects, in one step.
absl::Status RenameExchange(int dirfd, const std::string& one, const std::string& other);

// Returns the names in a directory but "." and "..". `dirfd` may be O_PATH.
absl::StatusOr<std::vector<std::string>> ListDir(int dirfd);
// Removes `name` in `dirfd` whatever it is, a directory with all its contents. OK when there is
// none. Does not follow symbolic links.
absl::Status RemoveTree(int dirfd, const std::string& name);

// Returns the absolute path without symbolic links: realpath(3).
absl::StatusOr<std::string> RealPath(const std::string& path);
// The kind of file system that `fd` lies on.
struct FsKind {
  int64_t type = 0;              // f_type of fstatfs(2)
  bool read_only = false;        // mounted read-only
  bool flushes_nothing = false;  // a sync does not flush the drive's cache (nobarrier, barrier=0)
  bool journals_data = false;    // data goes through its journal (data=journal)
};
absl::StatusOr<FsKind> KindOf(int fd);

// Make a shared, writable mapping of the first `bytes` of `fd`, and end it.
absl::StatusOr<void*> MapShared(int fd, size_t bytes);
void Unmap(void* address, size_t bytes);

// Makes the kernel forget its clean cached pages of the file, so that the next read comes from the
// disk. Advice only: cannot fail in a way that matters.
void DropCache(int fd);

}  // namespace salius::fs

#endif  // SALIUS_LOG_FS_CALLS_H_
