// The log of one volume: records and pieces of them, within its memory, and against a model.
#include "replica/log_store.h"

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "common/limits.h"
#include "tests/unit/replica/log_store_testing.h"

namespace salius {
namespace {

TEST_F(LogStoreTest, StoresOutOfOrderAtOnceAndReadsInOrder) {
  Open();
  const std::string one = TestRecord(1), two = TestRecord(2, 33), three = TestRecord(3, 0);
  EXPECT_EQ(Append(three), Result::kStored);
  EXPECT_EQ(Append(one), Result::kStored);
  EXPECT_EQ(log_->held().contiguous(), 1u);
  EXPECT_EQ(ReadAll(), one + three);
  EXPECT_EQ(Append(two), Result::kStored);
  EXPECT_EQ(log_->held().contiguous(), 3u);
  EXPECT_EQ(ReadAll(), one + two + three);
  EXPECT_EQ(ReadAll(2), three);
  EXPECT_EQ(log_->records(), 3u);
  EXPECT_EQ(log_->bytes(), one.size() + two.size() + three.size());
}

TEST_F(LogStoreTest, SameRecordAgainIsADuplicateOtherBodyAConflict) {
  Open();
  ASSERT_EQ(Append(TestRecord(1)), Result::kStored);
  EXPECT_EQ(Append(TestRecord(1)), Result::kDuplicate);
  EXPECT_EQ(Append(TestRecord(1, 100, 1, TestVolume(), 'y')), Result::kConflict);
  EXPECT_EQ(Append(TestRecord(1, 50)), Result::kConflict);
  EXPECT_EQ(ReadAll(), TestRecord(1));
}

TEST_F(LogStoreTest, BelowBaseAndTrimmedAreRefused) {
  Open(uint64_t{8} << 20, 8, /*base=*/5);
  EXPECT_EQ(Append(TestRecord(4)), Result::kBelowBase);
  ASSERT_EQ(Append(TestRecord(5)), Result::kStored);
  log_->TrimTo(7);
  EXPECT_EQ(Append(TestRecord(6)), Result::kTrimmed);
  EXPECT_EQ(Append(TestRecord(4)), Result::kBelowBase);
  EXPECT_EQ(Append(TestRecord(8)), Result::kStored);
  EXPECT_EQ(log_->held().base(), 5u);
  EXPECT_EQ(log_->held().contiguous(), 8u);
}

TEST_F(LogStoreTest, TooFarAheadIsRefused) {
  Open(uint64_t{8} << 20, 1);
  EXPECT_EQ(Append(TestRecord(uint64_t{1} << 40)), Result::kOutOfWindow);
  EXPECT_EQ(Append(TestRecord(kMaxCount)), Result::kOutOfWindow);
  EXPECT_EQ(log_->records(), 0u);
}

TEST_F(LogStoreTest, TrimFreesSegmentsAndNothingElseDoes) {
  Open();
  const uint32_t all_free = arena_->free_segments();
  Seq seq = 0;
  while (arena_->free_segments() + 3 > all_free)
    ASSERT_EQ(Append(TestRecord(++seq, 4096)), Result::kStored);
  ASSERT_EQ(Append(TestRecord(++seq, 4096)), Result::kStored);  // the last one goes across the end
  const uint64_t bytes = log_->bytes();
  log_->TrimTo(1);
  EXPECT_EQ(log_->bytes(), bytes);
  EXPECT_EQ(arena_->free_segments() + 3, all_free);
  log_->TrimTo(seq - 1);
  EXPECT_EQ(arena_->free_segments() + 1, all_free);
  EXPECT_EQ(ReadAll(), TestRecord(seq, 4096));
  log_->TrimTo(seq);
  EXPECT_EQ(arena_->free_segments(), all_free);
  EXPECT_EQ(log_->bytes(), 0u);
  EXPECT_EQ(log_->records(), 0u);
  EXPECT_EQ(Append(TestRecord(seq + 1)), Result::kStored);
}

TEST_F(LogStoreTest, TrimBeyondEverythingHeldMovesOn) {
  Open();
  ASSERT_EQ(Append(TestRecord(1)), Result::kStored);
  log_->TrimTo(1000000);
  EXPECT_EQ(log_->held().contiguous(), 1000000u);
  EXPECT_EQ(Append(TestRecord(1000001)), Result::kStored);
  EXPECT_EQ(ReadAll(), TestRecord(1000001));
}

// Trimming leaves the index unchanged.
TEST_F(LogStoreTest, TrimmedRecordsAreNotReadInPlaceOfMissingOnes) {
  Open();
  Seq seq = 0;
  while (seq < 600) ASSERT_EQ(Append(TestRecord(++seq)), Result::kStored);
  log_->TrimTo(seq);
  const Seq far = seq + 800;  // the index has places for 1,024 seqs
  ASSERT_EQ(Append(TestRecord(far)), Result::kStored);
  EXPECT_EQ(ReadAll(), TestRecord(far));
}

TEST_F(LogStoreTest, GrantIsNotExceededAndTrimMakesRoom) {
  Open(uint64_t{8} << 20, 2);
  Seq seq = 1;
  while (Append(TestRecord(seq, 10000)) == Result::kStored) ++seq;
  EXPECT_EQ(Append(TestRecord(seq, 10000)), Result::kMemoryFull);
  EXPECT_EQ(AddPiece(TestRecord(seq, 10000), seq, 0, 1000), Result::kMemoryFull);
  EXPECT_EQ(log_->accounting().segments, 2u);
  EXPECT_EQ(log_->held().contiguous(), seq - 1);
  log_->TrimTo(seq - 1);
  EXPECT_EQ(Append(TestRecord(seq, 10000)), Result::kStored);
}

TEST_F(LogStoreTest, GrantHoldsTheRequestedBytesForAnySizes) {
  for (const size_t body : {size_t{0}, size_t{1}, size_t{400}, size_t{5000}, size_t{70000},
                            size_t{117000}, kMaxRecordBody}) {
    const uint64_t asked = uint64_t{10} << 20;
    Open(uint64_t{64} << 20, VolumeLog::GrantSegments(asked, kSegmentBytes));
    EXPECT_GE(log_->free_bytes(), asked);
    uint64_t stored = 0;
    for (Seq seq = 1; stored < asked; ++seq) {
      const std::string record = TestRecord(seq, body);
      ASSERT_EQ(Append(record), Result::kStored) << body << " after " << stored;
      stored += record.size();
    }
  }
}

TEST_F(LogStoreTest, FreeBytesIsAPromise) {
  for (const size_t largest : {kMaxRecordBody, size_t{9000}, size_t{1}}) {
    Random random(5);
    Open(uint64_t{8} << 20, 6);
    uint64_t promised = log_->free_bytes();  // for all later records
    for (Seq seq = 1;; ++seq) {
      const std::string record = TestRecord(seq, random.Below(largest) + 1);
      const Result result = Append(record);
      if (promised >= record.size()) {
        ASSERT_EQ(result, Result::kStored) << largest;
        promised = std::max(promised - record.size(), log_->free_bytes());
      }
      if (result == Result::kMemoryFull) break;
    }
  }
}

// The bound is at most 64 bytes per record beside header and body, all counted.
TEST_F(LogStoreTest, OverheadIsAtMost64BytesPerRecordOfAnySize) {
  for (const size_t body :
       {size_t{0}, size_t{1}, size_t{100}, size_t{512}, size_t{1000}, size_t{4096}, size_t{8192},
        size_t{16} << 10, size_t{64} << 10, size_t{100000}, size_t{124} << 10, kMaxRecordBody}) {
    Open(uint64_t{64} << 20, 40);
    uint64_t records = 0;
    while (Append(TestRecord(records + 1, body)) == Result::kStored) ++records;
    const VolumeLog::Accounting a = log_->accounting();
    EXPECT_EQ(a.record_bytes, records * (kRecordHeaderBytes + body));
    const uint64_t overhead = a.entry_bytes + a.tail_bytes + a.index_bytes + a.table_bytes;
    EXPECT_LE(overhead, 64 * records) << "body " << body << ": " << overhead << " for " << records;
    // The account leaves nothing out.
    EXPECT_LE(a.record_bytes + a.entry_bytes + a.tail_bytes, a.segments * kSegmentBytes);
  }
}

// ---- records that a segment's end cuts

TEST_F(LogStoreTest, RecordThatASegmentsEndCutsIsStoredAndReadWhole) {
  for (uint32_t left = 0; left < 400; left += 8) {
    Open();
    const std::string first = FillUpTo(left);
    const std::string cut = TestRecord(6, 5000, 1, TestVolume(), 'y');
    ASSERT_EQ(Append(cut), Result::kStored);
    EXPECT_EQ(log_->accounting().segments, 2u);
    EXPECT_EQ(Append(cut), Result::kDuplicate);
    EXPECT_EQ(Append(TestRecord(6, 5000)), Result::kConflict);
    EXPECT_EQ(Append(TestRecord(6, 5001)), Result::kConflict);
    ASSERT_EQ(Append(TestRecord(7)), Result::kStored);
    EXPECT_EQ(ReadAll(), first + cut + TestRecord(7)) << left;
    EXPECT_EQ(log_->bytes(), ReadAll().size());
    // The end that takes no header stays unused.
    EXPECT_EQ(log_->accounting().tail_bytes, left < 128 ? left : 0u);
  }
}

TEST_F(LogStoreTest, PiecesOfARecordThatASegmentsEndCuts) {
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    Open();
    Random random(seed);
    const std::string first = FillUpTo(128 + static_cast<uint32_t>(random.Below(400)) * 8);
    std::string body(9000 + seed, '\0');
    for (char& byte : body) byte = static_cast<char>(random.Below(256));
    const std::string record = EncodeRecord(TestHeader(6), body);
    const uint32_t bytes = 700;
    std::vector<uint32_t> offsets;
    for (uint32_t at = 0; at < record.size(); at += bytes) offsets.push_back(at);
    std::shuffle(offsets.begin(), offsets.end(), random);
    std::string wrong = record;
    wrong[random.Below(wrong.size())] ^= 1;
    Result result = Result::kPending;
    for (const uint32_t at : offsets) result = AddPiece(wrong, 6, at, bytes);
    ASSERT_EQ(result, Result::kCorrupt);
    for (const uint32_t at : offsets) result = AddPiece(record, 6, at, bytes);
    ASSERT_EQ(result, Result::kStored);
    EXPECT_EQ(ReadAll(), first + record);
  }
}

// The second segment holds a part of a record that is newer than all that begin there.
TEST_F(LogStoreTest, TrimKeepsASegmentWithTheRestOfANewerRecord) {
  Open();
  FillUpTo(1000);
  const std::string cut = TestRecord(9, 5000);
  ASSERT_EQ(Append(cut), Result::kStored);
  ASSERT_EQ(Append(TestRecord(6)), Result::kStored);
  log_->TrimTo(8);
  EXPECT_EQ(log_->accounting().segments, 2u);
  EXPECT_EQ(ReadAll(), cut);
  log_->TrimTo(9);
  EXPECT_EQ(log_->accounting().segments, 0u);
}

TEST_F(LogStoreTest, RecordThatNeedsASegmentMoreThanTheGrantIsRefused) {
  Open(uint64_t{8} << 20, 1);
  FillUpTo(1000);
  EXPECT_EQ(Append(TestRecord(6, 5000)), Result::kMemoryFull);
  EXPECT_EQ(AddPiece(TestRecord(6, 5000), 6, 0, 1000), Result::kMemoryFull);
  // A smaller one still fits.
  EXPECT_EQ(Append(TestRecord(6, 1000 - kLogEntryBytes - kRecordHeaderBytes)), Result::kStored);
  EXPECT_EQ(Restart().damaged, 0u);
  EXPECT_EQ(log_->records(), 6u);
}

// ---- pieces

TEST_F(LogStoreTest, PiecesInAnyOrderMakeTheRecord) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    Open();
    Random random(seed);
    const std::string record = TestRecord(1, 20000 + seed);
    const uint32_t piece = 1360;
    std::vector<uint32_t> offsets;
    for (uint32_t at = 0; at < record.size(); at += piece) offsets.push_back(at);
    std::shuffle(offsets.begin(), offsets.end(), random);
    for (size_t i = 0; i + 1 < offsets.size(); ++i) {
      ASSERT_EQ(AddPiece(record, 1, offsets[i], piece), Result::kPending);
      ASSERT_EQ(AddPiece(record, 1, offsets[random.Below(i + 1)], piece), Result::kPending);
      ASSERT_FALSE(log_->held().Contains(1));
    }
    ASSERT_EQ(AddPiece(record, 1, offsets.back(), piece), Result::kStored);
    EXPECT_EQ(AddPiece(record, 1, 0, piece), Result::kDuplicate);
    EXPECT_EQ(ReadAll(), record);
    EXPECT_EQ(log_->in_progress(), 0u);
  }
}

