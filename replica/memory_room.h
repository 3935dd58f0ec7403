// How much memory this process may still take, before it takes it: the kernel answers more than that
// with a kill. The bounds are those of the memory cgroups (versions 1 and 2) from this process's own
// up to the root that it can see, and what the host has left.
//
// pure but for reading files below /proc and where cgroups are mounted.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"

namespace salius {

// What bounds it most, and the text that names it. No bound that is known: UINT64_MAX, "".
struct MemoryRoom {
  uint64_t bytes = UINT64_MAX;
  std::string because;
};
// `root` stands before every path: "" but for tests. `swap`: what can be swapped out counts as
// room. What cannot be read bounds nothing.
MemoryRoom ReadMemoryRoom(const std::string& root, bool swap);

// RESOURCE_EXHAUSTED, with the figures and what to do, when `bytes` more (and what the process
// itself needs) do not fit.
absl::Status CheckMemoryRoom(const MemoryRoom& room, uint64_t bytes, const std::string& what);

}  // namespace salius
