// The handle of a file of a direct volume.
#pragma once

#include <cstdint>

namespace salius::direct {

// The index that means: not a file of the volume.
inline constexpr uint32_t kNoFile = 0xFFFFFFFF;

// Names a file of the volume for this session, for all processes. `tag` differs when the entry was
// given to another file (an inode number that was used again): the handle is then stale. A call
// with a stale handle is safe: it logs nothing, and Sync is a real fsync(2).
struct File {
  uint32_t index = kNoFile;
  uint32_t tag = 0;
  bool tracked() const { return index != kNoFile; }
};

}  // namespace salius::direct
