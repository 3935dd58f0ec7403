// The log of one volume in a new process: the records it finds, after damage too, and after the
// process before was killed at any store.
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
  // It appends after them.
  ASSERT_EQ(Append(TestRecord(301)), Result::kStored);
  EXPECT_EQ(Restart().records, 301u);
}

TEST_F(LogStoreTest, RestartForgetsPiecesAndKeepsLaterRecords) {
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
  // The damage is found once.
  const Incarnation after = arena_->incarnation();
  EXPECT_EQ(Restart().damaged, 0u);
  EXPECT_EQ(arena_->incarnation(), after);
  EXPECT_EQ(log_->records(), 19u);
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

TEST_F(LogStoreTest, DamagedUsedWordIsCountedAndTheRecordsAreFound) {
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

// ---- records that a segment's end cuts

class CutRecordTest : public LogStoreTest {
 protected:
  // Records 1 to 5 fill a segment but for 1000 bytes. Record 6 continues in the second, 7 follows.
  void SetUp() override {
    Open();
    first_ = FillUpTo(1000);
    ASSERT_EQ(Append(cut_), Result::kStored);
    ASSERT_EQ(Append(last_), Result::kStored);
    // A fresh arena hands them out in this order.
    segments_ = arena_->SegmentsOf(slot_index_);
    ASSERT_EQ(segments_.size(), 2u);
    ASSERT_EQ(arena_->segment_next(segments_[0]), segments_[1]);
  }
  // Gives every free segment to another volume and overwrites all bytes of them.
  void LetOthersTakeTheRest() {
    VolumeSlot other = slot_;
    other.volume = TestVolume(9);
    const uint32_t slot = arena_->NewSlot(other).value();
    while (const auto segment = arena_->AllocateSegment(slot)) {
      std::memset(arena_->segment_data(*segment), 0xee, arena_->geometry().segment_bytes);
    }
  }
  uint8_t* NextWord() {
    return memory_->span().data() + arena_->geometry().segment_table_at +
           segments_[0] * kSegmentEntryBytes + 24;
  }
  // Checks the log after damage that costs record 6 alone.
  void ExpectTheCutOneIsLost() {
    const Incarnation before = arena_->incarnation();
    const VolumeLog::RebuildReport report = Restart();
    EXPECT_GE(report.damaged, 1u);
    EXPECT_EQ(ReadAll(), first_ + last_);
    EXPECT_NE(arena_->incarnation(), before);
    EXPECT_EQ(Append(cut_), Result::kStored);
    Restart();
    EXPECT_EQ(ReadAll(), first_ + cut_ + last_);
  }

  const std::string cut_ = TestRecord(6, 5000, 1, TestVolume(), 'y');
  const std::string last_ = TestRecord(7);
  std::string first_;
  std::vector<uint32_t> segments_;
};

TEST_F(CutRecordTest, IsFoundAgain) {
  const uint64_t bytes = log_->bytes();
  const VolumeLog::RebuildReport report = Restart();
  EXPECT_EQ(report.damaged, 0u);
  EXPECT_EQ(report.records, 7u);
  EXPECT_EQ(log_->bytes(), bytes);
  EXPECT_EQ(ReadAll(), first_ + cut_ + last_);
}

TEST_F(CutRecordTest, KeepsTheSegmentInWhichNoOtherBegins) {
  Open();
  FillUpTo(1000);
  ASSERT_EQ(Append(cut_), Result::kStored);
  EXPECT_EQ(Restart().damaged, 0u);
  LetOthersTakeTheRest();
  EXPECT_EQ(ReadAll(), first_ + cut_);
}

TEST_F(CutRecordTest, KeepsTheSegmentInWhichOnlyOlderOnesBegin) {
  Open();
  FillUpTo(1000);
  const std::string newer = TestRecord(9, 5000);
  ASSERT_EQ(Append(newer), Result::kStored);
  ASSERT_EQ(Append(TestRecord(6)), Result::kStored);
  Restart();
  log_->TrimTo(8);
  LetOthersTakeTheRest();
  EXPECT_EQ(ReadAll(), newer);
}

TEST_F(CutRecordTest, TrimmedOneMayHaveLostItsRestToOthers) {
  Open();
  const std::string newest = TestRecord(20);
  ASSERT_EQ(Append(newest), Result::kStored);
  FillUpTo(1000);
  ASSERT_EQ(Append(cut_), Result::kStored);
  slot_.trimmed = 6;
  arena_->WriteSlot(slot_index_, slot_);
  log_->TrimTo(6);
  ASSERT_EQ(log_->accounting().segments, 1u);
  LetOthersTakeTheRest();
  EXPECT_EQ(Restart().damaged, 0u);
  EXPECT_EQ(ReadAll(), newest);
}

TEST_F(CutRecordTest, AnotherTagLengthOrPlaceOfTheRestCostsItAlone) {
  for (const int byte : {0, 9, 13}) {
    SetUp();
    arena_->segment_data(segments_[1])[byte] ^= 1;
    ExpectTheCutOneIsLost();
  }
  for (int byte = 0; byte < 8; ++byte) {
    SetUp();
    NextWord()[byte] ^= 1;
    ExpectTheCutOneIsLost();
  }
}

TEST_F(CutRecordTest, DamageInEitherPartCostsItAlone) {
  arena_->segment_data(segments_[1])[kLogEntryBytes + 100] ^= 1;
  ExpectTheCutOneIsLost();
  SetUp();
  arena_->segment_data(segments_[0])[arena_->geometry().segment_bytes - 1] ^= 1;
  ExpectTheCutOneIsLost();
}

TEST_F(CutRecordTest, GoesWithTheSegmentOfItsRest) {
  const uint8_t* const owner = NextWord() - 24 + 8;
  const_cast<uint8_t*>(owner)[(segments_[1] - segments_[0]) * kSegmentEntryBytes] ^= 1;
  EXPECT_EQ(Restart().damaged, 1u);
  EXPECT_EQ(arena_->damaged(), 1u);
  EXPECT_EQ(ReadAll(), first_);
}

// A process killed at any store. Every arena image between two whole states must rebuild to records
// that were appended, and to all for which Append() had returned.
class KilledInAppendTest : public LogStoreTest {
 protected:
  std::string Image() const {
    return std::string(reinterpret_cast<const char*>(memory_->span().data()),
                       memory_->span().size());
  }
  // A store of the bytes that `image` has at `at`.
  struct Store {
    const std::string& image;
    size_t at, bytes;
  };
  void AddWords(const std::string& image, size_t at, size_t bytes) {
    for (size_t end = at + bytes; at < end; at += 8) {
      stores_.push_back({image, at, std::min<size_t>(8, end - at)});
    }
  }
  size_t DataAt(uint32_t segment) const {
    return arena_->geometry().segments_at + segment * arena_->geometry().segment_bytes;
  }
  size_t TableAt(uint32_t segment) const {
    return arena_->geometry().segment_table_at + segment * kSegmentEntryBytes;
  }
  // Restarts from `before` and the first `cut` stores, for every `cut`.
  void ExpectWholeOrNot(const std::string& before, const std::string& record) {
    const Seq seq = Decoded(record).seq;
    uint8_t* const memory = memory_->span().data();
    for (size_t cut = 0; cut <= stores_.size(); ++cut) {
      std::memcpy(memory, before.data(), before.size());
      for (size_t i = 0; i < cut; ++i) {
        const Store& store = stores_[i];
        std::memcpy(memory + store.at, store.image.data() + store.at, store.bytes);
      }
      const VolumeLog::RebuildReport report = Restart();
      ASSERT_EQ(report.damaged, 0u) << cut;
      ASSERT_EQ(log_->held().contiguous(), cut == stores_.size() ? seq : seq - 1) << cut;
      ASSERT_EQ(Append(record), cut == stores_.size() ? Result::kDuplicate : Result::kStored);
    }
  }
  std::vector<Store> stores_;
};

TEST_F(KilledInAppendTest, LosesAtMostTheRecordThatWasNotAcknowledged) {
  Open();
  ASSERT_EQ(Append(TestRecord(1)), Result::kStored);
  const std::string before = Image();
  const std::string record = TestRecord(2, 40);
  ASSERT_EQ(AddPiece(record, 2, 0, 8), Result::kPending);
  const std::string reserved = Image();  // Append, too, leaves this between its two entry words
  ASSERT_EQ(Append(record), Result::kStored);
  const std::string after = Image();
  const uint32_t segment = arena_->SegmentsOf(slot_index_).at(0);
  const size_t entry = DataAt(segment) + kLogEntryBytes + TestRecord(1).size() + 4;  // padding
  AddWords(reserved, entry, kLogEntryBytes);
  AddWords(after, TableAt(segment) + 16, 8);
  AddWords(after, entry + kLogEntryBytes, record.size());
  AddWords(after, entry + 8, 8);
  ExpectWholeOrNot(before, record);
}

TEST_F(KilledInAppendTest, OfARecordThatASegmentsEndCuts) {
  Open();
  FillUpTo(256);
  const std::string before = Image();
  const uint32_t second = arena_->AllocateSegment(slot_index_).value();
  const std::string taken = Image();
  Open();  // the same arena again, tags included
  FillUpTo(256);
  const uint32_t first = arena_->SegmentsOf(slot_index_).at(0);
  const std::string record = TestRecord(6, 300);
  ASSERT_EQ(AddPiece(record, 6, 0, 8), Result::kPending);
  const std::string reserved = Image();
  ASSERT_EQ(Append(record), Result::kStored);
  const std::string after = Image();
  ASSERT_EQ(arena_->segment_next(first), second);
  const size_t entry = DataAt(first) + arena_->geometry().segment_bytes - 256;
  AddWords(taken, TableAt(second), 8);
  AddWords(taken, TableAt(second) + 16, 8);
  AddWords(taken, TableAt(second) + 8, 8);
  AddWords(after, DataAt(second), kLogEntryBytes);
  AddWords(after, TableAt(second) + 16, 8);
  AddWords(after, TableAt(first) + 24, 8);
  AddWords(reserved, entry, kLogEntryBytes);
  AddWords(after, TableAt(first) + 16, 8);
  AddWords(after, entry + kLogEntryBytes, 256 - kLogEntryBytes);
  AddWords(after, DataAt(second) + kLogEntryBytes, record.size() - (256 - kLogEntryBytes));
  AddWords(after, entry + 8, 8);
  ExpectWholeOrNot(before, record);
}

}  // namespace
}  // namespace salius
