// The FUSE wire format between kernel and daemon, where libfuse 3.14 does not pass it on: flags of
// INIT, OPEN and WRITE, and whole operations (TMPFILE). The structures are the kernel's own
// (<linux/fuse.h>, 7.38 or newer); the sizes are asserted because we lay them over received bytes.
//
// pure: no thread, lock, socket or clock.
#pragma once

#include <linux/fuse.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include <cstdint>
#include <optional>

namespace salius {

// INIT flags newer than the distribution's header.
// A file opened direct may be mapped shared (Linux 6.6).
inline constexpr uint64_t kInitDirectIoAllowMmap = uint64_t{1} << 36;
// No file handles (Linux 6.9): name_to_handle_at(2) is EOPNOTSUPP, and the kernel's NFS server does
// not export the mount.
inline constexpr uint64_t kInitNoExportSupport = uint64_t{1} << 38;
// The mount may be idmapped (Linux 6.12). From then on only requests that make an object name their
// caller, in the ids of the file system; all others have kNoId.
inline constexpr uint64_t kInitAllowIdmap = uint64_t{1} << 40;
inline constexpr uint32_t kNoId = 0xffffffff;

// STATX (Linux 6.6): attributes with the birth time. The kernel takes no other field of statx(2),
// such as the alignment of direct I/O, from a FUSE daemon.
inline constexpr uint32_t kFuseStatx = 52;
struct FuseStatxIn {
  uint32_t getattr_flags;
  uint32_t reserved;
  uint64_t fh;
  uint32_t sx_flags;
  uint32_t sx_mask;
};
struct FuseStatxTime {
  int64_t seconds;
  uint32_t nanoseconds;
  int32_t reserved;
};
struct FuseStatx {
  uint32_t mask;
  uint32_t blksize;
  uint64_t attributes;
  uint32_t nlink;
  uint32_t uid;
  uint32_t gid;
  uint16_t mode;
  uint16_t spare0;
  uint64_t ino;
  uint64_t size;
  uint64_t blocks;
  uint64_t attributes_mask;
  FuseStatxTime atime;
  FuseStatxTime btime;
  FuseStatxTime ctime;
  FuseStatxTime mtime;
  uint32_t rdev_major;
  uint32_t rdev_minor;
  uint32_t dev_major;
  uint32_t dev_minor;
  uint64_t spare2[14];
};
struct FuseStatxOut {
  uint64_t attr_valid;
  uint32_t attr_valid_nsec;
  uint32_t flags;
  uint64_t spare[2];
  FuseStatx stat;
};
static_assert(sizeof(FuseStatxIn) == 24);
static_assert(sizeof(FuseStatx) == 256);
static_assert(sizeof(FuseStatxOut) == 288);

// The first half of every request, and of every reply.
static_assert(sizeof(fuse_in_header) == 40);
static_assert(sizeof(fuse_out_header) == 16);
static_assert(sizeof(fuse_attr) == 88);
static_assert(sizeof(fuse_entry_out) == 128);
static_assert(sizeof(fuse_attr_out) == 104);
static_assert(sizeof(fuse_open_in) == 8);
static_assert(sizeof(fuse_open_out) == 16);
static_assert(sizeof(fuse_create_in) == 16);
static_assert(sizeof(fuse_write_in) == 40);
static_assert(sizeof(fuse_write_out) == 8);
static_assert(sizeof(fuse_setattr_in) == 88);
static_assert(sizeof(fuse_setxattr_in) == 16);
static_assert(sizeof(fuse_init_in) == 64);
static_assert(sizeof(fuse_init_out) == 64);

// Returns the attributes as the kernel takes them.
inline fuse_attr ToFuseAttr(const struct stat& st) {
  fuse_attr attr{};
  attr.ino = st.st_ino;
  attr.size = static_cast<uint64_t>(st.st_size);
  attr.blocks = static_cast<uint64_t>(st.st_blocks);
  attr.atime = static_cast<uint64_t>(st.st_atim.tv_sec);
  attr.mtime = static_cast<uint64_t>(st.st_mtim.tv_sec);
  attr.ctime = static_cast<uint64_t>(st.st_ctim.tv_sec);
  attr.atimensec = static_cast<uint32_t>(st.st_atim.tv_nsec);
  attr.mtimensec = static_cast<uint32_t>(st.st_mtim.tv_nsec);
  attr.ctimensec = static_cast<uint32_t>(st.st_ctim.tv_nsec);
  attr.mode = st.st_mode;
  attr.nlink = static_cast<uint32_t>(st.st_nlink);
  attr.uid = st.st_uid;
  attr.gid = st.st_gid;
  attr.rdev = static_cast<uint32_t>(st.st_rdev);
  attr.blksize = static_cast<uint32_t>(st.st_blksize);
  return attr;
}

// Returns them for STATX; without a birth time where the backing file system keeps none.
inline FuseStatx ToFuseStatx(const struct stat& st, const std::optional<timespec>& birth) {
  const auto time = [](const timespec& t) {
    return FuseStatxTime{t.tv_sec, static_cast<uint32_t>(t.tv_nsec), 0};
  };
  FuseStatx out{};
  out.mask = STATX_BASIC_STATS | (birth.has_value() ? STATX_BTIME : 0);
  out.blksize = static_cast<uint32_t>(st.st_blksize);
  out.nlink = static_cast<uint32_t>(st.st_nlink);
  out.uid = st.st_uid;
  out.gid = st.st_gid;
  out.mode = static_cast<uint16_t>(st.st_mode);
  out.ino = st.st_ino;
  out.size = static_cast<uint64_t>(st.st_size);
  out.blocks = static_cast<uint64_t>(st.st_blocks);
  out.atime = time(st.st_atim);
  out.ctime = time(st.st_ctim);
  out.mtime = time(st.st_mtim);
  if (birth.has_value()) out.btime = time(*birth);
  out.rdev_major = major(st.st_rdev);
  out.rdev_minor = minor(st.st_rdev);
  return out;
}

}  // namespace salius
