#include "common/crc32c.h"

#include <isa-l/crc.h>

#include <algorithm>

namespace salius {

uint32_t Crc32cExtend(uint32_t crc, absl::Span<const uint8_t> bytes) {
  // ISA-L takes the register as it stands inside (complemented) and the length as an int.
  constexpr size_t kMaxChunk = size_t{1} << 30;
  uint32_t state = ~crc;
  while (!bytes.empty()) {
    const size_t n = std::min(bytes.size(), kMaxChunk);
    // Its first argument is not const, yet only read.
    state = crc32_iscsi(const_cast<unsigned char*>(bytes.data()), static_cast<int>(n), state);
    bytes.remove_prefix(n);
  }
  return ~state;
}

}  // namespace salius
