// Shared by the tests of a volume's log: a log in an arena, and another process on that arena.
#pragma once

#include <algorithm>
#include <functional>
#include <memory>
#include <string>

#include "gtest/gtest.h"
#include "replica/log_store.h"
#include "tests/unit/replica/replica_testing.h"

namespace salius {

using Result = VolumeLog::Result;

class LogStoreTest : public ::testing::Test {
 protected:
  // Makes a new arena with one volume in it.
  void Open(uint64_t arena_bytes = uint64_t{8} << 20, uint32_t grant = 8, Seq base = 1) {
    memory_ = std::make_unique<TestMemory>(arena_bytes);
    arena_ = std::make_unique<Arena>(memory_->FormatAndAttach());
    slot_ = VolumeSlot{};
    slot_.volume = TestVolume();
    slot_.epoch = 1;
    slot_.session = 77;
    slot_.base = base;
    slot_.grant_segments = grant;
    slot_index_ = arena_->NewSlot(slot_).value();
    log_ = std::make_unique<VolumeLog>(*arena_, slot_index_, slot_);
  }

  // Starts a new process: only the arena's bytes are left.
  VolumeLog::RebuildReport Restart() {
    log_.reset();
    arena_ = std::make_unique<Arena>(memory_->Attach());
    log_ = std::make_unique<VolumeLog>(*arena_, slot_index_, *arena_->slot(slot_index_));
    // The segments may come in any order.
    return log_->Rebuild([](size_t count, const std::function<void(size_t)>& one) {
      while (count > 0) one(--count);
    });
  }

  Result Append(const std::string& record) {
    return log_->Append(Decoded(record), AsBytes(record));
  }
  Result AddPiece(const std::string& record, Seq seq, uint32_t offset, uint32_t bytes) {
    const std::string payload = Piece(record, seq, offset, bytes);
    const FragmentHeader fragment = DecodeFragmentHeader(AsBytes(payload)).value();
    RecordHeader completed;
    return log_->AddPiece(fragment, AsBytes(payload).subspan(kFragmentHeaderBytes), &completed);
  }
  std::string ReadAll(Seq after = 0) {
    std::string all;
    Seq cursor = after;
    const Seq upto = log_->held().highest();
    while (cursor < upto) log_->Read(cursor, upto, all.size() + 1000, &all, &cursor);
    return all;
  }
  // Fills a log whose first segment is (almost) empty with records 1 to 5. Afterwards `left` bytes
  // of that segment are left, a multiple of 8. Returns the five.
  std::string FillUpTo(uint32_t left) {
    std::string all;
    size_t body = 100000;
    for (Seq seq = 1; seq <= 5; ++seq) {
      const std::string record = TestRecord(seq, body, 1, TestVolume(), 'a' + seq);
      SALIUS_CHECK(Append(record) == Result::kStored);
      all += record;
      const uint32_t used = *arena_->segment_used(arena_->SegmentsOf(slot_index_).at(0));
      if (seq == 5) SALIUS_CHECK(used == arena_->geometry().segment_bytes - left);
      if (seq == 4) {
        body = arena_->geometry().segment_bytes - used - left - kLogEntryBytes - kRecordHeaderBytes;
      }
    }
    return all;
  }
  // Returns the place in the arena of a held record's body.
  uint8_t* Find(const std::string& record) {
    const auto memory = memory_->span();
    const auto bytes = AsBytes(record);
    const auto at = std::search(memory.begin() + arena_->geometry().segments_at, memory.end(),
                                bytes.begin(), bytes.end());
    SALIUS_CHECK(at != memory.end());
    return &*at;
  }

  std::unique_ptr<TestMemory> memory_;
  std::unique_ptr<Arena> arena_;
  VolumeSlot slot_;
  uint32_t slot_index_ = 0;
  std::unique_ptr<VolumeLog> log_;
};

}  // namespace salius
