// Gives memory back to the system some time after many objects were freed: the C library keeps what
// was freed, in this process for good.
//
// Threads: any may call NoteFreed, which takes a lock once in a while only. One thread of its own
// gives the memory back.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/monotonic_cond.h"

namespace salius {

class MemoryReturn {
 public:
  // Has `give_back` called when at least `worth` objects were freed and then none for `calm`. It
  // may free further objects.
  MemoryReturn(uint64_t worth, std::chrono::nanoseconds calm, std::function<void()> give_back);
  // Ends the thread. Memory that was freed last may stay.
  ~MemoryReturn();
  MemoryReturn(const MemoryReturn&) = delete;
  MemoryReturn& operator=(const MemoryReturn&) = delete;

  // Counts a freed object.
  void NoteFreed() {
    if (freed_.fetch_add(1, std::memory_order_relaxed) + 1 == worth_) Wake();
  }

 private:
  void Wake() ABSL_LOCKS_EXCLUDED(mutex_);
  void Work() ABSL_LOCKS_EXCLUDED(mutex_);
  // Waits until nothing was freed for the time of calm. Returns false at the end.
  bool AwaitCalm() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const uint64_t worth_;
  const std::chrono::nanoseconds calm_;
  const std::function<void()> give_back_;
  std::atomic<uint64_t> freed_{0};  // since the memory was given back
  absl::Mutex mutex_;               // never held over give_back_
  MonotonicCond changed_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace salius
