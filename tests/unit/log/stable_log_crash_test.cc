// A stable log after a crash or damage: a torn tail is cut off, damage in the middle is DATA_LOSS,
// and a torn entry never comes back.
#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_format.h"
#include "common/bytes.h"
#include "common/crc32c.h"
#include "common/random.h"
#include "gtest/gtest.h"
#include "log/stable_log.h"
#include "log/stable_log_format.h"
#include "storage/backing.h"
#include "storage/fs_calls.h"
#include "tests/unit/log/fail_writes.h"
#include "tests/unit/log/stable_log_util.h"
#include "tests/unit/log/test_dir.h"

namespace salius {
namespace {

using Code = absl::StatusCode;
using Records = std::vector<std::string>;

// A log in memory whose file the test cuts, mixes and damages.
class StableLogCrashTest : public testing::Test {
 protected:
  void SetUp() override {
    auto log = StableLog::Create(LinuxBacking(), dir_.fd(), kLogName, TestVolume(), kMiB);
    ASSERT_TRUE(log.ok()) << log.status();
    log_.emplace(std::move(*log));
    raw_ = dir_.Open(kLogName, O_RDWR);
  }

  std::string Image() const {
    std::string image(stable::kRingAt + kMiB, '\0');
    SALIUS_CHECK(*PreadFull(raw_.get(), image.data(), image.size(), 0) == image.size());
    return image;
  }
  void Put(const std::string& bytes, uint64_t at) {
    SALIUS_CHECK_OK(PwriteFull(raw_.get(), AsBytes(bytes), static_cast<int64_t>(at)));
  }
  void Flip(uint64_t at) {
    std::string byte(1, '\0');
    SALIUS_CHECK(*PreadFull(raw_.get(), byte.data(), 1, static_cast<int64_t>(at)) == 1);
    byte[0] = static_cast<char>(byte[0] ^ 0x10);
    Put(byte, at);
  }
  absl::Status OpenStatus() {
    return StableLog::Open(LinuxBacking(), dir_.fd(), kLogName, TestVolume(), nullptr).status();
  }
  // Opens the log again and appends.
  void ReopenAndAppend(const Records& records) {
    auto log = StableLog::Open(LinuxBacking(), dir_.fd(), kLogName, TestVolume(), nullptr);
    SALIUS_CHECK_OK(log);
    SALIUS_CHECK_OK(AppendAll(*log, records));
  }

