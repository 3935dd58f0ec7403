// One simulated replica: the shipping arena and acceptor over a block of memory that survives its
// process, and promises on a disk that survives its host.
//
// Threads: one.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/random.h"
#include "replica/acceptor.h"
#include "replica/promise_keeper.h"
#include "tests/sim/sealed_ends.h"
#include "tests/unit/replica/memory_promises.h"

namespace salius::sim {

// A replica's answer to a session that it opened.
struct Opening {
  Incarnation incarnation = 0;
  StoreId store = 0;
  uint64_t free_bytes = 0;
  SealKey ack_key{};  // the answer to an offered key
  bool compact_records = true;
};

class ReplicaHost {
 public:
  // `abandon_after_ns`: the administrator's --abandon-after; 0: never. `judge`: of its sealed
  // datagrams, and outlives it; null: they are plain. `plain_too`: as of ReplicaSeal.
  ReplicaHost(uint64_t seed, int64_t abandon_after_ns, SealJudge* judge = nullptr,
              bool plain_too = false);

  // Starts the host again, without its memory; `promises_too`: on a new disk.
  void LoseMemory(int64_t now, bool promises_too);
  void RestartProcess(int64_t now);
  // Remember keeps a copy of the present memory. PutBack restores the last copy, under its
  // incarnation, as the revert of a virtual machine does. When the memory is lost, its copy is lost
  // too.
  void Remember();
  bool remembers() const { return copy_ != nullptr; }
  void Forget() { copy_.reset(); }
  void PutBack(int64_t now);
  // Handles a datagram; returns the answer, empty when there is none.
  std::string OnDatagram(int64_t now, std::string_view datagram);
  Acceptor& acceptor() { return *acceptor_; }
  // Open a session or fence, as replica/control_service.cc does: nothing is answered before it is
  // kept.
  // `offer` (may be null): a key for the session's datagrams.
  absl::StatusOr<Opening> Open(int64_t now, const SessionParams& params,
                               const KeyOffer* offer = nullptr);
  absl::StatusOr<Acceptor::FenceResult> Fence(const VolumeId& volume, Epoch epoch, uint64_t token);
  absl::Status Drop(const VolumeId& volume, Epoch epoch);
  // Returns the act by which it broke a promise (I4); empty when there is none.
  const std::string& broken_promise() const { return broken_promise_; }
  // Does the work that its process does four times a second; call it often. Returns an error text
  // when it gave up its log too early after a life that NoteLife() noted; else empty.
  std::string Tick(int64_t now);
  // Notes that a primary or a recovery with a right to the log was there at `now`.
  void NoteLife(int64_t now) { life_ = Clock(now); }
  // Returns the seq below which records were given up with the log; 0: none.
  Seq given_up() const { return given_up_; }
  // Returns whether it gave up its log, and no session was opened since.
  bool abandoned() const { return given_up_ == kAll; }
  // Returns the number of records for which this process had no room.
  uint64_t times_full() const {
    return acceptor_->counters().drops[static_cast<size_t>(Drop::kMemoryFull)];
  }

  // Returns the host's own monotonic clock.
  int64_t Clock(int64_t now) const {
    return offset + static_cast<int64_t>(static_cast<double>(now) * rate);
  }
  int64_t offset = 0;
  double rate = 1;
  bool takes_compact = true;  // false: it is of a version that refuses compact frames

  // Until when datagrams to it, or from it, are dropped. Until when it takes nothing, or takes up
  // to `slowness` for each datagram.
  int64_t deaf_until = 0, mute_until = 0, stuck_until = 0, slow_until = 0;
  int64_t slowness = 0;
  int64_t down_until = 0;  // its process or its host is still starting; it is deaf and mute too
  int64_t realtime_offset = 0;  // of its wall clock, which nothing reads
  bool Reachable(int64_t now) const { return now >= deaf_until && now >= mute_until; }

 private:
  void Opened(int64_t now, Epoch epoch, Seq base);  // notes a new session
  // Returns the answer's frame. `sealed`: it came sealed.
  std::string OnFrame(int64_t now, std::string_view frame, bool sealed);
  // Blocks are reused between lifetimes: the content from an earlier one must not matter.
  struct Block {
    Block();
    ~Block();
    std::unique_ptr<uint8_t[]> bytes;
  };
  absl::Span<uint8_t> memory() { return {block_.bytes.get(), kMinArenaBytes}; }

  const int64_t abandon_after_;
  SealJudge* const judge_;
  const bool plain_too_;
  Block block_;
  std::unique_ptr<Block> copy_;
  Random random_;
  MemoryPromises promises_;
  Epoch promised_ = 0;  // to a recovery, and answered, since the promises were last lost
  std::string broken_promise_;
  std::optional<Arena> arena_;
  std::unique_ptr<Acceptor> acceptor_;
  std::unique_ptr<PromiseKeeper> keeper_;
  std::unique_ptr<ReplicaSeal> seal_;  // of its process; null: plain
  int64_t life_ = 0, next_tick_ = 0;  // of its own clock
  static constexpr Seq kAll = UINT64_MAX;
  Epoch epoch_ = 0;  // of the last session
  Seq given_up_ = 0;
};
}  // namespace salius::sim
