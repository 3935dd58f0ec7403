// The log of one volume in a new process: what it finds again, after damage too, and when the one
// before was killed at any store.
#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "common/limits.h"
#include "tests/unit/replica/log_store_testing.h"

namespace salius {
namespace {

TEST_F(LogStoreTest, RestartFindsEveryRecord) {
  Open();
  std::string all;
  for (Seq seq = 1; seq <= 300; ++seq) {
    const std::string record = TestRecord(seq, seq * 7);
    ASSERT_EQ(Append(record), Result::kStored);
    all += record;
  }
  const uint64_t bytes = log_->bytes();
  const VolumeLog::RebuildReport report = Restart();
  EXPECT_EQ(report.records, 300u);
  EXPECT_EQ(report.damaged, 0u);
  EXPECT_EQ(log_->held().contiguous(), 300u);
  EXPECT_EQ(log_->bytes(), bytes);
  EXPECT_EQ(ReadAll(), all);
  // And it goes on behind them.
  ASSERT_EQ(Append(TestRecord(301)), Result::kStored);
  EXPECT_EQ(Restart().records, 301u);
}

TEST_F(LogStoreTest, RestartForgetsPiecesAndKeepsWhatStandsBehindThem) {
  Open();
  ASSERT_EQ(Append(TestRecord(1)), Result::kStored);
  ASSERT_EQ(AddPiece(TestRecord(2, 2000), 2, 0, 1000), Result::kPending);
  ASSERT_EQ(Append(TestRecord(3)), Result::kStored);
  const VolumeLog::RebuildReport report = Restart();
  EXPECT_EQ(report.damaged, 0u);
  EXPECT_EQ(report.records, 2u);
  EXPECT_FALSE(log_->held().Contains(2));
  EXPECT_EQ(Append(TestRecord(2, 2000)), Result::kStored);
  EXPECT_EQ(log_->held().contiguous(), 3u);
}

TEST_F(LogStoreTest, RestartTellsTheLargestMarks) {
  Open();
  RecordHeader header = TestHeader(9);
  header.durable_mark = 8;
  header.checkpoint_mark = 5;
  ASSERT_EQ(Append(EncodeRecord(header, "x")), Result::kStored);
  const VolumeLog::RebuildReport report = Restart();
  EXPECT_EQ(report.durable_mark, 8u);
  EXPECT_EQ(report.checkpoint_mark, 5u);
}

TEST_F(LogStoreTest, BadRecordCostsItselfOnlyAndIsCounted) {
  Open();
  std::vector<std::string> records;
  for (Seq seq = 1; seq <= 20; ++seq) {
    records.push_back(TestRecord(seq, 100 + seq));
    ASSERT_EQ(Append(records.back()), Result::kStored);
  }
  Find(records[6])[kRecordHeaderBytes + 5] ^= 1;
  const Incarnation before = arena_->incarnation();
  const VolumeLog::RebuildReport report = Restart();
  EXPECT_EQ(report.damaged, 1u);
  EXPECT_EQ(report.records, 19u);
  EXPECT_NE(arena_->incarnation(), before) << "before anything is freed";
  EXPECT_EQ(log_->held().contiguous(), 6u);
  EXPECT_FALSE(log_->held().Contains(7));
  EXPECT_TRUE(log_->held().Contains(8));
}

TEST_F(LogStoreTest, BadEntryIsSkippedUpToTheNextGoodOne) {
  Open();
  std::vector<std::string> records;
  for (Seq seq = 1; seq <= 5; ++seq) {
    records.push_back(TestRecord(seq, 200));
    ASSERT_EQ(Append(records.back()), Result::kStored);
  }
  Find(records[2])[-8] ^= 0x10;  // its length
  const VolumeLog::RebuildReport report = Restart();
  EXPECT_EQ(report.damaged, 1u);
  EXPECT_EQ(report.records, 4u);
  EXPECT_FALSE(log_->held().Contains(3));
}

TEST_F(LogStoreTest, EntryWithAnotherTagIsNoEntry) {
  Open();
  ASSERT_EQ(Append(TestRecord(1)), Result::kStored);
  ASSERT_EQ(Append(TestRecord(2)), Result::kStored);
  Find(TestRecord(1))[-16] ^= 1;
  const VolumeLog::RebuildReport report = Restart();
  EXPECT_EQ(report.damaged, 1u);
  EXPECT_FALSE(log_->held().Contains(1));
  EXPECT_TRUE(log_->held().Contains(2));
}

// A client that writes records into its files must not get them into the log through damage.
TEST_F(LogStoreTest, RecordInsideABodyIsNeverTakenForAnEntry) {
  Open();
  std::string forged(16, '\0');  // an entry as it would look with a tag that the client cannot know
  const std::string inner = TestRecord(2, 64);
  StoreU32(reinterpret_cast<uint8_t*>(forged.data()) + 8,
           static_cast<uint32_t>(inner.size()) << 1 | 1);
  forged += inner;
  std::string body;
  while (body.size() < 4096) body += forged;
  const std::string outer = EncodeRecord(TestHeader(1), body);
  ASSERT_EQ(Append(outer), Result::kStored);
  ASSERT_EQ(Append(TestRecord(3)), Result::kStored);
  Find(outer)[-8] ^= 0x10;
  const VolumeLog::RebuildReport report = Restart();
  EXPECT_EQ(report.damaged, 1u);
  EXPECT_EQ(report.records, 1u);
  EXPECT_FALSE(log_->held().Contains(2));
}

TEST_F(LogStoreTest, DamagedUsedWordIsCountedAndTheRecordsAreFoundAllTheSame) {
  Open();
  ASSERT_EQ(Append(TestRecord(1)), Result::kStored);
  ASSERT_EQ(Append(TestRecord(2)), Result::kStored);
  const uint32_t segment = arena_->SegmentsOf(slot_index_).at(0);
  memory_->span()[arena_->geometry().segment_table_at + segment * kSegmentEntryBytes + 16] ^= 1;
  const VolumeLog::RebuildReport report = Restart();
  EXPECT_GE(report.damaged, 1u);
  EXPECT_EQ(report.records, 2u);
  EXPECT_EQ(Append(TestRecord(3)), Result::kStored);
  EXPECT_EQ(Restart().damaged, 0u);
  EXPECT_EQ(ReadAll(), TestRecord(1) + TestRecord(2) + TestRecord(3));
}

TEST_F(LogStoreTest, RecordsOfAnOlderEpochAreDroppedAtRestart) {
  Open();
  ASSERT_EQ(Append(TestRecord(1)), Result::kStored);
  slot_.epoch = 2;
  arena_->WriteSlot(slot_index_, slot_);  // killed before the segments were freed
  const VolumeLog::RebuildReport report = Restart();
  EXPECT_EQ(report.records, 0u);
  EXPECT_EQ(report.damaged, 0u);
  EXPECT_EQ(arena_->free_segments(), arena_->geometry().segment_count);
}

TEST_F(LogStoreTest, TrimmedRecordsDoNotComeBack) {
  Open();
  for (Seq seq = 1; seq <= 10; ++seq) ASSERT_EQ(Append(TestRecord(seq)), Result::kStored);
  log_->TrimTo(4);
  slot_.trimmed = 4;
  arena_->WriteSlot(slot_index_, slot_);
  Restart();
  EXPECT_EQ(log_->records(), 6u);
  EXPECT_EQ(log_->held().contiguous(), 10u);
  EXPECT_EQ(log_->floor(), 4u);
}

// A process killed at any store: every arena image between two whole states must rebuild to records
// that were appended, and to all that Append() had returned for.
TEST_F(LogStoreTest, AppendCutOffAnywhereLosesAtMostTheRecordThatWasNotAcknowledged) {
  Open();
  ASSERT_EQ(Append(TestRecord(1)), Result::kStored);
  const auto memory = memory_->span();
  const auto image = [&memory] {
    return std::string(reinterpret_cast<const char*>(memory.data()), memory.size());
  };
  const std::string before = image();
  const std::string record = TestRecord(2, 40);
  ASSERT_EQ(AddPiece(record, 2, 0, 8), Result::kPending);
  const std::string reserved = image();  // what Append, too, leaves between its two entry words
  ASSERT_EQ(Append(record), Result::kStored);
  const std::string after = image();
  const size_t entry = static_cast<size_t>(Find(record) - memory.data()) - kLogEntryBytes;
  const uint32_t segment = arena_->SegmentsOf(slot_index_).at(0);
  const size_t used = arena_->geometry().segment_table_at + segment * kSegmentEntryBytes + 16;
  struct Store {
    const std::string& from;
    size_t at, bytes;
  };
  std::vector<Store> stores = {{after, entry, 8}, {reserved, entry + 8, 8}, {after, used, 8}};
  for (size_t at = 0; at < record.size(); at += 8) {
    stores.push_back({after, entry + 16 + at, std::min<size_t>(8, record.size() - at)});
  }
  stores.push_back({after, entry + 8, 8});
  for (size_t cut = 0; cut <= stores.size(); ++cut) {
    std::memcpy(memory.data(), before.data(), before.size());
    for (size_t i = 0; i < cut; ++i) {
      const Store& store = stores[i];
      std::memcpy(memory.data() + store.at, store.from.data() + store.at, store.bytes);
    }
    const VolumeLog::RebuildReport report = Restart();
    EXPECT_EQ(report.damaged, 0u) << cut;
    EXPECT_TRUE(log_->held().Contains(1)) << cut;
    EXPECT_EQ(log_->held().Contains(2), cut == stores.size()) << cut;
    EXPECT_EQ(Append(record), cut == stores.size() ? Result::kDuplicate : Result::kStored);
  }
}

}  // namespace
}  // namespace salius