TEST_F(LogStoreTest, PiecesOfManyRecordsInterleave) {
  Open(uint64_t{16} << 20, 20);
  std::vector<std::string> records;
  for (Seq seq = 1; seq <= 40; ++seq)
    records.push_back(TestRecord(seq, 3000, 1, TestVolume(), 'a' + seq % 26));
  for (uint32_t at = 0; at < records[0].size(); at += 1000) {
    for (Seq seq = 40; seq >= 1; --seq) AddPiece(records[seq - 1], seq, at, 1000);
  }
  EXPECT_EQ(log_->held().contiguous(), 40u);
  EXPECT_EQ(ReadAll(), Join(records));
}

TEST_F(LogStoreTest, WrongPieceIsFoundWhenTheRecordIsWholeAndCostsNoMemory) {
  Open(uint64_t{8} << 20, 1);
  std::string bad = TestRecord(1, 2000);
  bad[1500] ^= 1;
  for (int i = 0; i < 2000; ++i) {
    ASSERT_EQ(AddPiece(bad, 1, 0, 1056), Result::kPending);
    ASSERT_EQ(AddPiece(bad, 1, 1056, 1056), Result::kCorrupt);
    ASSERT_FALSE(log_->held().Contains(1));
  }
  const std::string good = TestRecord(1, 2000);
  ASSERT_EQ(AddPiece(good, 1, 0, 1056), Result::kPending);
  ASSERT_EQ(AddPiece(good, 1, 1056, 1056), Result::kStored);
  EXPECT_EQ(ReadAll(), good);
}

