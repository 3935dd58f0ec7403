// A condition that becomes true once, awaited by the monotonic clock. Abseil's waits use the wall
// clock, and setting that clock would end them early or never.
//
// Threads: any.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>

namespace salius {

class Event {
 public:
  void Set() {
    const std::lock_guard<std::mutex> lock(mutex_);
    set_ = true;
    changed_.notify_all();
  }

  // Waits for at most `bound`; returns whether it was set by then.
  bool WaitFor(std::chrono::milliseconds bound) {
    std::unique_lock<std::mutex> lock(mutex_);
    return changed_.wait_until(lock, std::chrono::steady_clock::now() + bound,
                               [this] { return set_; });
  }

 private:
  std::mutex mutex_;  // guards set_
  std::condition_variable changed_;
  bool set_ = false;
};

}  // namespace salius
