// Loads and stores of little-endian values. Needs the standard library only (common/id_types.h).
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>

namespace salius {

static_assert(std::endian::native == std::endian::little,
              "formats are little-endian and loads and stores do not swap");

namespace bytes_internal {
template <typename T>
inline T Load(const void* from) {
  T value;
  std::memcpy(&value, from, sizeof(value));
  return value;
}
template <typename T>
inline void Store(void* to, T value) {
  std::memcpy(to, &value, sizeof(value));
}
}  // namespace bytes_internal

// Load or store a little-endian value at a pointer of any alignment.
inline uint8_t LoadU8(const void* from) { return bytes_internal::Load<uint8_t>(from); }
inline uint16_t LoadU16(const void* from) { return bytes_internal::Load<uint16_t>(from); }
inline uint32_t LoadU32(const void* from) { return bytes_internal::Load<uint32_t>(from); }
inline uint64_t LoadU64(const void* from) { return bytes_internal::Load<uint64_t>(from); }
inline void StoreU8(void* to, uint8_t value) { bytes_internal::Store(to, value); }
inline void StoreU16(void* to, uint16_t value) { bytes_internal::Store(to, value); }
inline void StoreU32(void* to, uint32_t value) { bytes_internal::Store(to, value); }
inline void StoreU64(void* to, uint64_t value) { bytes_internal::Store(to, value); }

}  // namespace salius