// Good pieces and damaged ones come in any order, over and beside each other. A record is held
// whole or not at all, and damage is found only where there was some.
TEST_F(LogStoreTest, OnlyTheRightBytesAreEverHeld) {
  int corrupt = 0;
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    Open();
    Random random(seed);
    std::string body(6000, '\0');
    for (char& byte : body) byte = static_cast<char>(random.Below(256));
    const std::string good = EncodeRecord(TestHeader(1), body);
    const auto size = static_cast<uint32_t>(good.size());
    Result result = Result::kPending;
    bool damaged = false;
    for (int i = 0; i < 10000 && result != Result::kStored; ++i) {
      std::string record = good;
      // Cut it in several ways, as when a route's packets become smaller.
      const auto bytes = static_cast<uint32_t>(60 + random.Below(5) * 500);
      const auto from = static_cast<uint32_t>(random.Below(size / bytes + 1)) * bytes;
      if (random.Below(10) == 0) {
        record[from + random.Below(std::min(bytes, size - from))] ^= 1;
        damaged = true;
      }
      result = AddPiece(record, 1, from, bytes);
      if (result != Result::kCorrupt) continue;
      ASSERT_TRUE(damaged) << seed;
      damaged = false;
      ++corrupt;
    }
    ASSERT_EQ(result, Result::kStored) << seed;
    ASSERT_EQ(ReadAll(), good) << seed;
    Restart();
    ASSERT_EQ(ReadAll(), good) << seed;
  }
  EXPECT_GT(corrupt, 50);
}

