// The descriptors of open files and directories, counted: callers may hold open as many files as
// they like, and a process has only so many descriptors. What they may not take is left for names,
// replicas and the control socket.
//
// Threads: any.
#pragma once

#include <atomic>
#include <cstddef>

#include "client/engine/path_fd.h"
#include "common/file.h"

namespace salius {

class FileFds {
 public:
  // Open files may have `limit` descriptors; before it is called, any number.
  void Configure(size_t limit) { limit_.store(limit); }

  // False when they have them all. Threads that ask at the same time may all be told true.
  bool HasRoom() const { return open_.load() < limit_.load(); }
  size_t limit() const { return limit_.load(); }

  // `fd`, counted until its last share is gone. This outlives the shares.
  SharedFd Share(UniqueFd fd);

 private:
  std::atomic<size_t> limit_{SIZE_MAX};
  std::atomic<size_t> open_{0};
};

}  // namespace salius
