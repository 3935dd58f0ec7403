// CRC-32C (Castagnoli) of bytes at a pointer. Needs the standard library and ISA-L only. Pure.
#pragma once

#include <cstddef>
#include <cstdint>

namespace salius {

// Returns the checksum of A followed by `size` bytes, where `crc` is that of A. That of nothing
// is 0.
uint32_t Crc32cBytes(uint32_t crc, const uint8_t* bytes, size_t size);

}  // namespace salius
