#include "storage/direct_id.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>

#include "gtest/gtest.h"

namespace salius {
namespace {

constexpr uint8_t kVolume[8] = {0xa0, 0xa1, 0xa2, 0xa3, 0xa4, 0xa5, 0xa6, 0xa7};
constexpr uint8_t kOtherVolume[8] = {0xa0, 0xa1, 0xa2, 0xa3, 0xa4, 0xa5, 0xa6, 0xa8};

using Value = std::array<uint8_t, kDirectIdBytes>;

Value Encoded() {
  DirectId id;
  id.file_id = 0x0102030405060708;
  id.inode = 0x1112131415161718;
  std::copy(std::begin(kVolume), std::end(kVolume), id.volume);
  Value value;
  EncodeDirectId(id, value.data());
  return value;
}

// From docs/log-format.md; the checksum by an independent program.
TEST(DirectIdTest, GoldenBytes) {
  const Value golden = {0x08, 0x07, 0x06, 0x05, 0x04, 0x03, 0x02, 0x01,  //
                        0x18, 0x17, 0x16, 0x15, 0x14, 0x13, 0x12, 0x11,  //
                        0xa0, 0xa1, 0xa2, 0xa3, 0xa4, 0xa5, 0xa6, 0xa7,  //
                        0x01, 0x00, 0x00, 0x00, 0x10, 0x2a, 0x87, 0x38};
  EXPECT_EQ(Encoded(), golden);
}

TEST(DirectIdTest, DecodesWhatItEncoded) {
  const Value value = Encoded();
  DirectId id;
  ASSERT_TRUE(DecodeDirectId(value.data(), value.size(), &id));
  EXPECT_EQ(id.file_id, 0x0102030405060708u);
  EXPECT_TRUE(DirectIdIsOf(id, 0x1112131415161718, kVolume));
}

TEST(DirectIdTest, OtherInodeOrVolumeIsNotOfTheFile) {
  const Value value = Encoded();
  DirectId id;
  ASSERT_TRUE(DecodeDirectId(value.data(), value.size(), &id));
  EXPECT_FALSE(DirectIdIsOf(id, 0x1112131415161719, kVolume));
  EXPECT_FALSE(DirectIdIsOf(id, 0x1112131415161718, kOtherVolume));
}

TEST(DirectIdTest, EachFlippedBitIsRefused) {
  for (size_t bit = 0; bit < kDirectIdBytes * 8; ++bit) {
    Value value = Encoded();
    value[bit / 8] ^= static_cast<uint8_t>(1u << (bit % 8));
    DirectId id;
    EXPECT_FALSE(DecodeDirectId(value.data(), value.size(), &id)) << "bit " << bit;
    EXPECT_EQ(id.file_id, 0u);
  }
}

TEST(DirectIdTest, OtherLengthIsRefused) {
  std::array<uint8_t, kDirectIdBytes + 1> value{};
  const Value encoded = Encoded();
  std::copy(encoded.begin(), encoded.end(), value.begin());
  DirectId id;
  EXPECT_FALSE(DecodeDirectId(value.data(), value.size(), &id));
  EXPECT_FALSE(DecodeDirectId(value.data(), kDirectIdBytes - 1, &id));
  EXPECT_FALSE(DecodeDirectId(value.data(), 0, &id));
}

TEST(DirectIdTest, FileIdZeroIsRefused) {
  Value value;
  EncodeDirectId(DirectId{}, value.data());
  DirectId id;
  EXPECT_FALSE(DecodeDirectId(value.data(), value.size(), &id));
}

}  // namespace
}  // namespace salius
