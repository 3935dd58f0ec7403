// Polls for a short time for something that is about to come, before going to sleep. A sleeping CPU
// can take tens of microseconds to wake. Where two threads hand work to each other, that wake-up is
// half of a hand-over.
//
// Spins only where that pays: one thread at a time, and after several vain attempts hardly ever,
// until one succeeds in time. Between two polls it yields the CPU (sched_yield(2)), to threads of
// its own scheduling group at least. So on a busy machine the spinner is the thread that waits.
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
  // Vain attempts in a row after which it gives up, and chances it then skips before the next.
  static constexpr int kVain = 8;
  static constexpr int kRest = 64;

  // Polls for at most `limit_ns` nanoseconds; 0: never.
  Spinner(int64_t limit_ns, Clock& clock) : limit_ns_(limit_ns), clock_(clock) {}
  Spinner(const Spinner&) = delete;
  Spinner& operator=(const Spinner&) = delete;

  // Calls `ready` until it returns true or the time is over. Returns whether it did. Returns false
  // at once when another thread is spinning or when spinning has not paid lately.
  bool Spin(absl::FunctionRef<bool()> ready);

 private:
  const int64_t limit_ns_;
  Clock& clock_;
  std::atomic<bool> spinning_{false};
  // Only the thread that set `spinning_` uses these.
  int vain_ = 0;
  int rest_ = 0;
};

}  // namespace salius