TEST_F(LogStoreTest, PiecesOfAnotherRecordAreForeign) {
  Open();
  for (const std::string& record :
       {TestRecord(2, 100), TestRecord(1, 100, /*epoch=*/2), TestRecord(1, 100, 1, TestVolume(9)),
        TestRecord(1, 50) + std::string(50, 'z')}) {
    EXPECT_EQ(AddPiece(record, 1, 0, static_cast<uint32_t>(record.size())), Result::kForeign);
    EXPECT_FALSE(log_->held().Contains(1));
    Open();
  }
}

TEST_F(LogStoreTest, PieceOfAnotherSizeIsForeign) {
  Open();
  ASSERT_EQ(AddPiece(TestRecord(1, 2000), 1, 0, 1000), Result::kPending);
  EXPECT_EQ(AddPiece(TestRecord(1, 3000), 1, 1000, 1000), Result::kForeign);
}

TEST_F(LogStoreTest, WholeRecordReplacesItsPieces) {
  Open();
  const std::string record = TestRecord(1, 2000);
  ASSERT_EQ(AddPiece(record, 1, 0, 1000), Result::kPending);
  const uint64_t bytes = log_->bytes();
  EXPECT_EQ(Append(record), Result::kStored);
  EXPECT_EQ(log_->bytes(), bytes);
  EXPECT_EQ(log_->in_progress(), 0u);
  EXPECT_EQ(ReadAll(), record);
}

