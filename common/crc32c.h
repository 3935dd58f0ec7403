// CRC-32C (Castagnoli), the checksum of records, frames and state slots. Pure.
#ifndef SALIUS_COMMON_CRC32C_H_
#define SALIUS_COMMON_CRC32C_H_

#include <cstdint>

#include "absl/types/span.h"
#include "common/crc32c_bytes.h"

namespace salius {

// Returns the checksum of A followed by `bytes`, where `crc` is that of A. That of nothing is 0.
inline uint32_t Crc32cExtend(uint32_t crc, absl::Span<const uint8_t> bytes) {
  return Crc32cBytes(crc, bytes.data(), bytes.size());
}

// Returns the checksum of `bytes`; for "123456789" it is 0xE3069283.
inline uint32_t Crc32c(absl::Span<const uint8_t> bytes) { return Crc32cExtend(0, bytes); }

}  // namespace salius

#endif  // SALIUS_COMMON_CRC32C_H_
