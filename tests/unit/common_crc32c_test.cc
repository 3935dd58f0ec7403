#include "common/crc32c.h"

#include <vector>

#include "common/bytes.h"
#include "gtest/gtest.h"

namespace salius {
namespace {

TEST(Crc32cTest, AgreesWithThePublishedVectors) {
  EXPECT_EQ(Crc32c({}), 0u);
  EXPECT_EQ(Crc32c(AsBytes("123456789")), 0xE3069283u);
  // RFC 3720, B.4.
  EXPECT_EQ(Crc32c(std::vector<uint8_t>(32, 0x00)), 0x8A9136AAu);
  EXPECT_EQ(Crc32c(std::vector<uint8_t>(32, 0xff)), 0x62A8AB43u);
}

TEST(Crc32cTest, ExtendingInPartsIsTheSameAsOneRun) {
  std::vector<uint8_t> bytes(5000);
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<uint8_t>(i * 7);
  const absl::Span<const uint8_t> all(bytes);
  for (const size_t split : {0, 1, 3, 64, 4096, 4999, 5000}) {
    EXPECT_EQ(Crc32cExtend(Crc32c(all.first(split)), all.subspan(split)), Crc32c(all)) << split;
  }
}

// Compares bit by bit, at every length and alignment that a variant may treat in its own way.
TEST(Crc32cTest, AgreesWithTheDefinitionAtEveryLengthAndAlignment) {
  constexpr size_t kSmall = 4200;
  constexpr size_t kLarge = 16 << 10;  // other variants take over there
  std::vector<uint8_t> bytes(kLarge + 300);
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<uint8_t>(i * i + i / 251);
  for (const size_t begin : {0, 1, 5, 8, 63}) {
    uint32_t state = ~0u;
    for (size_t size = 0; begin + size < bytes.size(); ++size) {
      if (size < kSmall || size + 300 > kLarge) {
        ASSERT_EQ(Crc32c(absl::MakeConstSpan(&bytes[begin], size)), ~state) << begin << " " << size;
      }
      state ^= bytes[begin + size];
      for (int bit = 0; bit < 8; ++bit) state = state >> 1 ^ ((state & 1) != 0 ? 0x82F63B78u : 0);
    }
  }
}

}  // namespace
}  // namespace salius