  TestDir dir_{kInMemory};
  std::optional<StableLog> log_;
  UniqueFd raw_;
};

TEST_F(StableLogCrashTest, BatchTornAtAnyByteIsCutThereAndNothingElse) {  // R9
  const Records base = {TestRecord(1, 1, 300), TestRecord(1, 2, 5)};
  ASSERT_TRUE(AppendAll(*log_, base).ok());
  const uint64_t begin = stable::kRingAt + log_->used_bytes();
  const std::string before = Image();
  const Records batch = {TestRecord(1, 3, 50), TestRecord(1, 4, 0), TestRecord(1, 5, 77)};
  ASSERT_TRUE(AppendAll(*log_, batch).ok());
  const uint64_t end = stable::kRingAt + log_->used_bytes();
  const std::string after = Image();

  std::vector<uint64_t> ends;  // where the batch's entries end
  uint64_t at = begin;
  for (const std::string& record : batch)
    ends.push_back(at += StableLog::EntryBytes(record.size()));
  for (uint64_t cut = begin; cut <= end; ++cut) {
    Put(after.substr(begin, cut - begin) + before.substr(cut, end - cut), begin);
    Records expected = base;
    for (size_t i = 0; i < batch.size(); ++i) {
      // Zero padding at an entry's end looks the same as bytes that were not written.
      const std::string mixed = after.substr(begin, cut - begin) + before.substr(cut, end - cut);
      if (mixed.substr(0, ends[i] - begin) == after.substr(begin, ends[i] - begin)) {
        expected.push_back(batch[i]);
      }
    }
    const StableLog::Contents contents = ReadLog(dir_);
    ASSERT_EQ(contents.records, expected) << "cut at " << cut;
    // The log can be appended to.
    ReopenAndAppend({TestRecord(1, 9, 50)});
    expected.push_back(TestRecord(1, 9, 50));
    ASSERT_EQ(ReadLog(dir_).records, expected) << "appended after a cut at " << cut;
    Put(before.substr(begin, end + 400 - begin), begin);
  }
}

TEST_F(StableLogCrashTest, TornBatchNeverComesBackBehindANewEntryOfTheSameSize) {
  const Records base = {TestRecord(1, 1, 10)};
  ASSERT_TRUE(AppendAll(*log_, base).ok());
  const uint64_t begin = stable::kRingAt + log_->used_bytes();
  const Records batch = {TestRecord(1, 2, 100), TestRecord(1, 3, 100), TestRecord(1, 4, 100)};
  ASSERT_TRUE(AppendAll(*log_, batch).ok());
  // The batch's first bytes never reached the disk, the rest did.
  Put(std::string(40, '\0'), begin);
  const StableLog::Contents contents = ReadLog(dir_);
  EXPECT_EQ(contents.records, base);
  EXPECT_EQ(contents.torn_bytes, 3 * StableLog::EntryBytes(kRecordHeaderBytes + 100));
  ReopenAndAppend({TestRecord(2, 1, 100)});
  EXPECT_EQ(ReadLog(dir_).records, (Records{base[0], TestRecord(2, 1, 100)}));
}

TEST_F(StableLogCrashTest, SectorsOfABatchInAnyOrderGiveAPrefixOfIt) {
  const Records base = {TestRecord(1, 1, 700)};
  ASSERT_TRUE(AppendAll(*log_, base).ok());
  const std::string before = Image();
  Records batch;
  for (Seq seq = 2; seq < 12; ++seq) batch.push_back(TestRecord(1, seq, 37 * seq));
  ASSERT_TRUE(AppendAll(*log_, batch).ok());
  const std::string after = Image();
  constexpr uint64_t kSector = 512;
  const uint64_t end = stable::kRingAt + log_->used_bytes();
  Random random(3);
  for (int round = 0; round < 300; ++round) {
    for (uint64_t at = stable::kRingAt; at < end; at += kSector) {
      Put((random.Chance(0.5) ? after : before).substr(at, kSector), at);
    }
    const Records got = ReadLog(dir_).records;
    ASSERT_GE(got.size(), 1u);
    EXPECT_EQ(got[0], base[0]);
    ASSERT_LE(got.size(), 1 + batch.size());
    EXPECT_TRUE(std::equal(got.begin() + 1, got.end(), batch.begin()));
    // Append a new, short tail: no entry of the torn batch may follow it.
    ReopenAndAppend({TestRecord(2, 1, 0)});
    const Records then = ReadLog(dir_).records;
    ASSERT_EQ(then.size(), got.size() + 1);
    EXPECT_EQ(then.back(), TestRecord(2, 1, 0));
  }
}

TEST_F(StableLogCrashTest, DamageInTheMiddleIsDataLossThatNamesTheOffset) {  // R8
  std::vector<uint64_t> begins;
  for (Seq seq = 1; seq <= 6; ++seq) {
    begins.push_back(stable::kRingAt + log_->used_bytes());
    ASSERT_TRUE(AppendAll(*log_, {TestRecord(1, seq, 200)}).ok());
  }
  ASSERT_TRUE(OpenStatus().ok());
  // Flip every byte of the first five entries (the sixth is the last batch: see the next test).
  for (size_t entry = 0; entry < 5; ++entry) {
    for (uint64_t at = begins[entry]; at < begins[entry + 1]; at += 3) {
      Flip(at);
      const absl::Status status = OpenStatus();
      ASSERT_EQ(status.code(), Code::kDataLoss) << "byte " << at;
      EXPECT_NE(status.message().find(absl::StrFormat("offset %d ", begins[entry])),
                absl::string_view::npos)
          << status;
      Flip(at);
    }
  }
  EXPECT_TRUE(OpenStatus().ok());
}

TEST_F(StableLogCrashTest, DamageOfTheLastBatchLooksLikeATornTail) {
  ASSERT_TRUE(AppendAll(*log_, {TestRecord(1, 1, 200)}).ok());
  const uint64_t begin = stable::kRingAt + log_->used_bytes();
  ASSERT_TRUE(AppendAll(*log_, {TestRecord(1, 2, 200)}).ok());
  Flip(begin + 100);
  const StableLog::Contents contents = ReadLog(dir_);
  EXPECT_EQ(contents.records, Records{TestRecord(1, 1, 200)});
  EXPECT_EQ(contents.torn_bytes, StableLog::EntryBytes(kRecordHeaderBytes + 200));
}

TEST_F(StableLogCrashTest, DamagedDecisionBeforeLaterEntriesIsDataLoss) {
  ASSERT_TRUE(log_->AppendDecision({1, 2, 0, 2, 5}).ok());
  ASSERT_TRUE(AppendAll(*log_, {TestRecord(2, 1, 20)}).ok());
  Flip(stable::kRingAt + stable::kEntryHeaderBytes + 8);
  EXPECT_EQ(OpenStatus().code(), Code::kDataLoss);
}

TEST_F(StableLogCrashTest, NonZeroPaddingIsDamage) {
  ASSERT_TRUE(AppendAll(*log_, {TestRecord(1, 1, 1)}).ok());
  ASSERT_TRUE(AppendAll(*log_, {TestRecord(1, 2, 1)}).ok());
  Flip(stable::kRingAt + StableLog::EntryBytes(kRecordHeaderBytes + 1) - 1);
  EXPECT_EQ(OpenStatus().code(), Code::kDataLoss);
}

TEST_F(StableLogCrashTest, PayloadOfAnotherEntryIsNotTaken) {
  // The header's sector was written and the payload's was not, with an older record there.
  ASSERT_TRUE(AppendAll(*log_, {TestRecord(1, 1, 200)}).ok());
  Put(TestRecord(1, 7, 200), stable::kRingAt + stable::kEntryHeaderBytes);
  EXPECT_TRUE(ReadLog(dir_).records.empty());
}

TEST_F(StableLogCrashTest, RecordOfALaterVersionIsRefusedNotTakenForATornTail) {
  ASSERT_TRUE(AppendAll(*log_, {TestRecord(1, 1, 8)}).ok());
  std::string image = Image();
  auto* const record =
      reinterpret_cast<uint8_t*>(image.data()) + stable::kRingAt + stable::kEntryHeaderBytes;
  StoreU16(record + 6, 200);  // an operation of the future
  StoreU32(record + 108, Crc32c({record, 108}));
  Put(image.substr(stable::kRingAt, 400), stable::kRingAt);
  EXPECT_EQ(OpenStatus().code(), Code::kInvalidArgument);
}

TEST_F(StableLogCrashTest, BytesThatAUserStoredAreNeverTakenForAnEntry) {
  // Use the image of a whole log with later positions as the body of a record: the salt differs.
  TestDir other(kInMemory);
  auto log = StableLog::Create(LinuxBacking(), other.fd(), kLogName, TestVolume(), kMiB);
  ASSERT_TRUE(log.ok());
  for (Seq seq = 1; seq <= 100; ++seq) ASSERT_TRUE(AppendAll(*log, {TestRecord(9, seq, 0)}).ok());
  std::string stolen(20000, '\0');
  const UniqueFd raw = other.Open(kLogName, O_RDONLY);
  ASSERT_TRUE(PreadFull(raw.get(), stolen.data(), stolen.size(), stable::kRingAt).ok());
  RecordHeader header;
  header.volume = TestVolume();
  header.epoch = 1;
  for (int shift = 0; shift < 40; shift += 8) {
    header.seq = 1 + shift;
    ASSERT_TRUE(AppendAll(*log_, {EncodeRecord(header, stolen.substr(shift))}).ok());
  }
  const uint64_t last = log_->used_bytes() - StableLog::EntryBytes(kRecordHeaderBytes + 19968);
  Flip(stable::kRingAt + last + 100);
  EXPECT_EQ(ReadLog(dir_).records.size(), 4u);
}

TEST_F(StableLogCrashTest, TornHeaderSlotLeavesTheOtherOne) {
  ASSERT_TRUE(AppendAll(*log_, {TestRecord(1, 1, 10)}).ok());
  for (size_t slot = 0; slot < 2; ++slot) {
    const std::string image = Image();
    Put(std::string(300, 'j'), slot * stable::kHeaderSlotBytes + 1000);
    EXPECT_EQ(ReadLog(dir_).records.size(), 1u);
    Put(image.substr(0, stable::kRingAt), 0);
  }
}

TEST_F(StableLogCrashTest, BothHeaderSlotsBadIsDataLossWithBothReasons) {
  Flip(10);
  Flip(stable::kHeaderSlotBytes + 10);
  const absl::Status status = OpenStatus();
  EXPECT_EQ(status.code(), Code::kDataLoss);
  EXPECT_NE(status.message().find("slot 0"), absl::string_view::npos);
  EXPECT_NE(status.message().find("slot 1"), absl::string_view::npos);
}

TEST_F(StableLogCrashTest, HeaderSlotOfAnUnknownVersionOrPlaceIsRefused) {
  const std::string image = Image();
  std::string slot = image.substr(0, stable::kHeaderSlotBytes);
  slot[4] = 9;
  StoreU32(slot.data() + 4092, Crc32c(AsBytes(slot).first(4092)));
  Put(slot, 0);
  EXPECT_EQ(OpenStatus().code(), Code::kInvalidArgument);
  Put(image.substr(stable::kHeaderSlotBytes, stable::kHeaderSlotBytes), 0);
  EXPECT_EQ(OpenStatus().code(), Code::kInvalidArgument);
}

TEST_F(StableLogCrashTest, FileThatIsTooShortIsDataLoss) {
  ASSERT_TRUE(fs::Truncate(raw_.get(), stable::kRingAt + kMiB - 1).ok());
  EXPECT_EQ(OpenStatus().code(), Code::kDataLoss);
  ASSERT_TRUE(fs::Truncate(raw_.get(), stable::kRingAt + 1000).ok());
  EXPECT_EQ(OpenStatus().code(), Code::kDataLoss);
  ASSERT_TRUE(fs::Truncate(raw_.get(), 0).ok());
  EXPECT_EQ(OpenStatus().code(), Code::kDataLoss);
}

// Logs that are much larger than the part that was ever written.
class StableLogReachTest : public testing::Test {
 protected:
  static constexpr uint64_t kCapacity = 16 * kMiB;
  static constexpr uint64_t kStep = stable::ReachStep(kCapacity);
  static constexpr uint64_t kBody = 60000;

