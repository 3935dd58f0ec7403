#include "common/spinner.h"

#include <sched.h>

namespace salius {

bool Spinner::Spin(absl::FunctionRef<bool()> ready) {
  if (limit_ns_ <= 0 || spinning_.exchange(true, std::memory_order_acquire)) return false;
  bool found = false;
  if (rest_ > 0) {
    --rest_;
  } else {
    const int64_t end = clock_.MonotonicNanos() + limit_ns_;
    while (!(found = ready()) && clock_.MonotonicNanos() < end) sched_yield();
    vain_ = found ? 0 : vain_ + 1;
    if (vain_ >= kVain) rest_ = kRest;
  }
  spinning_.store(false, std::memory_order_release);
  return found;
}

}  // namespace salius
