// The system calls of the engine that neither common/file.h nor log/fs_calls.h has, each returning
// a Status that keeps the exact errno. The only place of the engine's file side that sees errno.
//
// `fd` may be O_PATH unless a comment says that it must be open for reading or writing.
#pragma once

#include <sys/stat.h>
#include <sys/statvfs.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/file.h"

namespace salius::fs {

// fstat(2).
absl::StatusOr<struct stat> Stat(int fd);
absl::StatusOr<struct statvfs> StatVfs(int fd);

// linkat(2) of the object itself; needs CAP_DAC_READ_SEARCH.
absl::Status LinkFd(int fd, int dirfd, const std::string& name);
// renameat2(2).
absl::Status Rename(int from_dirfd, const std::string& from, int to_dirfd, const std::string& to,
                    unsigned flags);
// The target of a symbolic link that is open O_PATH.
absl::StatusOr<std::string> ReadLinkOf(int fd);

// Value and names of extended attributes; a missing one is ENODATA.
absl::StatusOr<std::string> XattrValue(int fd, const std::string& name);
absl::StatusOr<std::vector<std::string>> XattrNames(int fd);

// True when the directory holds nothing but "." and "..".
absl::StatusOr<bool> IsEmptyDir(int dirfd);
struct RawDirEntry {
  std::string name;
  uint64_t next_offset = 0;
  ino_t ino = 0;
  uint32_t type = 0;  // S_IFMT bits; 0 when the file system does not say
};
// The entries from the position of `fd` on, as many as getdents64(2) gives at a time; empty at the
// end. `fd` must be open for reading; its position is then the last one's `next_offset`.
absl::StatusOr<std::vector<RawDirEntry>> ReadDirents(int fd);
absl::Status SeekDir(int fd, uint64_t offset);

// lseek(2) with SEEK_DATA or SEEK_HOLE; `fd` open for reading.
absl::StatusOr<uint64_t> Seek(int fd, uint64_t offset, int whence);
// True when the file system can hold a file of `size` bytes (it knows no ENOSPC or quota here).
bool SizeFits(int fd, uint64_t size);

// Whether the file system of `fd` (btrfs) writes what is overwritten elsewhere, for which it needs
// room; true where it does not say.
bool CopiesOnWrite(int fd);

// Whether the file system (XFS) may have allocated blocks beyond the end of the file `fd` for
// itself, and take them back: not once somebody has asked for such blocks with fallocate.
bool MayTakeBlocksBack(int fd);

// The size of the blocks that two files on the file system of `root` (XFS) may have in common; 0
// where none may, or where CopiesOnWrite leaves room for them.
uint64_t SharedBlockBytes(int root);
// Whether the byte at `at` of the file `fd` lies in such a block; true where nobody says.
bool IsShared(int fd, uint64_t at);

// How many bytes of the range have no block of their own yet, so that writing them needs space. A
// conservative bound: everything where the file system does not say.
uint64_t UnallocatedBytes(int fd, uint64_t offset, uint64_t length);

// What quotactl(2) says about one owner. nullopt when quotas of the type are not on.
struct QuotaUse {
  uint64_t bytes_used = 0, bytes_hard = 0, bytes_soft = 0;  // limits: 0 is none
  uint64_t inodes_used = 0, inodes_hard = 0, inodes_soft = 0;
  bool bytes_grace_over = false, inodes_grace_over = false;
};
enum class QuotaType { kUser, kGroup };
std::optional<QuotaUse> QuotaOf(int fd, QuotaType type, uint32_t id);

// The time that the file system would stamp a change with, now. `scratch` is a file of ours there,
// or -1: then it is the kernel's coarse time, which a stamp of a moment ago may be ahead of.
timespec FileTimeNow(int scratch);

}  // namespace salius::fs
