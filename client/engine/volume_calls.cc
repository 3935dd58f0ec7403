#include "client/engine/volume_calls.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/dqblk_xfs.h>
#include <linux/fiemap.h>
#include <linux/fs.h>
#include <linux/magic.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/quota.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <sys/xattr.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>

#include "common/check.h"
#include "log/fs_calls.h"

namespace salius::fs {
namespace {

absl::Status Result(int result, std::string_view what) {
  return result == 0 ? absl::OkStatus() : ErrnoStatus(errno, what);
}

uint32_t TypeBits(unsigned char d_type) {
  return d_type == DT_UNKNOWN ? 0 : static_cast<uint32_t>(DTTOIF(d_type));
}

}  // namespace

absl::StatusOr<struct stat> Stat(int fd) {
  struct stat st;
  if (fstat(fd, &st) != 0) return ErrnoStatus(errno, "fstat");
  return st;
}

absl::StatusOr<struct statvfs> StatVfs(int fd) {
  struct statvfs st;
  if (fstatvfs(fd, &st) != 0) return ErrnoStatus(errno, "fstatvfs");
  return st;
}

absl::Status LinkFd(int fd, int dirfd, const std::string& name) {
  return Result(linkat(fd, "", dirfd, name.c_str(), AT_EMPTY_PATH), "link " + name);
}

absl::Status Rename(int from_dirfd, const std::string& from, int to_dirfd, const std::string& to,
                    unsigned flags) {
  return Result(renameat2(from_dirfd, from.c_str(), to_dirfd, to.c_str(), flags),
                "rename " + from + " to " + to);
}

absl::StatusOr<std::string> ReadLinkOf(int fd) {
  std::string target(4096, '\0');  // PATH_MAX
  const ssize_t size = readlinkat(fd, "", target.data(), target.size());
  if (size < 0) return ErrnoStatus(errno, "readlink");
  target.resize(static_cast<size_t>(size));
  return target;
}

absl::StatusOr<std::string> XattrValue(int fd, const std::string& name) {
  SALIUS_ASSIGN_OR_RETURN(const std::string path, ProcPath(fd));
  char small[512];
  ssize_t size = getxattr(path.c_str(), name.c_str(), small, sizeof(small));
  if (size >= 0) return std::string(small, static_cast<size_t>(size));
  if (errno != ERANGE) return ErrnoStatus(errno, "getxattr " + name);
  std::string value(65536, '\0');  // XATTR_SIZE_MAX
  size = getxattr(path.c_str(), name.c_str(), value.data(), value.size());
  if (size < 0) return ErrnoStatus(errno, "getxattr " + name);
  value.resize(static_cast<size_t>(size));
  return value;
}

absl::StatusOr<std::vector<std::string>> XattrNames(int fd) {
  SALIUS_ASSIGN_OR_RETURN(const std::string path, ProcPath(fd));
  std::string list(65536, '\0');  // XATTR_LIST_MAX
  const ssize_t size = listxattr(path.c_str(), list.data(), list.size());
  if (size < 0) {
    if (errno == EOPNOTSUPP) return std::vector<std::string>();
    return ErrnoStatus(errno, "listxattr");
  }
  std::vector<std::string> names;
  const size_t end = static_cast<size_t>(size);
  for (size_t at = 0; at < end;) {
    names.emplace_back(list.c_str() + at);
    at += names.back().size() + 1;
  }
  return names;
}

absl::StatusOr<std::vector<RawDirEntry>> ReadDirents(int fd) {
  alignas(dirent64) std::array<char, 32768> buffer;
  const ssize_t size = getdents64(fd, buffer.data(), buffer.size());
  if (size < 0) return ErrnoStatus(errno, "readdir");
  std::vector<RawDirEntry> entries;
  for (ssize_t at = 0; at < size;) {
    const auto* const raw = reinterpret_cast<const dirent64*>(buffer.data() + at);
    entries.push_back(
        {raw->d_name, static_cast<uint64_t>(raw->d_off), raw->d_ino, TypeBits(raw->d_type)});
    at += raw->d_reclen;
  }
  return entries;
}

absl::Status SeekDir(int fd, uint64_t offset) {
  if (lseek(fd, static_cast<off_t>(offset), SEEK_SET) < 0) return ErrnoStatus(errno, "seekdir");
  return absl::OkStatus();
}

absl::StatusOr<bool> IsEmptyDir(int dirfd) {
  SALIUS_ASSIGN_OR_RETURN(const UniqueFd fd, OpenAt(dirfd, ".", O_RDONLY | O_DIRECTORY));
  while (true) {
    SALIUS_ASSIGN_OR_RETURN(const std::vector<RawDirEntry> entries, ReadDirents(fd.get()));
    if (entries.empty()) return true;
    for (const RawDirEntry& entry : entries) {
      if (entry.name != "." && entry.name != "..") return false;
    }
  }
}

absl::StatusOr<uint64_t> Seek(int fd, uint64_t offset, int whence) {
  const off_t found = lseek(fd, static_cast<off_t>(offset), whence);
  if (found < 0) return ErrnoStatus(errno, "lseek");
  return static_cast<uint64_t>(found);
}

bool SizeFits(int fd, uint64_t size) {
  if (size > static_cast<uint64_t>(INT64_MAX)) return false;
  // The kernel refuses a position beyond the file system's largest file. Nobody uses the position.
  return lseek(fd, static_cast<off_t>(size), SEEK_SET) >= 0;
}

bool CopiesOnWrite(int fd) {
  struct statfs kind;
  return fstatfs(fd, &kind) != 0 || kind.f_type == BTRFS_SUPER_MAGIC;
}

bool MayTakeBlocksBack(int fd) {
  struct statfs kind;
  if (fstatfs(fd, &kind) != 0 || kind.f_type != XFS_SUPER_MAGIC) return false;
  struct fsxattr flags;
  return ioctl(fd, FS_IOC_FSGETXATTR, &flags) != 0 || (flags.fsx_xflags & FS_XFLAG_PREALLOC) == 0;
}

uint64_t SharedBlockBytes(int root) {
  struct statfs kind;
  if (fstatfs(root, &kind) != 0 || kind.f_type != XFS_SUPER_MAGIC) return 0;
  return static_cast<uint64_t>(kind.f_bsize);
}

bool IsShared(int fd, uint64_t at) {
  alignas(struct fiemap) char room[sizeof(struct fiemap) + sizeof(struct fiemap_extent)]{};
  auto* const map = reinterpret_cast<struct fiemap*>(room);
  map->fm_start = at;
  map->fm_length = 1;
  map->fm_extent_count = 1;
  if (ioctl(fd, FS_IOC_FIEMAP, map) != 0) return true;
  return map->fm_mapped_extents > 0 && (map->fm_extents[0].fe_flags & FIEMAP_EXTENT_SHARED) != 0;
}

uint64_t UnallocatedBytes(int fd, uint64_t offset, uint64_t length) {
  constexpr uint32_t kExtents = 128;
  const bool cow = CopiesOnWrite(fd);
  const uint64_t end = offset + length;
  uint64_t missing = 0;
  alignas(struct fiemap) char room[sizeof(struct fiemap) + kExtents * sizeof(struct fiemap_extent)];
  for (uint64_t at = offset; at < end;) {
    memset(room, 0, sizeof(room));
    auto* const map = reinterpret_cast<struct fiemap*>(room);
    map->fm_start = at;
    map->fm_length = end - at;
    map->fm_extent_count = kExtents;
    if (ioctl(fd, FS_IOC_FIEMAP, map) != 0) return missing + (end - at);
    for (uint32_t i = 0; i < map->fm_mapped_extents; ++i) {
      const struct fiemap_extent& extent = map->fm_extents[i];
      const bool own = (extent.fe_flags & FIEMAP_EXTENT_SHARED) == 0 &&
                       (!cow || (extent.fe_flags & FIEMAP_EXTENT_UNWRITTEN) != 0);
      const uint64_t first = std::clamp<uint64_t>(extent.fe_logical, at, end);
      const uint64_t last = std::clamp<uint64_t>(extent.fe_logical + extent.fe_length, at, end);
      missing += own ? first - at : last - at;
      at = last;
    }
    if (map->fm_mapped_extents < kExtents) return missing + (end - at);
  }
  return missing;
}

std::optional<QuotaUse> QuotaOf(int fd, QuotaType type, uint32_t id) {
  constexpr uint64_t kUnit = 512;  // the ABI's "basic block"
  struct fs_disk_quota quota {};
  const int kind = type == QuotaType::kUser ? USRQUOTA : GRPQUOTA;
  // Not Q_GETQUOTA: the kernel takes that for a write, which waits while the file system is frozen.
  if (syscall(SYS_quotactl_fd, fd, QCMD(Q_XGETQUOTA, kind), id, &quota) != 0) return std::nullopt;
  const int64_t now = time(nullptr);
  const bool big = (quota.d_fieldmask & FS_DQ_BIGTIME) != 0;
  const auto over = [&](int32_t low, int8_t high) {
    const int64_t ends =
        big ? int64_t{high} * (int64_t{1} << 32) + static_cast<uint32_t>(low) : int64_t{low};
    return ends != 0 && ends < now;
  };
  QuotaUse use;
  use.bytes_used = quota.d_bcount * kUnit;
  use.bytes_hard = quota.d_blk_hardlimit * kUnit;
  use.bytes_soft = quota.d_blk_softlimit * kUnit;
  use.inodes_used = quota.d_icount;
  use.inodes_hard = quota.d_ino_hardlimit;
  use.inodes_soft = quota.d_ino_softlimit;
  use.bytes_grace_over = over(quota.d_btimer, quota.d_btimer_hi);
  use.inodes_grace_over = over(quota.d_itimer, quota.d_itimer_hi);
  return use;
}

timespec FileTimeNow(int scratch) {
  const timespec stamp[2] = {{0, UTIME_OMIT}, {0, UTIME_NOW}};
  struct stat st;
  if (futimens(scratch, stamp) == 0 && fstat(scratch, &st) == 0) return st.st_mtim;
  timespec now{};
  SALIUS_CHECK(clock_gettime(CLOCK_REALTIME_COARSE, &now) == 0);
  return now;
}

}  // namespace salius::fs
