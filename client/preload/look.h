// Looks at a descriptor without a question to the file system's daemon: fstat(2) on a mount of FUSE
// whose attributes the kernel does not keep is a request.
#pragma once

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include <cstdint>

#include "client/preload/raw_call.h"

namespace salius::preload {

struct Seen {
  mode_t mode = 0;  // the type of the file; its other bits may be old
  dev_t device = 0, device_number = 0;
  uint64_t inode = 0;
};

// Looks at what `path` under the directory `fd` names; an empty path: at the descriptor. `link`: 0
// to look behind a link at the path's end. Returns false when there is none. errno stays.
// Async-signal-safe.
inline bool LookAt(int fd, const char* path, Seen* seen, int link = AT_SYMLINK_NOFOLLOW) {
  struct statx status;
  const int flags = AT_EMPTY_PATH | AT_STATX_DONT_SYNC | link;
  const long error = Raw(SYS_statx, fd, path, flags, STATX_TYPE | STATX_INO, &status);
  if (error == 0) {
    *seen = {status.stx_mode, makedev(status.stx_dev_major, status.stx_dev_minor),
             makedev(status.stx_rdev_major, status.stx_rdev_minor), status.stx_ino};
    return true;
  }
  if (error != -ENOSYS) return false;  // Linux before 4.11, or a container that does not know it
  struct stat plain;
  if (Raw(SYS_newfstatat, fd, path, &plain, AT_EMPTY_PATH | link) != 0) return false;
  *seen = {plain.st_mode, plain.st_dev, plain.st_rdev, plain.st_ino};
  return true;
}

inline bool LookAt(int fd, Seen* seen) { return LookAt(fd, "", seen); }

}  // namespace salius::preload
