// The preload library's own CRC-32C.
#include <gtest/gtest.h>

#include <vector>

#include "common/crc32c_bytes.h"

namespace salius {
namespace {

// One bit at a time, from the definition.
uint32_t Reference(uint32_t crc, const uint8_t* bytes, size_t size) {
  uint32_t state = ~crc;
  for (size_t i = 0; i < size; ++i) {
    state ^= bytes[i];
    for (int bit = 0; bit < 8; ++bit) state = state >> 1 ^ (state % 2 == 1 ? 0x82F63B78 : 0);
  }
  return ~state;
}

TEST(Crc32cTest, KnownValue) {
  const char* text = "123456789";
  EXPECT_EQ(Crc32cBytes(0, reinterpret_cast<const uint8_t*>(text), 9), 0xE3069283u);
}

TEST(Crc32cTest, EverySizeAndOffset) {
  std::vector<uint8_t> bytes(5000);
  uint32_t value = 1;
  for (uint8_t& byte : bytes) byte = static_cast<uint8_t>((value = value * 69069 + 1) >> 24);
  for (size_t size = 0; size < 1700; ++size) {
    const size_t offset = size % 9;
    EXPECT_EQ(Crc32cBytes(7, bytes.data() + offset, size),
              Reference(7, bytes.data() + offset, size))
        << size;
  }
  EXPECT_EQ(Crc32cBytes(0, bytes.data(), 4096), Reference(0, bytes.data(), 4096));
}

TEST(Crc32cTest, ContinuesAnEarlierChecksum) {
  const std::vector<uint8_t> bytes(3000, 0x5A);
  const uint32_t first = Crc32cBytes(0, bytes.data(), 1001);
  EXPECT_EQ(Crc32cBytes(first, bytes.data() + 1001, 1999), Crc32cBytes(0, bytes.data(), 3000));
}

}  // namespace
}  // namespace salius
