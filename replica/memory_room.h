// Reads how much memory this process may still take, before it takes it: the kernel kills a process
// that takes more. The bounds are the free memory of the host, and the limits of memory cgroups.
// It reads the cgroups (versions 1 and 2) from this process's own up to the root that it can see.
//
// pure but for reading files below /proc and where cgroups are mounted.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"

namespace salius {

// The tightest bound, and the text that names it. Without a known bound: UINT64_MAX, "".
struct MemoryRoom {
  uint64_t bytes = UINT64_MAX;
  std::string because;
};
// Reads the bounds. `root` is the prefix of every path: "" except in tests. `swap`: memory that can
// be swapped out counts as room. A file that cannot be read bounds nothing.
MemoryRoom ReadMemoryRoom(const std::string& root, bool swap);

// Returns RESOURCE_EXHAUSTED, with the figures and the remedy, when `bytes` more (and the needs of
// the process itself) do not fit.
absl::Status CheckMemoryRoom(const MemoryRoom& room, uint64_t bytes, const std::string& what);

}  // namespace salius
