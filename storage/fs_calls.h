// The system calls on the backing file system that common/file.h does not have, each returning a
// Status that keeps the exact errno. With block_calls.h the only place in storage/ that sees errno.
//
// `fd` may be O_PATH unless a comment says that it must be open for reading or writing: such calls
// go through /proc/self/fd, which acts on the object itself, symbolic links included where the
// kernel allows it.
#pragma once

#include <sys/stat.h>
#include <sys/statvfs.h>
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

// Read and change extended attributes. For a missing one XattrValue returns ENODATA, and GetXattr
// an empty string and `*found` = false. Removing a missing one is OK. XattrNames lists them.
absl::StatusOr<std::string> XattrValue(int fd, const std::string& name);
absl::StatusOr<std::string> GetXattr(int fd, const std::string& name, bool* found);
absl::StatusOr<std::vector<std::string>> XattrNames(int fd);
absl::Status SetXattr(int fd, const std::string& name, std::string_view value);
absl::Status RemoveXattr(int fd, const std::string& name);

// Set owner, permission bits and times; `fd` may be a symbolic link except for Chmod.
absl::Status Chown(int fd, uid_t uid, gid_t gid);
absl::Status Chmod(int fd, mode_t mode);
absl::Status SetTimes(int fd, const timespec times[2]);

absl::Status Truncate(int fd, uint64_t size);
absl::Status Fallocate(int fd, int mode, uint64_t offset, uint64_t length);

// Make and remove names. MakeNode is mknodat(2): regular files, FIFOs, sockets, devices.
absl::Status MakeNode(int dirfd, const std::string& name, mode_t mode, dev_t device);
absl::Status Symlink(const std::string& target, int dirfd, const std::string& name);
absl::Status Unlink(int dirfd, const std::string& name, int flags);
// Calls linkat(2) for the object of `fd`; needs CAP_DAC_READ_SEARCH.
absl::Status LinkFd(int fd, int dirfd, const std::string& name);
// Calls renameat2(2) with its flags; 0 replaces the object at `to`.
absl::Status Rename(int from_dirfd, const std::string& from, int to_dirfd, const std::string& to,
                    unsigned flags = 0);
// Returns true for the error of removing a directory, or renaming over one, that is not empty.
bool IsNotEmpty(const absl::Status& status);

// Returns the absolute path without symbolic links: realpath(3).
absl::StatusOr<std::string> RealPath(const std::string& path);

// Calls fstat(2).
absl::StatusOr<struct stat> Stat(int fd);
absl::StatusOr<struct statvfs> StatVfs(int fd);

// Returns the target of a symbolic link that is open O_PATH.
absl::StatusOr<std::string> ReadLinkOf(int fd);

// Returns whether the directory holds nothing but "." and "..".
absl::StatusOr<bool> IsEmptyDir(int dirfd);
// Returns whether the directory is neither case-folding nor encrypted, and gives new objects no
// project of its own. True where the file system has no such marks.
absl::StatusOr<bool> IsPlainDir(int dirfd);
// Returns whether changes of the directory's names are synchronous: `chattr +D` or `+S`. False
// where the file system has no such marks.
absl::StatusOr<bool> IsSyncDir(int dirfd);
// Gives the directory the marks of `from` for synchronous names; see Backing::InheritSync.
absl::Status InheritSync(int from, int dirfd);
struct RawDirEntry {
  std::string name;
  uint64_t next_offset = 0;
  ino_t ino = 0;
  uint32_t type = 0;  // S_IFMT bits; 0 when the file system does not say
};
// Returns the entries from the position of `fd` on, as many as one getdents64(2) gives; empty at
// the end. `fd` must be open for reading; its position is then the last entry's `next_offset`.
absl::StatusOr<std::vector<RawDirEntry>> ReadDirents(int fd);
absl::Status SeekDir(int fd, uint64_t offset);

// Calls lseek(2) with SEEK_DATA or SEEK_HOLE; `fd` must be open for reading.
absl::StatusOr<uint64_t> Seek(int fd, uint64_t offset, int whence);

// Returns whether all pages of the range are in memory (cachestat(2); before Linux 6.5 preadv2(2)
// with RWF_NOWAIT, for which `fd` must be open for reading); true where the kernel does not say.
bool ArePagesCached(int fd, uint64_t offset, uint64_t length);
// Has the kernel begin to read a range of at most some pages (preadv2(2) with RWF_NOWAIT). `fd` must
// be open for reading.
void BeginFetch(int fd, uint64_t offset, uint64_t length);

// Returns the time with which the file system would stamp a change now. `scratch` is a file of ours
// there, or -1: then it is the kernel's coarse time, and a stamp of a moment ago may be later.
timespec FileTimeNow(int scratch);

// Returns a second descriptor of the object that `fd` is open on.
absl::StatusOr<UniqueFd> DuplicateFd(int fd);

}  // namespace salius::fs
