// Packing and unpacking: the records that go into datagrams come out of them, in any order of
// arrival.
#include "transport/packer.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/crc32c.h"
#include "common/limits.h"
#include "common/random.h"
#include "gtest/gtest.h"
#include "log/record.h"
#include "transport/datagram_channel.h"
#include "transport/unpacker.h"

namespace salius {
namespace {

absl::Span<const uint8_t> Bytes(std::string_view text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

std::string Text(absl::Span<const uint8_t> bytes) {
  return std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}

FrameHeader SomeFrame() {
  FrameHeader header;
  header.volume.bytes[0] = 7;
  header.epoch = 3;
  header.session = 5;
  header.send_time_ns = 11;
  header.trim_mark = 1;
  header.durable_mark = 2;
  header.issued_mark = 9;
  return header;
}

std::string SomeRecord(Seq seq, size_t body_bytes) {
  std::string body(body_bytes, '\0');
  for (size_t i = 0; i < body_bytes; ++i) body[i] = static_cast<char>(seq * 31 + i * 7 + i / 251);
  RecordHeader header;
  header.volume = SomeFrame().volume;
  header.epoch = SomeFrame().epoch;
  header.seq = seq;
  header.timestamp_ns = seq;
  header.op = Op::kWrite;
  header.file_id = 2;
  header.body_bytes = static_cast<uint32_t>(body_bytes);
  header.body_crc = Crc32c(Bytes(body));
  return EncodeRecord(header, body);
}

RecordBytes InTwo(Seq seq, const std::string& record) {
  return {seq, Bytes(record).first(kRecordHeaderBytes), Bytes(record).subspan(kRecordHeaderBytes)};
}

// Returns the datagrams of `records`, whose seqs are 1, 2, ...
std::vector<std::string> Datagrams(const std::vector<std::string>& records, size_t bytes,
                                   Packer::Coding coding = Packer::Coding::kFull) {
  std::vector<RecordBytes> list;
  for (size_t i = 0; i < records.size(); ++i) list.push_back(InTwo(i + 1, records[i]));
  Packer packer;
  packer.Pack(SomeFrame(), list, bytes, coding);
  std::vector<std::string> datagrams(packer.size());
  for (size_t i = 0; i < packer.size(); ++i) {
    EXPECT_LE(packer[i].size(), kMaxParts);
    for (const iovec& part : packer[i]) {
      datagrams[i].append(static_cast<const char*>(part.iov_base), part.iov_len);
    }
    EXPECT_LE(datagrams[i].size(), bytes);
  }
  return datagrams;
}

// A receiver that keeps the records by seq.
class Receiver {
 public:
  void Take(const std::string& datagram) {
    const absl::StatusOr<FrameHeader> frame = DecodeFrameHeader(Bytes(datagram));
    ASSERT_TRUE(frame.ok()) << frame.status();
    FrameHeader marks = *frame;
    marks.type = SomeFrame().type;
    marks.count = 0;
    marks.payload_bytes = 0;
    EXPECT_EQ(marks, SomeFrame());
    const auto payload = Bytes(datagram).subspan(kFrameHeaderBytes);
    if (HasRecords(frame->type)) {
      const auto keep = [this](const RecordHeader& record, absl::Span<const uint8_t> bytes) {
        records_[record.seq] = Text(bytes);
      };
      EXPECT_EQ(UnpackRecords(*frame, payload, keep), Unpacked::kAll);
    } else {
      TakePiece(payload);
    }
  }
  const std::map<Seq, std::string>& records() const { return records_; }

 private:
  struct Partial {
    std::string bytes;
    PieceRuns runs;
  };
  void TakePiece(absl::Span<const uint8_t> payload) {
    const absl::StatusOr<FragmentHeader> fragment = DecodeFragmentHeader(payload);
    ASSERT_TRUE(fragment.ok()) << fragment.status();
    payload.remove_prefix(kFragmentHeaderBytes);
    Partial& partial = partial_[fragment->seq];
    partial.bytes.resize(fragment->record_bytes);
    std::copy(payload.begin(), payload.end(), partial.bytes.begin() + fragment->offset);
    const uint32_t end = fragment->offset + static_cast<uint32_t>(payload.size());
    ASSERT_TRUE(partial.runs.Add(fragment->offset, end));
    if (partial.runs.bytes() == fragment->record_bytes) records_[fragment->seq] = partial.bytes;
  }

  std::map<Seq, Partial> partial_;
  std::map<Seq, std::string> records_;
};

TEST(PackerTest, RandomRecordsComeOutInAnyOrderOfArrival) {
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    Random random(seed);
    const size_t datagram = kDatagramPayloadMin + random.Below(random.Chance(0.5) ? 2000 : 60000);
    std::vector<std::string> records(1 + random.Below(60));
    for (size_t i = 0; i < records.size(); ++i) {
      const size_t most = random.Chance(0.1) ? kMaxRecordBody : 700;
      records[i] = SomeRecord(i + 1, random.Below(most + 1));
    }
    const auto coding = random.Chance(0.5) ? Packer::Coding::kCompact : Packer::Coding::kFull;
    std::vector<std::string> datagrams = Datagrams(records, datagram, coding);
    // Some arrive twice.
    for (size_t i = 0, n = datagrams.size(); i < n; ++i) {
      if (random.Chance(0.1)) datagrams.push_back(datagrams[i]);
    }
    std::shuffle(datagrams.begin(), datagrams.end(), random);
    Receiver receiver;
    for (const std::string& one : datagrams) receiver.Take(one);
    ASSERT_EQ(receiver.records().size(), records.size());
    for (size_t i = 0; i < records.size(); ++i) {
      ASSERT_EQ(receiver.records().at(i + 1), records[i]) << "seq " << i + 1;
    }
  }
}

TEST(PackerTest, WithoutRecordsThereIsOneProbe) {
  const std::vector<std::string> datagrams = Datagrams({}, kDatagramPayloadDefault);
  ASSERT_EQ(datagrams.size(), 1u);
  const auto frame = DecodeFrameHeader(Bytes(datagrams[0]));
  ASSERT_TRUE(frame.ok()) << frame.status();
  EXPECT_EQ(frame->type, FrameType::kProbe);
  EXPECT_EQ(frame->issued_mark, 9u);
}

TEST(PackerTest, SmallRecordsShareADatagramUntilItIsFull) {
  const std::vector<std::string> records(9, SomeRecord(1, 88));  // 200 bytes each
  const std::vector<std::string> datagrams = Datagrams(records, kFrameHeaderBytes + 800);
  ASSERT_EQ(datagrams.size(), 3u);
  const auto count = [&](size_t i) { return DecodeFrameHeader(Bytes(datagrams[i]))->count; };
  EXPECT_EQ(count(0), 4);
  EXPECT_EQ(count(1), 4);
  EXPECT_EQ(count(2), 1);
}

TEST(PackerTest, RecordThatFillsADatagramExactlyIsWhole) {
  const size_t room = kDatagramPayloadDefault - kFrameHeaderBytes;
  const auto whole = Datagrams({SomeRecord(1, room - kRecordHeaderBytes)}, kDatagramPayloadDefault);
  ASSERT_EQ(whole.size(), 1u);
  EXPECT_EQ(DecodeFrameHeader(Bytes(whole[0]))->type, FrameType::kRecords);
  const auto split =
      Datagrams({SomeRecord(1, room - kRecordHeaderBytes + 1)}, kDatagramPayloadDefault);
  ASSERT_EQ(split.size(), 2u);
  EXPECT_EQ(DecodeFrameHeader(Bytes(split[0]))->type, FrameType::kFragment);
}

TEST(PackerTest, CompactRecordsFillADatagram) {
  const std::vector<std::string> records(9, SomeRecord(1, 128));
  const auto full = Datagrams(records, kDatagramPayloadDefault);
  EXPECT_EQ(full.size(), 2u);
  const auto compact = Datagrams(records, kDatagramPayloadDefault, Packer::Coding::kCompact);
  ASSERT_EQ(compact.size(), 1u);
  EXPECT_EQ(DecodeFrameHeader(Bytes(compact[0]))->type, FrameType::kCompact);
}

TEST(PackerTest, RecordThatFitsNoDatagramIsFragmentedInEitherCoding) {
  const auto split = Datagrams({SomeRecord(1, 10), SomeRecord(2, 4096), SomeRecord(3, 10)},
                               kDatagramPayloadDefault, Packer::Coding::kCompact);
  std::vector<FrameType> types;
  for (const std::string& one : split) types.push_back(DecodeFrameHeader(Bytes(one))->type);
  const auto piece = FrameType::kFragment;
  EXPECT_EQ(types, (std::vector<FrameType>{FrameType::kCompact, piece, piece, piece, piece,
                                           FrameType::kCompact}));
}

// A process damaged it in the window of a direct volume, which all its processes share.
TEST(PackerTest, DamagedRecordIsNotCompactAndGoesAlone) {
  std::vector<std::string> records;
  for (Seq seq = 1; seq <= 7; ++seq) records.push_back(SomeRecord(seq, 10));
  records[2][40] ^= 1;  // no header any more
  RecordHeader foreign;  // as SharedRecords::At sends one: of no volume
  foreign.seq = 5;
  records[4] = EncodeRecord(foreign, "");
  const auto split = Datagrams(records, kDatagramPayloadDefault, Packer::Coding::kCompact);
  std::vector<std::pair<FrameType, int>> frames;
  for (const std::string& one : split) {
    const FrameHeader frame = DecodeFrameHeader(Bytes(one)).value();
    frames.push_back({frame.type, frame.count});
  }
  const auto compact = FrameType::kCompact, full = FrameType::kRecords;
  EXPECT_EQ(frames, (std::vector<std::pair<FrameType, int>>{
                        {compact, 2}, {full, 1}, {compact, 1}, {full, 1}, {compact, 2}}));
}

TEST(PackerTest, NoDatagramHasMorePartsThanTheKernelTakes) {
  const std::vector<std::string> records(1000, SomeRecord(1, 1));
  const std::vector<std::string> datagrams = Datagrams(records, 200'000);
  EXPECT_EQ(datagrams.size(), 2u);
}

TEST(UnpackerTest, RecordsBeforeACorruptOneAreTaken) {
  std::string datagram = Datagrams({SomeRecord(1, 10), SomeRecord(2, 10)}, 1000).at(0);
  datagram.back() ^= 1;
  const FrameHeader frame = DecodeFrameHeader(Bytes(datagram)).value();
  std::vector<Seq> seqs;
  const auto keep = [&](const RecordHeader& record, absl::Span<const uint8_t>) {
    seqs.push_back(record.seq);
  };
  const auto payload = Bytes(datagram).subspan(kFrameHeaderBytes);
  EXPECT_EQ(UnpackRecords(frame, payload, keep), Unpacked::kCorruptRecord);
  EXPECT_EQ(seqs, std::vector<Seq>{1});
}

TEST(UnpackerTest, BytesBehindTheLastRecordAreNamed) {
  const std::string datagram = Datagrams({SomeRecord(1, 10), SomeRecord(2, 10)}, 1000).at(0);
  FrameHeader frame = DecodeFrameHeader(Bytes(datagram)).value();
  frame.count = 1;
  int taken = 0;
  const auto keep = [&](const RecordHeader&, absl::Span<const uint8_t>) { ++taken; };
  const auto payload = Bytes(datagram).subspan(kFrameHeaderBytes);
  EXPECT_EQ(UnpackRecords(frame, payload, keep), Unpacked::kTrailingBytes);
  EXPECT_EQ(taken, 1);
}

TEST(PieceRunsTest, OverlapsCountOnce) {
  PieceRuns runs;
  EXPECT_TRUE(runs.Add(10, 20));
  EXPECT_TRUE(runs.Add(30, 40));
  EXPECT_EQ(runs.bytes(), 20u);
  EXPECT_TRUE(runs.Add(15, 35));
  EXPECT_EQ(runs.bytes(), 30u);
  EXPECT_TRUE(runs.Add(12, 14));
  EXPECT_EQ(runs.bytes(), 30u);
  EXPECT_TRUE(runs.Add(0, 50));
  EXPECT_EQ(runs.bytes(), 50u);
}

TEST(PieceRunsTest, TooManyRunsAreRefusedAndGapsCanStillBeFilled) {
  PieceRuns runs;
  for (uint32_t i = 0; i < PieceRuns::kMaxRuns; ++i) ASSERT_TRUE(runs.Add(2 * i, 2 * i + 1));
  EXPECT_FALSE(runs.Add(10'000, 10'001));
  EXPECT_EQ(runs.bytes(), PieceRuns::kMaxRuns);
  EXPECT_TRUE(runs.Add(1, 2));
  EXPECT_EQ(runs.bytes(), PieceRuns::kMaxRuns + 1);
  EXPECT_TRUE(runs.Add(10'000, 10'001));
}

}  // namespace
}  // namespace salius
