#include "common/spinner.h"

#include <sched.h>

namespace salius {

bool Spinner::Spin(absl::FunctionRef<bool()> ready) {
  if (limit_ns_ <= 0 || spinning_.exchange(true, std::memory_order_acquire)) return false;
  bool found = false;
  if (rest_ > 0) {
    --rest_;
  } else {
    int64_t now = clock_.MonotonicNanos();
    const int64_t end = now + limit_ns_;
    while (true) {
      found = ready();
      now = clock_.MonotonicNanos();
      if (found || now >= end) break;
      sched_yield();
    }
    // A result that came too late would have been there without spinning.
    vain_ = found && now <= end ? 0 : vain_ + 1;
    if (vain_ >= kVain) rest_ = kRest;
  }
  spinning_.store(false, std::memory_order_release);
  return found;
}

}  // namespace salius
