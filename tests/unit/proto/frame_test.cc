// Frames of docs/wire-format.md: golden bytes, and every reason for which a decoder refuses.
#include "proto/frame.h"

#include <functional>
#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "common/bytes.h"
#include "common/crc32c.h"
#include "common/limits.h"
#include "common/random.h"
#include "gtest/gtest.h"
#include "proto/layout.h"
#include "tests/unit/log/golden.h"

namespace salius {
namespace {

using namespace frame_layout;  // NOLINT: the tests are about the offsets

std::string Hex(const char* hex) { return absl::HexStringToBytes(hex); }
uint8_t* Data(std::string& bytes) { return reinterpret_cast<uint8_t*>(bytes.data()); }

VolumeId GoldenVolume() {
  VolumeId volume;
  for (int i = 0; i < 16; ++i) volume.bytes[i] = static_cast<uint8_t>(0x10 + i);
  return volume;
}

FrameHeader GoldenHeader(FrameType type, uint32_t payload_bytes, uint16_t count) {
  FrameHeader header;
  header.type = type;
  header.payload_bytes = payload_bytes;
  header.volume = GoldenVolume();
  header.epoch = 3;
  header.session = 0xABCDEF0123456789;
  header.send_time_ns = 111;
  header.trim_mark = 4;
  header.durable_mark = 6;
  header.issued_mark = 7;
  header.count = count;
  return header;
}

AckPayload GoldenAck() {
  AckPayload ack;
  ack.incarnation = 0x1111222233334444;
  ack.base = 3;
  ack.contiguous = 9;
  ack.trimmed = 2;
  ack.free_bytes = 1 << 20;
  ack.promise_epoch = 4;
  ack.flags = kAckMemoryFull | kAckOverdue;
  ack.ranges = {{11, 12}, {14, 14}};
  return ack;
}

std::string Encode(const FrameHeader& header, std::string payload) {
  std::string frame(kFrameHeaderBytes, '\0');
  EncodeFrameHeader(header, Data(frame));
  return frame + payload;
}

std::string Encode(const FragmentHeader& header, size_t piece) {
  std::string bytes(kFragmentHeaderBytes, '\0');
  EncodeFragmentHeader(header, Data(bytes));
  return bytes + std::string(piece, 'x');
}

std::string Encode(const AckPayload& ack) {
  std::string bytes(kMaxAckBytes, '\0');
  bytes.resize(EncodeAckPayload(ack, Data(bytes)));
  return bytes;
}

absl::StatusCode FrameCode(const std::string& bytes) {
  return DecodeFrameHeader(AsBytes(bytes)).status().code();
}

// Returns a probe with one field changed and the right checksum.
std::string ChangedProbe(const std::function<void(uint8_t*)>& change) {
  std::string frame = Encode(GoldenHeader(FrameType::kProbe, 0, 0), "");
  change(Data(frame));
  StoreU32(Data(frame) + kFrameCrcAt, Crc32c(AsBytes(frame).first(kFrameCrcAt)));
  return frame;
}

std::string ChangedAck(const AckPayload& ack, const std::function<void(uint8_t*)>& change) {
  std::string bytes = Encode(ack);
  change(Data(bytes));
  StoreU32(Data(bytes) + kAckCrcAt, 0);
  StoreU32(Data(bytes) + kAckCrcAt, Crc32c(AsBytes(bytes)));
  return bytes;
}

absl::StatusCode AckCode(const std::string& bytes) {
  return DecodeAckPayload(AsBytes(bytes)).status().code();
}

TEST(FrameTest, GoldenBytesOfEveryType) {
  const std::string record = Hex(golden::kRecordWrite);
  EXPECT_EQ(Encode(GoldenHeader(FrameType::kRecords, record.size(), 1), record),
            Hex(golden::kFrameRecords));
  FragmentHeader fragment;
  fragment.seq = 7;
  fragment.record_bytes = 152;
  fragment.offset = 20;
  std::string piece = Encode(fragment, 0) + "twenty bytes of piec";
  EXPECT_EQ(Encode(GoldenHeader(FrameType::kFragment, piece.size(), 0), piece),
            Hex(golden::kFrameFragment));
  const std::string ack = Encode(GoldenAck());
  EXPECT_EQ(Encode(GoldenHeader(FrameType::kAck, ack.size(), 0), ack), Hex(golden::kFrameAck));
  EXPECT_EQ(Encode(GoldenHeader(FrameType::kProbe, 0, 0), ""), Hex(golden::kFrameProbe));
}

TEST(FrameTest, GoldenBytesDecode) {
  const std::string records = Hex(golden::kFrameRecords);
  auto header = DecodeFrameHeader(AsBytes(records));
  ASSERT_TRUE(header.ok()) << header.status();
  EXPECT_EQ(*header, GoldenHeader(FrameType::kRecords, 117, 1));

  const std::string ack = Hex(golden::kFrameAck);
  header = DecodeFrameHeader(AsBytes(ack));
  ASSERT_TRUE(header.ok()) << header.status();
  const auto payload = DecodeAckPayload(AsBytes(ack).subspan(kFrameHeaderBytes));
  ASSERT_TRUE(payload.ok()) << payload.status();
  EXPECT_EQ(*payload, GoldenAck());

  const std::string fragment = Hex(golden::kFrameFragment);
  const auto piece = DecodeFragmentHeader(AsBytes(fragment).subspan(kFrameHeaderBytes));
  ASSERT_TRUE(piece.ok()) << piece.status();
  EXPECT_EQ(piece->offset, 20u);
}

TEST(FrameTest, EveryFlippedBitIsRefused) {
  for (const char* golden : {golden::kFrameRecords, golden::kFrameProbe}) {
    const std::string frame = Hex(golden);
    for (size_t bit = 0; bit < kFrameHeaderBytes * 8; ++bit) {
      std::string bad = frame;
      bad[bit / 8] = static_cast<char>(bad[bit / 8] ^ (1 << (bit % 8)));
      EXPECT_NE(FrameCode(bad), absl::StatusCode::kOk) << "bit " << bit;
    }
  }
}

TEST(FrameTest, ShortDatagramIsOutOfRange) {
  const std::string frame = Hex(golden::kFrameProbe);
  for (size_t size = 0; size < frame.size(); ++size) {
    EXPECT_EQ(FrameCode(frame.substr(0, size)), absl::StatusCode::kOutOfRange) << size;
  }
}

TEST(FrameTest, BadChecksumIsDataLoss) {
  std::string frame = Hex(golden::kFrameProbe);
  frame[kFrameEpochAt] ^= 1;
  EXPECT_EQ(FrameCode(frame), absl::StatusCode::kDataLoss);
}

TEST(FrameTest, ForeignMagicVersionTypeAndReservedBytesAreRefused) {
  const auto refused = [](size_t at, uint8_t value) {
    const std::string frame = ChangedProbe([&](uint8_t* bytes) { bytes[at] = value; });
    EXPECT_EQ(FrameCode(frame), absl::StatusCode::kInvalidArgument) << "byte " << at;
  };
  refused(kFrameMagicAt, 0);
  refused(kFrameVersionAt, 2);
  refused(kFrameTypeAt, 0);
  refused(kFrameTypeAt, 5);
  for (size_t i = 0; i < 4; ++i) {
    refused(kFrameReserved0At + i, 1);
    refused(kFrameReserved1At + i, 1);
  }
}

TEST(FrameTest, NumbersNearTheEndOf64BitsAreRefused) {
  for (const size_t at : {kFrameEpochAt, kFrameTrimAt, kFrameDurableAt, kFrameIssuedAt}) {
    EXPECT_EQ(FrameCode(ChangedProbe([&](uint8_t* b) { StoreU64(b + at, kMaxCount); })),
              absl::StatusCode::kOk);
    EXPECT_EQ(FrameCode(ChangedProbe([&](uint8_t* b) { StoreU64(b + at, kMaxCount + 1); })),
              absl::StatusCode::kInvalidArgument)
        << at;
  }
  for (const size_t at : {kAckContiguousAt, kAckTrimmedAt, kAckPromiseAt}) {
    AckPayload ack = GoldenAck();
    ack.ranges.clear();
    EXPECT_EQ(AckCode(ChangedAck(ack, [&](uint8_t* b) { StoreU64(b + at, kMaxCount + 1); })),
              absl::StatusCode::kInvalidArgument)
        << at;
  }
  AckPayload ack = GoldenAck();
  ack.ranges = {{11, kMaxCount + 1}};
  EXPECT_EQ(AckCode(Encode(ack)), absl::StatusCode::kInvalidArgument);
}

TEST(FrameTest, PayloadSizeMustMatchThePayload) {
  const std::string frame = Hex(golden::kFrameProbe);
  EXPECT_EQ(FrameCode(frame + "x"), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(FrameCode(ChangedProbe([](uint8_t* b) { StoreU32(b + kFramePayloadBytesAt, 1); })),
            absl::StatusCode::kInvalidArgument);
}

TEST(FrameTest, PayloadMustSuitTheType) {
  const auto code = [](FrameType type, uint32_t payload, uint16_t count) {
    return FrameCode(Encode(GoldenHeader(type, payload, count), std::string(payload, 'x')));
  };
  using Code = absl::StatusCode;
  EXPECT_EQ(code(FrameType::kProbe, 1, 0), Code::kInvalidArgument);
  EXPECT_EQ(code(FrameType::kProbe, 0, 1), Code::kInvalidArgument);
  EXPECT_EQ(code(FrameType::kRecords, 200, 0), Code::kInvalidArgument);
  EXPECT_EQ(code(FrameType::kRecords, 223, 2), Code::kInvalidArgument);
  EXPECT_EQ(code(FrameType::kRecords, 224, 2), Code::kOk);
  EXPECT_EQ(code(FrameType::kCompact, 200, 0), Code::kInvalidArgument);
  EXPECT_EQ(code(FrameType::kCompact, 27, 2), Code::kInvalidArgument);
  EXPECT_EQ(code(FrameType::kCompact, 28, 2), Code::kOk);
  EXPECT_EQ(code(FrameType::kFragment, kFragmentHeaderBytes, 0), Code::kInvalidArgument);
  EXPECT_EQ(code(FrameType::kFragment, kFragmentHeaderBytes + 1, 0), Code::kOk);
  EXPECT_EQ(code(FrameType::kFragment, 200, 1), Code::kInvalidArgument);
  EXPECT_EQ(code(FrameType::kAck, kAckFixedBytes - 1, 0), Code::kInvalidArgument);
  EXPECT_EQ(code(FrameType::kAck, kMaxAckBytes, 0), Code::kOk);
  EXPECT_EQ(code(FrameType::kAck, kMaxAckBytes + 1, 0), Code::kInvalidArgument);
  EXPECT_EQ(code(FrameType::kFragment, kDatagramPayloadLoopback, 0), Code::kInvalidArgument);
}

TEST(FragmentTest, RefusesFragmentsThatNoSenderSends) {
  const auto code = [](FragmentHeader header, size_t piece) {
    return DecodeFragmentHeader(AsBytes(Encode(header, piece))).status().code();
  };
  using Code = absl::StatusCode;
  const FragmentHeader good = {7, 1000, 300};
  EXPECT_EQ(code(good, 300), Code::kOk);
  EXPECT_EQ(code(good, 700), Code::kOk);               // the last piece
  EXPECT_EQ(code(good, 0), Code::kOutOfRange);         // no piece at all
  EXPECT_EQ(code(good, 200), Code::kInvalidArgument);  // 300 is no multiple of 200
  EXPECT_EQ(code(good, 701), Code::kInvalidArgument);  // beyond the record
  EXPECT_EQ(code({0, 1000, 0}, 100), Code::kInvalidArgument);
  EXPECT_EQ(code({7, 111, 0}, 100), Code::kInvalidArgument);
  EXPECT_EQ(code({7, kLeastRecordBytes + kMaxRecordBody + 1, 0}, 100), Code::kInvalidArgument);
  EXPECT_EQ(code({7, 1000, 0xFFFFFFFF}, 100), Code::kInvalidArgument);

  std::string bytes = Encode(good, 300);
  bytes[kFragmentOffsetAt] ^= 1;
  EXPECT_EQ(DecodeFragmentHeader(AsBytes(bytes)).status().code(), Code::kDataLoss);
  bytes = Encode(good, 300);
  bytes[kFragmentReservedAt] = 1;
  StoreU32(Data(bytes) + kFragmentCrcAt, Crc32c(AsBytes(bytes).first(kFragmentCrcAt)));
  EXPECT_EQ(DecodeFragmentHeader(AsBytes(bytes)).status().code(), Code::kInvalidArgument);
}

TEST(AckTest, EveryFlippedBitIsRefused) {
  const std::string ack = Encode(GoldenAck());
  for (size_t bit = 0; bit < ack.size() * 8; ++bit) {
    std::string bad = ack;
    bad[bit / 8] = static_cast<char>(bad[bit / 8] ^ (1 << (bit % 8)));
    EXPECT_EQ(AckCode(bad), absl::StatusCode::kDataLoss) << "bit " << bit;
  }
}

TEST(AckTest, CutOffIsRefused) {
  const std::string ack = Encode(GoldenAck());
  for (size_t size = 0; size < ack.size(); ++size) {
    EXPECT_NE(AckCode(ack.substr(0, size)), absl::StatusCode::kOk) << size;
  }
}

TEST(AckTest, RefusesRangesThatAreNotAscendingAndApart) {
  const auto code = [](std::vector<SeqRange> ranges) {
    AckPayload ack = GoldenAck();
    ack.ranges = std::move(ranges);
    return AckCode(Encode(ack));
  };
  using Code = absl::StatusCode;
  EXPECT_EQ(code({}), Code::kOk);
  EXPECT_EQ(code({{10, 10}}), Code::kOk);
  EXPECT_EQ(code({{9, 12}}), Code::kInvalidArgument);             // at `contiguous`
  EXPECT_EQ(code({{12, 11}}), Code::kInvalidArgument);            // ends before it begins
  EXPECT_EQ(code({{11, 13}, {13, 15}}), Code::kInvalidArgument);  // overlap
  EXPECT_EQ(code({{11, 13}, {14, 15}}), Code::kInvalidArgument);  // touch
  EXPECT_EQ(code({{15, 16}, {11, 12}}), Code::kInvalidArgument);  // descend
  EXPECT_EQ(code({{11, UINT64_MAX}, {1, 2}}), Code::kInvalidArgument);
}

TEST(AckTest, RefusesUnknownFlagsCountsAndContradictions) {
  EXPECT_EQ(AckCode(ChangedAck(GoldenAck(), [](uint8_t* b) { b[kAckFlagsAt] = 0x10; })),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(AckCode(ChangedAck(GoldenAck(), [](uint8_t* b) { b[kAckRangeCountAt] = 3; })),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(AckCode(ChangedAck(GoldenAck(), [](uint8_t* b) { b[kAckRangeCountAt] = 33; })),
            absl::StatusCode::kInvalidArgument);
  // An acknowledgement of nothing has base - 1.
  AckPayload ack = GoldenAck();
  ack.base = 10;
  EXPECT_EQ(AckCode(Encode(ack)), absl::StatusCode::kOk);
  ack.base = 11;
  EXPECT_EQ(AckCode(Encode(ack)), absl::StatusCode::kInvalidArgument);
}

TEST(AckTest, MoreRangesThanFitAreLeftOutFromTheTop) {
  AckPayload ack;
  for (Seq seq = 2; ack.ranges.size() < kMaxAckRanges + 5; seq += 2)
    ack.ranges.push_back({seq, seq});
  const auto decoded = DecodeAckPayload(AsBytes(Encode(ack)));
  ASSERT_TRUE(decoded.ok()) << decoded.status();
  ack.ranges.resize(kMaxAckRanges);
  EXPECT_EQ(*decoded, ack);
}

TEST(FrameTest, RandomHeadersRoundTrip) {
  Random random(1);
  for (int i = 0; i < 1000; ++i) {
    FrameHeader header = GoldenHeader(FrameType::kFragment, 25 + random.Below(1000), 0);
    header.epoch = random.Below(kMaxCount + 1);
    header.session = random.Next();
    header.send_time_ns = random.Next();
    header.trim_mark = random.Below(kMaxCount + 1);
    header.durable_mark = random.Below(kMaxCount + 1);
    header.issued_mark = random.Below(kMaxCount + 1);
    const auto decoded =
        DecodeFrameHeader(AsBytes(Encode(header, std::string(header.payload_bytes, 'p'))));
    ASSERT_TRUE(decoded.ok()) << decoded.status();
    EXPECT_EQ(*decoded, header);
  }
}

}  // namespace
}  // namespace salius