  void SetUp() override {
    auto log = StableLog::Create(LinuxBacking(), dir_.fd(), kLogName, TestVolume(), kCapacity);
    ASSERT_TRUE(log.ok()) << log.status();
    log_.emplace(std::move(*log));
    raw_ = dir_.Open(kLogName, O_RDWR);
  }
  // Appends single records until `bytes` of the log are used.
  void Fill(uint64_t bytes) {
    while (log_->used_bytes() < bytes) {
      SALIUS_CHECK_OK(AppendAll(*log_, {TestRecord(1, ++seq_, kBody)}));
    }
  }
  stable::FileHeader HeaderOf(size_t slot) const {
    std::string bytes(stable::kHeaderSlotBytes, '\0');
    SALIUS_CHECK(*PreadFull(raw_.get(), bytes.data(), bytes.size(),
                            static_cast<int64_t>(slot * bytes.size())) == bytes.size());
    auto header = stable::DecodeFileHeader(AsBytes(bytes));
    SALIUS_CHECK_OK(header);
    return *header;
  }
  stable::FileHeader Newest() const {
    const auto a = HeaderOf(0), b = HeaderOf(1);
    return a.generation > b.generation ? a : b;
  }
  void Put(const std::string& bytes, uint64_t at) {
    SALIUS_CHECK_OK(PwriteFull(raw_.get(), AsBytes(bytes), static_cast<int64_t>(at)));
  }
  // Writes a valid entry header at `position`, as of a later batch. It proves that everything
  // before it was synced.
  void PutWitness(uint64_t position) {
    stable::EntryHeader entry;
    entry.kind = stable::EntryKind::kPad;
    entry.position = entry.synced = position;
    std::string bytes(stable::kEntryHeaderBytes, '\0');
    stable::EncodeEntryHeader(entry, Newest().salt, reinterpret_cast<uint8_t*>(bytes.data()));
    Put(bytes, stable::kRingAt + position);
  }
  absl::Status OpenStatus() {
    return StableLog::Open(LinuxBacking(), dir_.fd(), kLogName, TestVolume(), nullptr).status();
  }

