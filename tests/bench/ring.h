// The work that replication into memory needs at each of its ends: a record's checksum, and its
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
  // Makes a ring of `bytes`; with 0 bytes Keep does nothing. The ring is filled here, so that Keep
  // touches no page for the first time.
  explicit Ring(size_t bytes) : ring_(bytes, 1) {}

  // Copies `data` and sums it; does nothing if it is larger than the ring.
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
