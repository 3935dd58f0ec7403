// The prefix of a sealed frame (docs/wire-format.md): golden bytes, and every reason to refuse one.
#include "proto/sealed_frame.h"

#include <string>

#include "absl/strings/escaping.h"
#include "common/bytes.h"
#include "common/limits.h"
#include "gtest/gtest.h"
#include "proto/frame_format.h"
#include "proto/layout.h"
#include "tests/unit/log/golden.h"

namespace salius {
namespace {

using namespace frame_layout;  // NOLINT: the tests are about the offsets

const SealPrefix kGolden{SealKind::kSealed, 0x0A0B0C0D, 3, 0x1122334455};

uint8_t* Data(std::string& bytes) { return reinterpret_cast<uint8_t*>(bytes.data()); }

std::string Golden() { return absl::HexStringToBytes(golden::kSealedProbe); }

SealFault Decode(std::string bytes, SealPrefix* prefix) {
  return DecodeSealPrefix(Data(bytes), bytes.size(), prefix);
}
SealFault FaultOf(const std::string& bytes) {
  SealPrefix prefix;
  return Decode(bytes, &prefix);
}

TEST(SealedFrameTest, PrefixHasTheGoldenBytes) {
  std::string prefix(kSealPrefixBytes, '\xff');
  EncodeSealPrefix(kGolden, Data(prefix));
  EXPECT_EQ(prefix, Golden().substr(0, kSealPrefixBytes));
}

TEST(SealedFrameTest, GoldenPrefixIsDecoded) {
  ASSERT_EQ(Golden().size(), kSealBytes + kFrameHeaderBytes);
  SealPrefix prefix;
  EXPECT_EQ(Decode(Golden(), &prefix), SealFault::kNone);
  EXPECT_EQ(prefix, kGolden);
}

TEST(SealedFrameTest, NonceIsSenderAndCounter) {
  const auto nonce = NonceOf(kGolden);
  EXPECT_EQ(AsText(absl::MakeConstSpan(nonce)),
            std::string_view("\x03\0\0\0\x55\x44\x33\x22\x11\0\0\0", 12));
}

TEST(SealedFrameTest, EachWrongFieldHasItsFault) {
  std::string bytes = Golden();
  StoreU32(Data(bytes) + kFrameMagicAt, kFrameMagic);
  EXPECT_EQ(FaultOf(bytes), SealFault::kUnsealed);
  bytes = Golden();
  StoreU32(Data(bytes) + kFrameMagicAt, kSealedFrameMagic + 1);
  EXPECT_EQ(FaultOf(bytes), SealFault::kMagic);
  bytes = Golden();
  StoreU8(Data(bytes) + kFrameVersionAt, kSealedFrameVersion + 1);
  EXPECT_EQ(FaultOf(bytes), SealFault::kVersion);
  bytes = Golden();
  StoreU8(Data(bytes) + kSealKindAt, 2);
  EXPECT_EQ(FaultOf(bytes), SealFault::kKind);
  for (const size_t at : {kSealReservedAt, kSealReservedAt + 1}) {
    bytes = Golden();
    StoreU8(Data(bytes) + at, 1);
    EXPECT_EQ(FaultOf(bytes), SealFault::kReserved);
  }
}

TEST(SealedFrameTest, NumbersThatCannotBeAreRefused) {
  for (const size_t at : {kSealKeyIdAt, kSealSenderAt}) {
    std::string bytes = Golden();
    StoreU32(Data(bytes) + at, 0);
    EXPECT_EQ(FaultOf(bytes), SealFault::kNumber);
  }
  for (const uint64_t counter : {uint64_t{0}, kMaxCount + 1, ~uint64_t{0}}) {
    std::string bytes = Golden();
    StoreU64(Data(bytes) + kSealCounterAt, counter);
    EXPECT_EQ(FaultOf(bytes), SealFault::kNumber);
  }
}

TEST(SealedFrameTest, EveryTruncationIsShort) {
  for (size_t size = 0; size < Golden().size(); ++size) {
    EXPECT_EQ(FaultOf(Golden().substr(0, size)), SealFault::kShort) << size;
  }
}

TEST(SealedFrameTest, NoticeIsItsPrefixAlone) {
  std::string notice = Golden().substr(0, kSealPrefixBytes);
  StoreU8(Data(notice) + kSealKindAt, static_cast<uint8_t>(SealKind::kNoKey));
  SealPrefix prefix;
  EXPECT_EQ(Decode(notice, &prefix), SealFault::kNone);
  EXPECT_EQ(prefix.kind, SealKind::kNoKey);
  EXPECT_EQ(prefix.counter, kGolden.counter);
  EXPECT_EQ(FaultOf(notice + "x"), SealFault::kLength);
}

TEST(SealedFrameTest, SessionIsThatOfTheFrame) {
  FrameHeader header;
  header.volume.bytes[3] = 9;
  header.epoch = 4;
  header.session = 5;
  std::string frame(kFrameHeaderBytes, '\0');
  EncodeFrameHeader(header, Data(frame));
  EXPECT_EQ(SessionOf(Data(frame)), (FrameSession{header.volume, 4, 5}));
}

}  // namespace
}  // namespace salius
