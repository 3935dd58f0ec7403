// What replication into memory cannot leave out at any of its ends: a record's checksum, and its
// copy into a log that is larger than the CPU's caches.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "absl/types/span.h"
#include "common/crc32c.h"

namespace salius::bench {

class Ring {
 public:
  // 0 bytes: Keep does nothing.
  explicit Ring(size_t bytes) : ring_(bytes, 1) {}  // written: no memory is touched the first time

  // `data`: at most as much as the ring has, or nothing is done.
  void Keep(absl::Span<const uint8_t> data) {
    if (data.empty() || data.size() > ring_.size()) return;
    if (data.size() > ring_.size() - at_) at_ = 0;
    std::memcpy(&ring_[at_], data.data(), data.size());
    at_ += data.size();
    checksums_ ^= Crc32c(data);
  }

 private:
  std::vector<uint8_t> ring_;
  size_t at_ = 0;
  uint32_t checksums_ = 0;
};

}  // namespace salius::bench
