// The FUSE wire format between kernel and daemon, where libfuse 3.14 does not pass it on: flags of
// INIT, OPEN and WRITE, and whole operations (TMPFILE). The structures are the kernel's own
// (<linux/fuse.h>, 7.38 or newer); the sizes are asserted because we lay them over received bytes.
//
// pure: no thread, lock, socket or clock.
#pragma once

#include <linux/fuse.h>
#include <sys/stat.h>

#include <cstdint>

namespace salius {

// INIT flags newer than the distribution's header.
// A file opened direct may be mapped shared (Linux 6.6).
inline constexpr uint64_t kInitDirectIoAllowMmap = uint64_t{1} << 36;

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

// Attributes as the kernel takes them.
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

}  // namespace salius
