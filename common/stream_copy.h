// Copying into memory that will not be read soon.
#pragma once

#include <cstddef>

namespace salius {

// Copies `size` bytes from `from` to `to`, which do not overlap. From kStreamBytes on it goes past
// the CPU's caches, where the CPU has instructions for that. A log's memory is written once and
// read only at a recovery: it would evict data that the next record needs. A release store that
// follows releases the bytes too, as after memcpy. Never fails.
inline constexpr size_t kStreamBytes = 1024;
void StreamCopy(void* to, const void* from, size_t size);

}  // namespace salius
