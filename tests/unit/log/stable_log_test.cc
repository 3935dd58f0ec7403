// The stable log of docs/log-format.md: golden bytes, appends and cuts, refusals. Crashes and
// damage are in stable_log_crash_test.cc.
#include "log/stable_log.h"

#include <algorithm>
#include <deque>
#include <functional>
#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "common/bytes.h"
#include "common/crc32c.h"
#include "common/limits.h"
#include "common/random.h"
#include "gtest/gtest.h"
#include "log/stable_log_format.h"
#include "storage/backing.h"
#include "tests/unit/log/fail_writes.h"
#include "tests/unit/log/golden.h"
#include "tests/unit/log/stable_log_util.h"
#include "tests/unit/log/test_dir.h"

namespace salius {
namespace {

using Code = absl::StatusCode;

std::string Hex(const char* hex) { return absl::HexStringToBytes(hex); }
uint8_t* Data(std::string& bytes) { return reinterpret_cast<uint8_t*>(bytes.data()); }

constexpr uint64_t kGoldenSalt = 0x0123456789ABCDEF;

std::string GoldenHeaderSlot() {
  std::string slot = Hex(golden::kLogHeaderUsed);
  slot.resize(stable::kHeaderSlotBytes - 4, '\0');
  return slot + Hex(golden::kLogHeaderCrc);
}

stable::FileHeader GoldenHeader() {
  stable::FileHeader header;
  for (int i = 0; i < 16; ++i) header.volume.bytes[i] = static_cast<uint8_t>(0x10 + i);
  header.capacity = 1 << 20;
  header.generation = 3;
  header.start = 4096;
  header.salt = kGoldenSalt;
  header.reach = 8192;
  return header;
}

stable::EntryHeader GoldenEntry() {
  const std::string record = Hex(golden::kRecordWrite);
  stable::EntryHeader entry;
  entry.kind = stable::EntryKind::kRecord;
  entry.payload_bytes = static_cast<uint32_t>(record.size());
  entry.payload_check = LoadU32(record.data() + 108);
  entry.position = 4096;
  entry.synced = 4000;
  return entry;
}

std::string Encode(const stable::EntryHeader& entry) {
  std::string bytes(stable::kEntryHeaderBytes, '\0');
  stable::EncodeEntryHeader(entry, kGoldenSalt, Data(bytes));
  return bytes;
}

TEST(StableLogFormatTest, GoldenBytes) {
  EXPECT_EQ(stable::EncodeFileHeader(GoldenHeader()), GoldenHeaderSlot());
  EXPECT_EQ(*stable::DecodeFileHeader(AsBytes(GoldenHeaderSlot())), GoldenHeader());

  EXPECT_EQ(Encode(GoldenEntry()), Hex(golden::kLogEntryRecord));
  EXPECT_EQ(*stable::DecodeEntryHeader(AsBytes(Hex(golden::kLogEntryRecord)), kGoldenSalt),
            GoldenEntry());

  const Decision decision = {3, 99, 41, 58, 0xDEADBEEF};
  EXPECT_EQ(stable::EncodeDecision(decision), Hex(golden::kDecision));
  EXPECT_EQ(*stable::DecodeDecision(AsBytes(Hex(golden::kDecision))), decision);
  stable::EntryHeader entry;
  entry.kind = stable::EntryKind::kDecision;
  entry.payload_bytes = stable::kDecisionBytes;
  entry.payload_check = Crc32c(AsBytes(Hex(golden::kDecision)));
  entry.position = 4256;
  entry.synced = 4096;
  EXPECT_EQ(Encode(entry), Hex(golden::kLogEntryDecision));

  entry = {stable::EntryKind::kPad, 1000, 8192, 8000, 0};
  EXPECT_EQ(Encode(entry), Hex(golden::kLogEntryPad));
}

Code HeaderCode(const std::string& slot) {
  return stable::DecodeFileHeader(AsBytes(slot)).status().code();
}

TEST(StableLogFormatTest, DamagedFileHeaderIsDataLoss) {
  EXPECT_EQ(HeaderCode(GoldenHeaderSlot().substr(1)), Code::kDataLoss);
  for (size_t bit = 0; bit < stable::kHeaderSlotBytes * 8; bit += 11) {
    std::string slot = GoldenHeaderSlot();
    slot[bit / 8] = static_cast<char>(slot[bit / 8] ^ (1 << (bit % 8)));
    EXPECT_EQ(HeaderCode(slot), Code::kDataLoss) << bit;
  }
}

TEST(StableLogFormatTest, FileHeaderThatNoProgramWritesIsRefused) {
  const auto code = [](const std::function<void(uint8_t*)>& change) {
    std::string slot = GoldenHeaderSlot();
    change(Data(slot));
    StoreU32(Data(slot) + 4092, Crc32c(AsBytes(slot).first(4092)));
    return HeaderCode(slot);
  };
  EXPECT_EQ(code([](uint8_t*) {}), Code::kOk);
  EXPECT_EQ(code([](uint8_t* b) { b[0] = 0; }), Code::kInvalidArgument);   // magic
  EXPECT_EQ(code([](uint8_t* b) { b[4] = 3; }), Code::kInvalidArgument);   // version
  EXPECT_EQ(code([](uint8_t* b) { b[6] = 1; }), Code::kInvalidArgument);   // reserved
  EXPECT_EQ(code([](uint8_t* b) { b[24] = 8; }), Code::kInvalidArgument);  // capacity, odd
  EXPECT_EQ(code([](uint8_t* b) { StoreU64(b + 24, 4096); }), Code::kInvalidArgument);
  EXPECT_EQ(code([](uint8_t* b) { StoreU64(b + 24, uint64_t{1} << 41); }), Code::kInvalidArgument);
  EXPECT_EQ(code([](uint8_t* b) { b[32] = 0; }), Code::kInvalidArgument);  // generation 0
  EXPECT_EQ(code([](uint8_t* b) { StoreU64(b + 32, UINT64_MAX); }), Code::kInvalidArgument);
  EXPECT_EQ(code([](uint8_t* b) { b[40] = 4; }), Code::kInvalidArgument);  // start not aligned
  EXPECT_EQ(code([](uint8_t* b) { b[47] = 0x80; }), Code::kInvalidArgument);
  EXPECT_EQ(code([](uint8_t* b) { b[56] = 1; }), Code::kInvalidArgument);  // reach not aligned
  EXPECT_EQ(code([](uint8_t* b) { StoreU64(b + 56, 4088); }), Code::kInvalidArgument);  // < start
  EXPECT_EQ(code([](uint8_t* b) { StoreU64(b + 56, 4096 + (1 << 20) + 8); }),
            Code::kInvalidArgument);                                       // more than a lap
  EXPECT_EQ(code([](uint8_t* b) { b[64] = 1; }), Code::kInvalidArgument);  // unused
  EXPECT_EQ(code([](uint8_t* b) { b[4091] = 1; }), Code::kInvalidArgument);
}

TEST(StableLogFormatTest, DamagedEntryHeaderIsRefused) {
  const std::string good = Encode(GoldenEntry());
  for (size_t bit = 0; bit < good.size() * 8; ++bit) {
    std::string bad = good;
    bad[bit / 8] = static_cast<char>(bad[bit / 8] ^ (1 << (bit % 8)));
    EXPECT_EQ(stable::DecodeEntryHeader(AsBytes(bad), kGoldenSalt).status().code(),
              Code::kDataLoss);
  }
  EXPECT_EQ(stable::DecodeEntryHeader(AsBytes(good), kGoldenSalt + 1).status().code(),
            Code::kDataLoss)
      << "an entry of another log";
  EXPECT_EQ(stable::DecodeEntryHeader(AsBytes(good).first(39), kGoldenSalt).status().code(),
            Code::kOutOfRange);
}

TEST(StableLogFormatTest, EntryHeaderThatNoProgramWritesIsRefused) {
  const auto code = [](const std::function<void(uint8_t*)>& change) {
    std::string bytes = Encode(GoldenEntry());
    change(Data(bytes));
    std::string salted(8, '\0');
    StoreU64(Data(salted), kGoldenSalt);
    salted += bytes.substr(0, 36);
    StoreU32(Data(bytes) + 36, Crc32c(AsBytes(salted)));
    return stable::DecodeEntryHeader(AsBytes(bytes), kGoldenSalt).status().code();
  };
  EXPECT_EQ(code([](uint8_t*) {}), Code::kOk);
  EXPECT_EQ(code([](uint8_t* b) { b[0] = 0; }), Code::kInvalidArgument);
  EXPECT_EQ(code([](uint8_t* b) { b[4] = 0; }), Code::kInvalidArgument);
  EXPECT_EQ(code([](uint8_t* b) { b[4] = 4; }), Code::kInvalidArgument);
  EXPECT_EQ(code([](uint8_t* b) { b[6] = 1; }), Code::kInvalidArgument);
  EXPECT_EQ(code([](uint8_t* b) { b[32] = 1; }), Code::kInvalidArgument);
  EXPECT_EQ(code([](uint8_t* b) { b[16] = 1; }), Code::kInvalidArgument);               // position
  EXPECT_EQ(code([](uint8_t* b) { StoreU64(b + 24, 4097); }), Code::kInvalidArgument);  // synced
}

TEST(StableLogFormatTest, DamagedDecisionIsRefused) {
  std::string bytes = Hex(golden::kDecision);
  EXPECT_EQ(stable::DecodeDecision(AsBytes(bytes).first(39)).status().code(),
            Code::kInvalidArgument);
  bytes[8] ^= 1;
  EXPECT_EQ(stable::DecodeDecision(AsBytes(bytes)).status().code(), Code::kDataLoss);
}

TEST(StableLogFormatTest, DecisionNearTheEndOf64BitsIsRefused) {
  for (int field = 0; field < 4; ++field) {
    uint64_t values[4] = {5, 20, 10, 10};
    values[field] = kMaxCount + 1;
    const Decision decision{values[0], values[1], values[2], values[3], 0};
    EXPECT_EQ(stable::DecodeDecision(AsBytes(stable::EncodeDecision(decision))).status().code(),
              Code::kInvalidArgument);
  }
}

TEST(StableLogTest, NewLogIsEmpty) {
  TestDir dir;
  ASSERT_TRUE(StableLog::Create(LinuxBacking(), dir.fd(), kLogName, TestVolume(), kMiB).ok());
  StableLog::Contents contents;
  auto log = StableLog::Open(LinuxBacking(), dir.fd(), kLogName, TestVolume(), &contents);
  ASSERT_TRUE(log.ok()) << log.status();
  EXPECT_EQ(log->capacity(), kMiB);
  EXPECT_EQ(log->used_bytes(), 0u);
  EXPECT_EQ(log->free_bytes(), kMiB);
  EXPECT_TRUE(contents.records.empty());
  EXPECT_TRUE(contents.decisions.empty());
  EXPECT_EQ(contents.torn_bytes, 0u);
}

TEST(StableLogTest, RecordsAndDecisionsAreReadBackInOrder) {
  TestDir dir;
  std::vector<std::string> records;
  const Decision decision = {3, 4, 0, 4, 77};
  {
    auto log = StableLog::Create(LinuxBacking(), dir.fd(), kLogName, TestVolume(), kMiB);
    ASSERT_TRUE(log.ok()) << log.status();
    for (Seq seq = 1; seq <= 4; ++seq) records.push_back(TestRecord(3, seq, seq * 1000));
    ASSERT_TRUE(AppendAll(*log, {records[0]}).ok());
    ASSERT_TRUE(AppendAll(*log, {records[1], records[2], records[3]}).ok());
    ASSERT_TRUE(log->AppendDecision(decision).ok());
    ASSERT_TRUE(log->Append({}).ok());
  }
  StableLog::Contents contents;
  auto log = StableLog::Open(LinuxBacking(), dir.fd(), kLogName, TestVolume(), &contents);
  ASSERT_TRUE(log.ok()) << log.status();
  EXPECT_EQ(contents.records, records);
  EXPECT_EQ(contents.decisions, std::vector<Decision>{decision});
  EXPECT_EQ(contents.torn_bytes, 0u);
  uint64_t used = StableLog::EntryBytes(stable::kDecisionBytes);
  for (const std::string& record : records) used += StableLog::EntryBytes(record.size());
  EXPECT_EQ(log->used_bytes(), used);
}

TEST(StableLogTest, HeaderAndBodyMayLieApart) {
  TestDir dir;
  const std::string record = TestRecord(1, 1, 999);
  {
    auto log = StableLog::Create(LinuxBacking(), dir.fd(), kLogName, TestVolume(), kMiB);
    ASSERT_TRUE(log.ok());
    const auto bytes = AsBytes(record);
    ASSERT_TRUE(
        log->Append({{bytes.first(kRecordHeaderBytes), bytes.subspan(kRecordHeaderBytes)}}).ok());
  }
  EXPECT_EQ(ReadLog(dir).records, std::vector<std::string>{record});
}

TEST(StableLogTest, BatchOfMoreThanTheKernelTakesAtOnceIsWritten) {
  TestDir dir;
  std::vector<std::string> records;
  for (Seq seq = 1; seq <= 1500; ++seq) records.push_back(TestRecord(1, seq, seq % 50));
  {
    auto log = StableLog::Create(LinuxBacking(), dir.fd(), kLogName, TestVolume(), kMiB);
    ASSERT_TRUE(log.ok());
    ASSERT_TRUE(AppendAll(*log, records).ok());
  }
  EXPECT_EQ(ReadLog(dir).records, records);
}

TEST(StableLogTest, CreateRefuses) {
  TestDir dir;
  const auto create = [&](uint64_t capacity) {
    return StableLog::Create(LinuxBacking(), dir.fd(), kLogName, TestVolume(), capacity)
        .status()
        .code();
  };
  EXPECT_EQ(create(kMiB - 4096), Code::kInvalidArgument);
  EXPECT_EQ(create(kMiB + 1), Code::kInvalidArgument);
  EXPECT_EQ(create(uint64_t{1} << 50), Code::kInvalidArgument);
  EXPECT_EQ(create(kMiB), Code::kOk);
  EXPECT_EQ(create(kMiB), Code::kAlreadyExists);
}

TEST(StableLogTest, FailedCreateLeavesNothing) {
  TestDir dir;
  {
    const FailWrites fail(kMiB / 2);
    EXPECT_FALSE(StableLog::Create(LinuxBacking(), dir.fd(), kLogName, TestVolume(), kMiB).ok());
  }
  EXPECT_EQ(
      StableLog::Open(LinuxBacking(), dir.fd(), kLogName, TestVolume(), nullptr).status().code(),
      Code::kNotFound);
}

TEST(StableLogTest, OpenRefusesAMissingFileAndAnotherVolumes) {
  TestDir dir;
  EXPECT_EQ(
      StableLog::Open(LinuxBacking(), dir.fd(), kLogName, TestVolume(), nullptr).status().code(),
      Code::kNotFound);
  ASSERT_TRUE(StableLog::Create(LinuxBacking(), dir.fd(), kLogName, TestVolume(), kMiB).ok());
  VolumeId other = TestVolume();
  other.bytes[3] ^= 1;
  EXPECT_EQ(StableLog::Open(LinuxBacking(), dir.fd(), kLogName, other, nullptr).status().code(),
            Code::kDataLoss);
}

TEST(StableLogTest, AppendRefusesForeignRecords) {
  TestDir dir;
  auto log = StableLog::Create(LinuxBacking(), dir.fd(), kLogName, TestVolume(), kMiB);
  ASSERT_TRUE(log.ok());
  const std::string record = TestRecord(1, 1, 10);
  EXPECT_EQ(AppendAll(*log, {record.substr(0, 50)}).code(), Code::kOutOfRange);
  EXPECT_EQ(AppendAll(*log, {record + "x"}).code(), Code::kInvalidArgument);
  RecordHeader header;
  header.volume.bytes[0] = 9;
  EXPECT_EQ(AppendAll(*log, {EncodeRecord(header, "")}).code(), Code::kInvalidArgument);
  std::string damaged = record;
  damaged[20] ^= 1;
  EXPECT_EQ(AppendAll(*log, {damaged}).code(), Code::kDataLoss);
  // None of these harmed the log.
  EXPECT_TRUE(AppendAll(*log, {record}).ok());
}

TEST(StableLogTest, FullLogSaysSoAndStaysUsable) {
  TestDir dir;
  auto log = StableLog::Create(LinuxBacking(), dir.fd(), kLogName, TestVolume(), kMiB);
  ASSERT_TRUE(log.ok());
  Seq seq = 0;
  absl::Status status;
  while (true) {
    status = AppendAll(*log, {TestRecord(1, seq + 1, 10000)});
    if (!status.ok()) break;
    ++seq;
  }
  EXPECT_EQ(status.code(), Code::kResourceExhausted);
  EXPECT_EQ(seq, kMiB / StableLog::EntryBytes(kRecordHeaderBytes + 10000));
  EXPECT_LT(log->free_bytes(), StableLog::EntryBytes(kRecordHeaderBytes + 10000));
  EXPECT_TRUE(AppendAll(*log, {TestRecord(1, seq + 1, 0)}).ok());
  ASSERT_TRUE(log->Cut(1, 2).ok());
  EXPECT_TRUE(AppendAll(*log, {TestRecord(1, seq + 2, 10000)}).ok());
  EXPECT_EQ(ReadLog(dir).records.size(), seq);
}

TEST(StableLogTest, CutStopsAtTheFirstEntryThatMustStay) {
  TestDir dir;
  auto log = StableLog::Create(LinuxBacking(), dir.fd(), kLogName, TestVolume(), kMiB);
  ASSERT_TRUE(log.ok());
  const auto used_by = [](size_t records, size_t decisions) {
    return records * StableLog::EntryBytes(kRecordHeaderBytes + 100) +
           decisions * StableLog::EntryBytes(stable::kDecisionBytes);
  };
  ASSERT_TRUE(AppendAll(*log, {TestRecord(3, 5, 100)}).ok());
  ASSERT_TRUE(log->AppendDecision({3, 5, 4, 1, 0}).ok());
  ASSERT_TRUE(
      AppendAll(*log, {TestRecord(4, 1, 100), TestRecord(4, 2, 100), TestRecord(4, 3, 100)}).ok());
  ASSERT_TRUE(log->Cut(3, 4).ok());
  EXPECT_EQ(log->used_bytes(), used_by(4, 1));
  ASSERT_TRUE(log->Cut(3, 5).ok());  // the record, but not epoch 3's decision
  EXPECT_EQ(log->used_bytes(), used_by(3, 1));
  ASSERT_TRUE(log->Cut(4, 0).ok());
  EXPECT_EQ(log->used_bytes(), used_by(3, 0));
  ASSERT_TRUE(log->Cut(4, 2).ok());
  EXPECT_EQ(log->used_bytes(), used_by(1, 0));
  ASSERT_TRUE(log->Cut(5, 0).ok());
  EXPECT_EQ(log->used_bytes(), 0u);
}

TEST(StableLogTest, AfterAFailedAppendItRefusesEverything) {
  TestDir dir;
  auto log = StableLog::Create(LinuxBacking(), dir.fd(), kLogName, TestVolume(), kMiB);
  ASSERT_TRUE(log.ok());
  ASSERT_TRUE(AppendAll(*log, {TestRecord(1, 1, 100)}).ok());
  {
    const FailWrites fail(4096);
    EXPECT_EQ(AppendAll(*log, {TestRecord(1, 2, 100)}).code(), Code::kOutOfRange);  // EFBIG
  }
  EXPECT_EQ(AppendAll(*log, {TestRecord(1, 2, 100)}).code(), Code::kFailedPrecondition);
  EXPECT_EQ(log->AppendDecision({1, 1, 0, 1, 0}).code(), Code::kFailedPrecondition);
  EXPECT_EQ(log->Cut(1, 1).code(), Code::kFailedPrecondition);
  EXPECT_EQ(log->free_bytes(), 0u);
  EXPECT_EQ(ReadLog(dir).records.size(), 1u);
}

// Compares random appends, cuts and re-opens with a list in memory. Records that were cut may come
// back when the log is opened again (its start is written when the space is needed). Records that
// were kept must come back.
class StableLogModelTest : public testing::TestWithParam<uint64_t> {};

TEST_P(StableLogModelTest, KeepsEverythingThatWasNotCut) {
  TestDir dir;
  Random random(GetParam());
  auto log = StableLog::Create(LinuxBacking(), dir.fd(), kLogName, TestVolume(), kMiB);
  ASSERT_TRUE(log.ok());
  std::deque<std::string> kept;
  std::deque<std::string> cut;  // in order; the last of them may be seen again
  Epoch epoch = 1;
  Seq seq = 0;
  Seq checkpoint = 0;
  uint64_t written = 0;
  int reopened = 0;
  while (written < 12 * kMiB || reopened < 10) {
    const uint64_t dice = random.Below(100);
    if (dice < 70) {
      std::vector<std::string> batch(1 + random.Below(8));
      uint64_t need = 0;
      for (std::string& record : batch) {
        const uint64_t size = random.Chance(0.1) ? random.Below(kMaxRecordBody + 1)
                                                 : random.Below(random.Chance(0.5) ? 64 : 6000);
        record = TestRecord(epoch, ++seq, size);
        need += StableLog::EntryBytes(record.size());
      }
      const bool must_fit = need <= log->free_bytes();
      const absl::Status status = AppendAll(*log, batch);
      ASSERT_TRUE(status.ok() || !must_fit) << status << " free " << log->free_bytes();
      if (status.ok()) {
        written += need;
        kept.insert(kept.end(), batch.begin(), batch.end());
      } else {
        ASSERT_EQ(status.code(), Code::kResourceExhausted);
        seq -= batch.size();
        // Make room, as a checkpoint does.
        checkpoint = seq;
      }
    } else if (dice < 90) {
      checkpoint += random.Below(seq - checkpoint + 1);
    } else if (dice < 93) {
      ++epoch;
      seq = checkpoint = 0;
    } else if (dice < 96) {
      StableLog::Contents contents;
      auto again = StableLog::Open(LinuxBacking(), dir.fd(), kLogName, TestVolume(), &contents);
      ASSERT_TRUE(again.ok()) << again.status();
      ASSERT_GE(contents.records.size(), kept.size());
      EXPECT_EQ(contents.torn_bytes, 0u);
      std::deque<std::string> expected = kept;
      while (expected.size() < contents.records.size()) {
        ASSERT_FALSE(cut.empty());
        expected.push_front(cut.back());
        cut.pop_back();
      }
      ASSERT_TRUE(std::equal(expected.begin(), expected.end(), contents.records.begin()));
      kept = expected;
      *log = std::move(*again);
      ++reopened;
      continue;
    }
    ASSERT_TRUE(log->Cut(epoch, checkpoint).ok());
    while (!kept.empty()) {
      const auto header = DecodeRecordHeader(AsBytes(kept.front()));
      ASSERT_TRUE(header.ok());
      if (header->epoch == epoch && header->seq > checkpoint) break;
      cut.push_back(kept.front());
      kept.pop_front();
    }
    while (cut.size() > 5000) cut.pop_front();
  }
  EXPECT_LE(log->used_bytes(), log->capacity());
}

INSTANTIATE_TEST_SUITE_P(Seeds, StableLogModelTest, testing::Range(uint64_t{1}, uint64_t{7}));

}  // namespace
}  // namespace salius
