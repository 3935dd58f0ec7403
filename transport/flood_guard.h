// Lets the kernel drop most of a flood: while many datagrams of a channel are refused, the channel
// has a filter (transport/flood_filter.h) that follows the key ring.
//
//   begins   kBegins datagrams were refused within kWindowNs
//   follows  each new key of the ring at once, and the counters every kFollowsNs
//   ends     less than kEnds datagrams were refused and dropped by the kernel within kWindowNs; or
//            none was refused in kQuietWindows windows: in a flood some are. The kernel's drops are
//            then those of a full buffer
//
// In ordinary life there is no filter: each refused datagram is received and counted by reason. A
// channel without filters, and a ring without keys, stay as they are.
//
// Threads: thread safe. Changes of the ring call it from their threads; the ring outlives it. The lock
// is held over the system call that attaches a program, so that an older one never replaces a newer.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/clock.h"
#include "transport/datagram_channel.h"
#include "transport/key_ring.h"

namespace salius {

class FloodGuard {
 public:
  static constexpr int64_t kWindowNs = 100'000'000;
  static constexpr uint64_t kBegins = 2000;
  static constexpr uint64_t kEnds = 500;
  static constexpr int kQuietWindows = 10;
  static constexpr int64_t kFollowsNs = 50'000'000;

  // `notices`: whether the channel wants notices about its keys. `channel`, `ring` and `clock`
  // outlive this.
  FloodGuard(DatagramChannel& channel, KeyRing& ring, bool notices, Clock& clock);
  ~FloodGuard();
  FloodGuard(const FloodGuard&) = delete;
  FloodGuard& operator=(const FloodGuard&) = delete;

  // Takes notice that a receive of the channel had `refused` datagrams that were refused. Call it
  // after each receive.
  void Received(size_t refused) {
    if (refused > 0 || filters()) Count(refused);
  }
  // Whether the channel has a filter now.
  bool filters() const { return filters_.load(std::memory_order_relaxed); }

 private:
  void Count(size_t refused);
  void EndWindow(int64_t now_ns) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Attach(int64_t now_ns) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status SetFilter(const FloodRules& rules) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void KeysChanged();

  DatagramChannel& channel_;
  KeyRing& ring_;
  const bool notices_;
  Clock& clock_;
  std::atomic<bool> filters_{false};
  absl::Mutex mutex_;
  bool cannot_ ABSL_GUARDED_BY(mutex_) = false;  // the channel knows no filters
  bool failed_ ABSL_GUARDED_BY(mutex_) = false;  // the kernel did not take one, and the log says so
  // The window: its begin, the datagrams refused in it, and the kernel's drops at its begin.
  int64_t begin_ns_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t refused_ ABSL_GUARDED_BY(mutex_) = 0;
  uint32_t dropped_ ABSL_GUARDED_BY(mutex_) = 0;
  int quiet_windows_ ABSL_GUARDED_BY(mutex_) = 0;  // the last ones, without a refused datagram
  int64_t attached_ns_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace salius