TEST_F(LogStoreTest, TrimDropsStalePieces) {
  Open();
  ASSERT_EQ(AddPiece(TestRecord(3, 2000), 3, 0, 1000), Result::kPending);
  ASSERT_EQ(AddPiece(TestRecord(9, 2000), 9, 0, 1000), Result::kPending);
  log_->TrimTo(5);
  EXPECT_EQ(log_->in_progress(), 1u);
  EXPECT_EQ(AddPiece(TestRecord(3, 2000), 3, 1000, 1000), Result::kTrimmed);
}

TEST_F(LogStoreTest, RecordsInPiecesAreBounded) {
  Open(uint64_t{8} << 20, 8);
  for (Seq seq = 1; seq <= kMaxInProgress; ++seq) {
    ASSERT_EQ(AddPiece(TestRecord(seq, 1000), seq, 0, 556), Result::kPending);
  }
  EXPECT_EQ(AddPiece(TestRecord(5000, 1000), 5000, 0, 556), Result::kOutOfWindow);
  EXPECT_EQ(AddPiece(TestRecord(1, 1000), 1, 556, 556), Result::kStored);
  EXPECT_EQ(AddPiece(TestRecord(5000, 1000), 5000, 0, 556), Result::kPending);
}

TEST_F(LogStoreTest, RunsOfOneRecordAreBounded) {
  Open();
  const std::string record = TestRecord(1, 2000);
  Result last = Result::kPending;
  for (uint32_t at = 0; at < 2000 && last == Result::kPending; at += 2) {
    last = AddPiece(record, 1, at, 1);
  }
  EXPECT_EQ(last, Result::kOutOfWindow);
}

// ---- the model

TEST_F(LogStoreTest, BehavesLikeAMapThroughTrimsPiecesAndRestarts) {
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    SCOPED_TRACE(seed);
    Random random(seed);
    const Seq base = 1 + random.Below(3);
    Open(uint64_t{8} << 20, 10, base);
    std::map<Seq, std::string> model;
    Seq trimmed = 0, next = base;
    // Have many records in a segment, or most of them cut by a segment's end.
    const size_t largest = seed % 4 == 0 ? kMaxRecordBody : 9000;
    const auto record_of = [&](Seq seq) {
      return TestRecord(seq, (seq * 7919) % largest, 1, TestVolume(), 'a' + seq % 26);
    };
    for (int step = 0; step < 400; ++step) {
      const uint64_t what = random.Below(100);
      const Seq seq = std::max<Seq>(1, next + random.Below(20) - std::min<Seq>(next, 10));
      const bool fits = seq >= base && seq > trimmed;
      if (what < 60) {
        const Result result = Append(record_of(seq));
        if (result == Result::kStored) {
          ASSERT_TRUE(fits && model.count(seq) == 0);
          model[seq] = record_of(seq);
          next = std::max(next, seq + 1);
        } else if (fits) {
          ASSERT_TRUE(result == Result::kMemoryFull ||
                      (result == Result::kDuplicate && model.count(seq) == 1))
              << static_cast<int>(result) << " for " << seq << " of " << record_of(seq).size();
        }
      } else if (what < 85) {
        const std::string record = record_of(seq);
        const uint32_t half = static_cast<uint32_t>((record.size() + 1) / 2);
        AddPiece(record, seq, 0, half);
        if (AddPiece(record, seq, half, half) == Result::kStored) {
          model[seq] = record;
          next = std::max(next, seq + 1);
        }
      } else if (what < 95) {
        trimmed = std::max<Seq>(trimmed, next - std::min<Seq>(next, random.Below(60)));
        log_->TrimTo(trimmed);
        slot_.trimmed = trimmed;
        arena_->WriteSlot(slot_index_, slot_);
        model.erase(model.begin(), model.upper_bound(trimmed));
      } else {
        ASSERT_EQ(Restart().damaged, 0u);
      }
      ASSERT_EQ(log_->records(), model.size()) << step;
    }
    std::string all;
    for (const auto& [seq, record] : model) all += record;
    EXPECT_EQ(ReadAll(), all);
  }
}

}  // namespace
}  // namespace salius
