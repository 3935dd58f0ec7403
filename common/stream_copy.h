// Copying into memory that will not be read soon.
#pragma once

#include <cstddef>

namespace salius {

// Copies `size` bytes from `from` to `to`, which do not overlap; from kStreamBytes on past the
// CPU's caches where it has instructions for that: a log's memory that is written once and read at
// a recovery only would throw out what is needed for the next record. A release store that follows
// releases the bytes too, as after memcpy. Never fails.
inline constexpr size_t kStreamBytes = 1024;
void StreamCopy(void* to, const void* from, size_t size);

}  // namespace salius
