// The compact coding of record headers: golden bytes, sizes, and round trips of any headers
// (RapidCheck).
#include "transport/compact_records.h"

#include <array>
#include <string>
#include <vector>

#include "common/bytes.h"
#include "common/crc32c.h"
#include "gtest/gtest.h"
#include "log/record.h"
#include "proto/frame.h"
#include "proto/layout.h"
#include "tests/unit/log/golden.h"
#include "transport/packer.h"
#include "transport/unpacker.h"
// After gtest, which it needs.
#include <rapidcheck/gtest.h>

namespace salius {
namespace {

static_assert(kLeastCompactHeader == frame_layout::kLeastCompactBytes);

std::string Hex(std::string_view hex) {
  std::string bytes;
  for (size_t i = 0; i < hex.size(); i += 2) {
    bytes.push_back(static_cast<char>(std::stoi(std::string(hex.substr(i, 2)), nullptr, 16)));
  }
  return bytes;
}

FrameHeader SomeFrame() {
  FrameHeader frame;
  for (size_t i = 0; i < frame.volume.bytes.size(); ++i) {
    frame.volume.bytes[i] = static_cast<uint8_t>(0x10 + i);
  }
  frame.epoch = 3;
  frame.session = 0xABCDEF0123456789;
  frame.send_time_ns = 111;
  frame.trim_mark = 4;
  frame.durable_mark = 6;
  frame.issued_mark = 7;
  return frame;
}

RecordHeader SomeHeader(Seq seq, std::string_view body) {
  RecordHeader header;
  header.volume = SomeFrame().volume;
  header.epoch = SomeFrame().epoch;
  header.seq = seq;
  header.timestamp_ns = 0x1122334455667788 + 1000 * (seq - 7);
  header.durable_mark = 6;
  header.checkpoint_mark = 5;
  header.file_id = 42;
  header.arg0 = 4096 + (seq - 7) * body.size();
  header.body_bytes = static_cast<uint32_t>(body.size());
  header.body_crc = Crc32c(AsBytes(body));
  return header;
}

// Returns the compact form of `header`.
std::string Coded(const RecordHeader& before, const RecordHeader& header) {
  std::array<uint8_t, kRecordHeaderBytes> full;
  EncodeRecordHeader(header, full.data());
  std::string coded(kMostCompactHeader, '\0');
  coded.resize(EncodeCompactHeader(before, header, LoadU32(&full[kRecordHeaderBytes - 4]),
                                   reinterpret_cast<uint8_t*>(coded.data())));
  return coded;
}

// Decodes the compact header at the beginning of `bytes`; nothing when it is refused.
std::optional<RecordHeader> Decoded(const RecordHeader& before, std::string_view bytes,
                                    size_t* used) {
  std::array<uint8_t, kRecordHeaderBytes> full;
  RecordHeader header;
  const std::optional<size_t> read =
      DecodeCompactHeader(before, AsBytes(bytes), &header, full.data());
  if (!read.has_value()) return std::nullopt;
  *used = *read;
  const absl::StatusOr<RecordHeader> again = DecodeRecordHeader(full);
  // A number that no encoder writes is refused by this one alone.
  if (again.ok()) {
    EXPECT_EQ(*again, header);
  }
  return header;
}

std::string Datagram(const std::vector<std::string>& records, Packer::Coding coding) {
  std::vector<RecordBytes> list;
  for (const std::string& record : records) {
    const auto bytes = AsBytes(record);
    list.push_back({DecodeRecordHeader(bytes)->seq, bytes.first(kRecordHeaderBytes),
                    bytes.subspan(kRecordHeaderBytes)});
  }
  Packer packer;
  packer.Pack(SomeFrame(), list, 1432, coding);
  EXPECT_EQ(packer.size(), 1u);
  std::string datagram;
  for (const iovec& part : packer[0]) {
    datagram.append(static_cast<const char*>(part.iov_base), part.iov_len);
  }
  return datagram;
}

TEST(CompactRecordsTest, GoldenBytes) {
  const std::string first = EncodeRecord(SomeHeader(7, "hello"), "hello");
  const std::string next = EncodeRecord(SomeHeader(8, "world"), "world");
  EXPECT_EQ(Datagram({first, next}, Packer::Coding::kCompact), Hex(golden::kFrameCompact));
}

TEST(CompactRecordsTest, NextWriteOfAFileHasTheLeastBytes) {
  EXPECT_EQ(Coded(SomeHeader(7, "hello"), SomeHeader(8, "world")).size(), kLeastCompactHeader);
}

TEST(CompactRecordsTest, SmallWritesTakeALittleMoreThanTheirBytes) {
  std::vector<std::string> records;
  const std::string body(128, 'x');
  for (Seq seq = 7; seq < 15; ++seq) records.push_back(EncodeRecord(SomeHeader(seq, body), body));
  const std::string full = Datagram({records[0], records[1]}, Packer::Coding::kFull);
  EXPECT_EQ(full.size(), kFrameHeaderBytes + 2 * (kRecordHeaderBytes + body.size()));
  const std::string compact = Datagram(records, Packer::Coding::kCompact);
  EXPECT_LE(compact.size(), kFrameHeaderBytes + 32 + 8 * (kLeastCompactHeader + body.size()));
}

// Returns `from`, or a number near it, or any.
uint64_t Near(uint64_t from) {
  const int what = *rc::gen::inRange(0, 4);
  if (what == 0) return from;
  if (what == 1) return from + *rc::gen::inRange<uint64_t>(0, 5000);
  if (what == 2) return from - *rc::gen::inRange<uint64_t>(0, 5000);
  return *rc::gen::arbitrary<uint64_t>();
}

RecordHeader AnyAfter(const RecordHeader& before) {
  RecordHeader header = before;
  header.op = static_cast<Op>(*rc::gen::inRange(0, 0x10000));
  if (*rc::gen::inRange(0, 2) == 0) header.op = before.op;
  header.body_bytes = static_cast<uint32_t>(Near(before.body_bytes));
  header.body_crc = *rc::gen::arbitrary<uint32_t>();
  header.seq = Near(before.seq + 1);
  header.timestamp_ns = Near(before.timestamp_ns);
  header.durable_mark = Near(before.durable_mark);
  header.checkpoint_mark = Near(before.checkpoint_mark);
  header.file_id = Near(before.file_id);
  header.arg0 = Near(before.arg0 + before.body_bytes);
  header.arg1 = Near(0);
  header.arg2 = Near(0);
  return header;
}

RC_GTEST_PROP(CompactRecordsTest, AnyHeadersComeBack, ()) {
  RecordHeader before = BeforeFirst(SomeFrame());
  for (int i = 0; i < 10; ++i) {
    const RecordHeader header = AnyAfter(before);
    const std::string coded = Coded(before, header);
    RC_ASSERT(coded.size() >= kLeastCompactHeader && coded.size() <= kMostCompactHeader);
    size_t used = 0;
    const auto decoded = Decoded(before, coded + "behind", &used);
    RC_ASSERT(decoded.has_value());
    RC_ASSERT(*decoded == header);
    RC_ASSERT(used == coded.size());
    const size_t cut = *rc::gen::inRange<size_t>(0, coded.size());
    RC_ASSERT(!Decoded(before, std::string_view(coded).substr(0, cut), &used).has_value());
    before = header;
  }
}

RC_GTEST_PROP(CompactRecordsTest, NoHeaderWithAFlippedBitIsTaken, ()) {
  const RecordHeader before = AnyAfter(BeforeFirst(SomeFrame()));
  std::string coded = Coded(before, AnyAfter(before));
  const auto bit = *rc::gen::inRange<size_t>(0, 8 * coded.size());
  coded[bit / 8] = static_cast<char>(coded[bit / 8] ^ (1 << bit % 8));
  size_t used = 0;
  RC_ASSERT(!Decoded(before, coded, &used).has_value());
}

TEST(CompactRecordsTest, HeaderAfterAnotherOneThanItsOwnIsRefused) {
  const std::string coded = Coded(SomeHeader(7, "hello"), SomeHeader(8, "world"));
  size_t used = 0;
  EXPECT_TRUE(Decoded(SomeHeader(7, "hello"), coded, &used).has_value());
  EXPECT_FALSE(Decoded(SomeHeader(9, "hello"), coded, &used).has_value());
}

TEST(CompactRecordsTest, ReservedFlagsAndLongNumbersAreRefused) {
  RecordHeader header = SomeHeader(8, "world");
  header.file_id = 1000;
  const std::string coded = Coded(SomeHeader(7, "hello"), header);
  size_t used = 0;
  ASSERT_TRUE(Decoded(SomeHeader(7, "hello"), coded, &used).has_value());
  std::string changed = coded;
  changed[1] = static_cast<char>(changed[1] | 2);
  EXPECT_FALSE(Decoded(SomeHeader(7, "hello"), changed, &used).has_value());
  // A file id of more than 64 bits.
  changed = coded.substr(0, 2) + std::string(9, '\xff') + "\x03" + coded.substr(4);
  EXPECT_FALSE(Decoded(SomeHeader(7, "hello"), changed, &used).has_value());
}

TEST(CompactRecordsTest, RecordsBeforeACorruptBodyAreTaken) {
  std::string datagram = Datagram({EncodeRecord(SomeHeader(7, "hello"), "hello"),
                                   EncodeRecord(SomeHeader(8, "world"), "world")},
                                  Packer::Coding::kCompact);
  datagram.back() ^= 1;
  const absl::StatusOr<FrameHeader> frame = DecodeFrameHeader(AsBytes(datagram));
  ASSERT_TRUE(frame.ok()) << frame.status();
  std::vector<Seq> seqs;
  const auto keep = [&](const RecordHeader& record, absl::Span<const uint8_t>) {
    seqs.push_back(record.seq);
  };
  const auto payload = AsBytes(datagram).subspan(kFrameHeaderBytes);
  EXPECT_EQ(UnpackRecords(*frame, payload, keep), Unpacked::kCorruptRecord);
  EXPECT_EQ(seqs, std::vector<Seq>{7});
}

TEST(CompactRecordsTest, BodyThatIsCutOffIsRefused) {
  const std::string record = EncodeRecord(SomeHeader(7, "hello"), "hello");
  const std::string datagram = Datagram({record}, Packer::Coding::kCompact);
  const absl::StatusOr<FrameHeader> frame = DecodeFrameHeader(AsBytes(datagram));
  ASSERT_TRUE(frame.ok()) << frame.status();
  auto payload = AsBytes(datagram).subspan(kFrameHeaderBytes);
  payload.remove_suffix(1);
  int taken = 0;
  const auto keep = [&](const RecordHeader&, absl::Span<const uint8_t>) { ++taken; };
  EXPECT_EQ(UnpackRecords(*frame, payload, keep), Unpacked::kCorruptRecord);
  EXPECT_EQ(taken, 0);
}

}  // namespace
}  // namespace salius
