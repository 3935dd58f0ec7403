#include "common/bytes.h"

#include <cstdint>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace salius {
namespace {

using ::testing::ElementsAre;

TEST(BytesTest, WritesLittleEndianAndReadsItBack) {
  std::vector<uint8_t> out;
  ByteWriter writer(&out);
  writer.PutBytes(AsBytes("\x01"));
  writer.PutU16(0x0203);
  writer.PutU32(0x04050607);
  writer.PutU64(0x08090a0b0c0d0e0f);
  writer.PutBytes(AsBytes("ab"));
  writer.PutU16(0);
  EXPECT_TRUE(writer.ok());
  EXPECT_EQ(writer.written(), out.size());
  EXPECT_THAT(out,
              ElementsAre(1, 3, 2, 7, 6, 5, 4, 0xf, 0xe, 0xd, 0xc, 0xb, 0xa, 9, 8, 'a', 'b', 0, 0));
  ByteReader reader{absl::Span<const uint8_t>(out)};
  EXPECT_EQ(reader.U8(), 1);
  EXPECT_EQ(reader.U16(), 0x0203);
  EXPECT_EQ(reader.U32(), 0x04050607u);
  EXPECT_EQ(reader.U64(), 0x08090a0b0c0d0e0fu);
  EXPECT_EQ(reader.String(2), "ab");
  EXPECT_FALSE(reader.AtEnd());
  EXPECT_TRUE(reader.AllZero(2));
  EXPECT_TRUE(reader.AtEnd());
}

TEST(BytesTest, LoadsAndStoresAtAnyAlignment) {
  uint8_t memory[16] = {};
  StoreU64(memory + 1, 0x1122334455667788);
  EXPECT_EQ(LoadU64(memory + 1), 0x1122334455667788u);
  EXPECT_EQ(LoadU32(memory + 1), 0x55667788u);
  EXPECT_EQ(LoadU16(memory + 1), 0x7788);
  EXPECT_EQ(LoadU8(memory + 1), 0x88);
}

TEST(BytesTest, ReadPastTheEndFailsForGood) {
  ByteReader reader(std::string_view("abc"));
  EXPECT_EQ(reader.U32(), 0u);
  EXPECT_FALSE(reader.ok());
  EXPECT_EQ(reader.remaining(), 0u);
  EXPECT_EQ(reader.U8(), 0) << "three bytes were left, but the reader has failed";
  EXPECT_TRUE(reader.Bytes(1).empty());
  EXPECT_EQ(reader.String(1), "");
  EXPECT_FALSE(reader.AllZero(1));
  EXPECT_FALSE(reader.AllZero(0));
  EXPECT_FALSE(reader.AtEnd());
}

TEST(BytesTest, HugeLengthFromTheNetworkIsRefused) {
  ByteReader reader(std::string_view("abc"));
  EXPECT_TRUE(reader.Bytes(SIZE_MAX).empty());
  EXPECT_FALSE(reader.ok());
}

TEST(BytesTest, NonZeroReservedByteFailsTheReader) {
  ByteReader reader(std::string_view("\0\1\2", 3));
  EXPECT_FALSE(reader.AllZero(2));
  EXPECT_FALSE(reader.ok());
}

TEST(BytesTest, EmptyReadOfNothingIsNoFailure) {
  ByteReader reader{absl::Span<const uint8_t>()};
  EXPECT_TRUE(reader.Bytes(0).empty());
  EXPECT_TRUE(reader.AllZero(0));
  EXPECT_TRUE(reader.AtEnd());
}

TEST(BytesTest, FullSpanIsFilledToTheLastByte) {
  uint8_t memory[6] = {};
  ByteWriter writer{absl::Span<uint8_t>(memory)};
  writer.PutU32(1);
  writer.PutU16(2);
  EXPECT_TRUE(writer.ok());
  EXPECT_EQ(writer.written(), 6u);
}

TEST(BytesTest, WriteThatDoesNotFitIsLeftOutWholeAndSticks) {
  uint8_t memory[8] = {0, 0, 0, 0, 0xee, 0xee, 0xee, 0xee};
  ByteWriter writer{absl::Span<uint8_t>(memory, 6)};
  writer.PutU32(1);
  writer.PutU32(2);
  EXPECT_FALSE(writer.ok());
  writer.PutBytes(AsBytes("x"));
  EXPECT_EQ(writer.written(), 4u);
  EXPECT_THAT(memory, ElementsAre(1, 0, 0, 0, 0xee, 0xee, 0xee, 0xee));
}

TEST(BytesTest, AppendsBehindWhatTheVectorHolds) {
  std::vector<uint8_t> out = {9};
  ByteWriter writer(&out);
  writer.PutBytes(AsBytes("x"));
  EXPECT_EQ(writer.written(), 1u);
  EXPECT_THAT(out, ElementsAre(9, 'x'));
}

}  // namespace
}  // namespace salius
