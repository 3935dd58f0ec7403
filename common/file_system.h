// System calls on whole file systems, trees and mappings. Every Status keeps the exact errno
// (common/file.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/file.h"

namespace salius::fs {

// Returns the names in a directory but "." and "..". `dirfd` may be O_PATH.
absl::StatusOr<std::vector<std::string>> ListDir(int dirfd);
// Removes `name` in `dirfd` whatever it is, a directory with all its contents. OK when there is
// none. Does not follow symbolic links.
absl::Status RemoveTree(int dirfd, const std::string& name);

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
