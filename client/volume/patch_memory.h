// The memory of unapplied data ("patch memory" in the paper on non-blocking writes), over all files of
// a volume: the bytes that their extents hold. At a limit writers wait until records are applied.
//
// Threads: any. The lock is a leaf.
#pragma once

#include <atomic>
#include <cstdint>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "client/session/record_stream.h"
#include "common/metrics.h"
#include "common/monotonic_cond.h"

namespace salius {

inline constexpr uint64_t kDefaultPatchMemoryBytes = uint64_t{64} << 20;

class PatchMemory {
 public:
  explicit PatchMemory(uint64_t limit_bytes);
  PatchMemory(const PatchMemory&) = delete;
  PatchMemory& operator=(const PatchMemory&) = delete;

  uint64_t limit() const { return limit_; }
  uint64_t used() const { return used_.load(std::memory_order_relaxed); }
  // Returns whether a writer waits for room.
  bool awaited() const { return waiting_.load(std::memory_order_relaxed) > 0; }
  // Notes that the extents of a file had `before` bytes and have `after` now.
  void Changed(uint64_t before, uint64_t after);
  // Waits while the limit is reached. The caller holds no lock that Apply takes. Errors as
  // RecordStream::WaitApplied.
  absl::Status AwaitRoom(RecordStream& stream) {
    return used() < limit_ ? absl::OkStatus() : AwaitRoomSlowly(stream);
  }

 private:
  absl::Status AwaitRoomSlowly(RecordStream& stream) ABSL_LOCKS_EXCLUDED(mu_);

  const uint64_t limit_;
  Counter& waits_;
  std::atomic<uint64_t> used_{0};
  std::atomic<int> waiting_{0};
  absl::Mutex mu_;
  MonotonicCond room_;
};

}  // namespace salius
