// What the tests of a volume's log share: a log in an arena of its own, and another process on it.
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
  // A new arena with one volume in it.
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

  // A new process: nothing but the arena's bytes is left.
  VolumeLog::RebuildReport Restart() {
    log_.reset();
    arena_ = std::make_unique<Arena>(memory_->Attach());
    log_ = std::make_unique<VolumeLog>(*arena_, slot_index_, *arena_->slot(slot_index_));
    // The segments in any order.
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
  // Where in the arena the body of a held record stands.
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
