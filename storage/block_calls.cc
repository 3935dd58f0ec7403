#include "storage/block_calls.h"

#include <errno.h>
#include <linux/dqblk_xfs.h>
#include <linux/fiemap.h>
#include <linux/fs.h>
#include <linux/magic.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/quota.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>

namespace salius::fs {

bool SizeFits(int fd, uint64_t size) {
  if (size > static_cast<uint64_t>(INT64_MAX)) return false;
  // The kernel refuses a position beyond the file system's largest file. The position itself is
  // never used.
  return lseek(fd, static_cast<off_t>(size), SEEK_SET) >= 0;
}

bool CopiesOnWrite(int fd) {
  struct statfs kind;
  return fstatfs(fd, &kind) != 0 || kind.f_type == BTRFS_SUPER_MAGIC;
}

bool QuotaBindsRoot(int fd) {
  struct statfs kind;
  return fstatfs(fd, &kind) != 0 || kind.f_type == XFS_SUPER_MAGIC;
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

}  // namespace salius::fs
