// Drops a file's pages from memory.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <string>

namespace salius::differential {

// Drops the pages of an open file of a mount, and those of its backing file, if `backing` is not
// empty. Only clean pages can be dropped, so the backing file is written back before. A backing file
// that is not there yet, or no longer, is left alone.
inline void Evict(int fd, const std::string& backing) {
  if (fd >= 0) posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
  if (backing.empty()) return;
  const int below = open(backing.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
  if (below < 0) return;
  sync_file_range(below, 0, 0,
                  SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER);
  posix_fadvise(below, 0, 0, POSIX_FADV_DONTNEED);
  close(below);
}

}  // namespace salius::differential