  TestDir dir_{kInMemory};
  std::optional<StableLog> log_;
  UniqueFd raw_;
  Seq seq_ = 0;
};

TEST_F(StableLogReachTest, TheHeaderOnDiskNamesAReachBeyondAllThatWasWritten) {
  uint64_t headers = Newest().generation;
  while (log_->used_bytes() < kCapacity - 2 * kBody) {
    Fill(log_->used_bytes() + 1);
    ASSERT_GE(Newest().reach, log_->used_bytes());
    ASSERT_LE(Newest().reach, log_->used_bytes() + kStep);
  }
  EXPECT_LE(Newest().generation, headers + 4) << "a header for every step, not for every append";
}

TEST_F(StableLogReachTest, DamageFarFromTheStartIsFoundByLaterEntries) {
  Fill(2 * kStep);
  const uint64_t damaged = log_->used_bytes();
  Fill(damaged + 3 * kBody);
  ASSERT_TRUE(OpenStatus().ok());
  Put("damage", stable::kRingAt + damaged + 100);
  EXPECT_EQ(OpenStatus().code(), Code::kDataLoss);
}

TEST_F(StableLogReachTest, TornBatchFarFromTheStartIsWiped) {
  Fill(2 * kStep);
  const uint64_t begin = log_->used_bytes();
  const size_t kept = ReadLog(dir_).records.size();
  Records batch;
  for (Seq i = 0; i < 100; ++i) batch.push_back(TestRecord(1, seq_ + 1 + i, kBody));
  ASSERT_TRUE(AppendAll(*log_, batch).ok());
  Put("damage", stable::kRingAt + begin + 100);  // of 6 MB, only the first bytes did not arrive
  {
    auto log = StableLog::Open(LinuxBacking(), dir_.fd(), kLogName, TestVolume(), nullptr);
    ASSERT_TRUE(log.ok()) << log.status();
    ASSERT_TRUE(AppendAll(*log, {TestRecord(2, 1, kBody)}).ok());
  }
  EXPECT_EQ(ReadLog(dir_).records.size(), kept + 1) << "the torn batch came back";
}

TEST_F(StableLogReachTest, TornBatchBeyondTheReachNeverComesBack) {
  Fill(kStep - 2 * kBody);
  const uint64_t begin = log_->used_bytes();
  const size_t kept = ReadLog(dir_).records.size();
  Records batch;
  for (Seq i = 0; i < 40; ++i) batch.push_back(TestRecord(1, seq_ + 1 + i, kBody));
  ASSERT_TRUE(AppendAll(*log_, batch).ok());
  Put("damage", stable::kRingAt + begin + 100);
  auto log = StableLog::Open(LinuxBacking(), dir_.fd(), kLogName, TestVolume(), nullptr);
  ASSERT_TRUE(log.ok()) << log.status();
  // Append entries of the same size: each ends where one of the torn batch begins.
  for (Seq i = 1; i <= 20; ++i) {
    ASSERT_TRUE(AppendAll(*log, {TestRecord(2, i, kBody)}).ok());
    ASSERT_EQ(ReadLog(dir_).records.size(), kept + i) << "the torn batch came back";
  }
}

TEST_F(StableLogReachTest, NothingIsReadBeyondTheReach) {
  Fill(100000);
  PutWitness(Newest().reach);
  EXPECT_TRUE(OpenStatus().ok());
  PutWitness(Newest().reach - 8 - stable::kEntryHeaderBytes);
  EXPECT_EQ(OpenStatus().code(), Code::kDataLoss);
}

TEST_F(StableLogReachTest, WithADamagedHeaderSlotTheWholeRingIsSearched) {
  Fill(100000);
  PutWitness(kCapacity - stable::kEntryHeaderBytes);
  ASSERT_TRUE(OpenStatus().ok());
  Put("damage", Newest().generation % 2 * stable::kHeaderSlotBytes + 100);
  EXPECT_EQ(OpenStatus().code(), Code::kDataLoss);
}

TEST_F(StableLogReachTest, EntriesBeyondTheReachMeanAnOldHeaderSoAllIsSearched) {
  const stable::FileHeader first = HeaderOf(0);
  Fill(2 * kStep);
  // Restore both slots as they were at first: the newer headers never reached the disk.
  for (uint64_t generation : {first.generation, first.generation + 1}) {
    stable::FileHeader header = first;
    header.generation = generation;
    Put(stable::EncodeFileHeader(header), generation % 2 * stable::kHeaderSlotBytes);
  }
  ASSERT_TRUE(OpenStatus().ok());
  PutWitness(kCapacity - stable::kEntryHeaderBytes);
  EXPECT_EQ(OpenStatus().code(), Code::kDataLoss);
}

// Fills the ring and cuts until positions are beyond the first lap.
class StableLogLapTest : public StableLogCrashTest {
 protected:
  void GoRoundOnce() {
    while (log_->used_bytes() < kMiB - 100000) Next(20000);
    Cut();
    while (laps_bytes_ < kMiB + 300000) Next(20000);
  }
  void Next(size_t body) {
    const std::string record = TestRecord(1, ++seq_, body);
    SALIUS_CHECK_OK(AppendAll(*log_, {record}));
    laps_bytes_ += StableLog::EntryBytes(record.size());
  }
  void Cut() { SALIUS_CHECK_OK(log_->Cut(1, seq_ - 1)); }

