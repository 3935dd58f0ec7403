// Looking for something that is about to come, for a short time, before going to sleep: where a
// sleeping CPU takes tens of microseconds to wake, and two threads hand work to each other, half of
// a hand-over is that wake-up.
//
// Spins only where that pays: one thread at a time, and after several vain attempts hardly ever,
// until one succeeds in time. Between two looks it yields the CPU (sched_yield(2)), to threads of
// its own scheduling group at least, so that on a busy machine the spinner is the one who waits.
//
// Thread-safe.
#pragma once

#include <atomic>
#include <cstdint>

#include "absl/functional/function_ref.h"
#include "common/clock.h"

namespace salius {

class Spinner {
 public:
  // Vain attempts in a row after which it gives up, and chances it then lets go by before the next.
  static constexpr int kVain = 8;
  static constexpr int kRest = 64;

  // Looks for at most `limit_ns` nanoseconds; 0: never.
  Spinner(int64_t limit_ns, Clock& clock) : limit_ns_(limit_ns), clock_(clock) {}
  Spinner(const Spinner&) = delete;
  Spinner& operator=(const Spinner&) = delete;

  // Calls `ready` until it returns true or the time is over. Returns whether it did; false at once
  // when another thread is spinning or when it has not paid lately.
  bool Spin(absl::FunctionRef<bool()> ready);

 private:
  const int64_t limit_ns_;
  Clock& clock_;
  std::atomic<bool> spinning_{false};
  // Only who set `spinning_` uses these.
  int vain_ = 0;
  int rest_ = 0;
};

}  // namespace salius