  Seq seq_ = 0;
  uint64_t laps_bytes_ = 0;
};

TEST_F(StableLogLapTest, EntriesAfterTheWrapAreReadBack) {
  GoRoundOnce();
  const Records records = ReadLog(dir_).records;
  ASSERT_FALSE(records.empty());
  EXPECT_EQ(records.back(), TestRecord(1, seq_, 20000));
  for (size_t i = 0; i < records.size(); ++i) {
    EXPECT_EQ(records[i], TestRecord(1, seq_ - records.size() + 1 + i, 20000));
  }
}

TEST_F(StableLogLapTest, HeadersOfTheLapBeforeAreDamageNotAnEmptyLog) {
  Next(20000);
  const std::string before = Image();
  GoRoundOnce();
  ASSERT_TRUE(OpenStatus().ok());
  // Destroy the newer headers, by more than a torn write could: they had long been synced.
  Put(before.substr(0, stable::kRingAt), 0);
  EXPECT_EQ(OpenStatus().code(), Code::kDataLoss);
  Flip(100);  // and with one slot damaged
  EXPECT_EQ(OpenStatus().code(), Code::kDataLoss);
}

TEST_F(StableLogLapTest, SpaceIsNotUsedAgainBeforeTheHeaderIsOnDisk) {
  while (log_->used_bytes() < kMiB - 30000) Next(20000);
  ASSERT_TRUE(log_->Cut(1, seq_ - 5).ok());
  const std::string before = Image();
  {
    const FailWrites fail(0);
    EXPECT_FALSE(AppendAll(*log_, {TestRecord(1, seq_ + 1, 50000)}).ok());
  }
  EXPECT_TRUE(Image() == before);
  EXPECT_EQ(ReadLog(dir_).records.size(), seq_);
}

TEST_F(StableLogLapTest, BatchThatWrapsTornBetweenItsTwoWritesIsCut) {
  while (log_->used_bytes() < kMiB - 5000) Next(2000);
  Cut();
  const std::string before = Image();
  const Seq last = seq_;
  const Records batch = {TestRecord(1, seq_ + 1, 4000), TestRecord(1, seq_ + 2, 4000),
                         TestRecord(1, seq_ + 3, 4000)};
  const uint64_t offset = log_->capacity() - 5000;
  ASSERT_TRUE(AppendAll(*log_, batch).ok());
  const std::string after = Image();
  // Only the part at the ring's beginning reached the disk.
  const uint64_t ring_end = stable::kRingAt + kMiB;
  Put(before.substr(stable::kRingAt + offset, ring_end - stable::kRingAt - offset),
      stable::kRingAt + offset);
  EXPECT_EQ(ReadLog(dir_).records.back(), TestRecord(1, last, 2000));
  // Only the part at its end reached the disk.
  Put(after.substr(stable::kRingAt + offset, ring_end - stable::kRingAt - offset),
      stable::kRingAt + offset);
  Put(before.substr(stable::kRingAt, 20000), stable::kRingAt);
  const Records got = ReadLog(dir_).records;
  const auto newest = DecodeRecordHeader(AsBytes(got.back()));
  ASSERT_TRUE(newest.ok());
  EXPECT_LT(newest->seq, last + 3);
  ReopenAndAppend({TestRecord(2, 1, 4000)});
  EXPECT_EQ(ReadLog(dir_).records.back(), TestRecord(2, 1, 4000));
  EXPECT_EQ(ReadLog(dir_).records.size(), got.size() + 1);
}

}  // namespace
}  // namespace salius
