#include "common/monotonic_cond.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "common/clock.h"

namespace salius {
namespace {

constexpr int64_t kSecondNs = 1'000'000'000;
// A longer wait is one without a bound.
constexpr int64_t kForEverNs = 1'000'000'000 * kSecondNs;

static_assert(sizeof(std::atomic<uint32_t>) == sizeof(uint32_t));

// `until`: a time of CLOCK_MONOTONIC; null: no bound.
long Futex(std::atomic<uint32_t>& word, int operation, uint32_t value, const timespec* until) {
  return syscall(SYS_futex, &word, operation | FUTEX_PRIVATE_FLAG, value, until, nullptr,
                 FUTEX_BITSET_MATCH_ANY);
}

}  // namespace

void MonotonicCond::Wait(absl::Mutex* mutex) { Sleep(mutex, nullptr); }

bool MonotonicCond::WaitFor(absl::Mutex* mutex, int64_t bound_ns) {
  if (bound_ns <= 0) return false;
  if (bound_ns >= kForEverNs) return Sleep(mutex, nullptr);
  const int64_t at = SystemClock().MonotonicNanos() + bound_ns;
  const timespec until{at / kSecondNs, at % kSecondNs};
  return Sleep(mutex, &until);
}

// A signal that comes after the mutex was released changes the word, so the kernel does not let the
// thread sleep.
bool MonotonicCond::Sleep(absl::Mutex* mutex, const timespec* until) {
  const uint32_t before = signals_.load(std::memory_order_relaxed);
  ++waiters_;
  mutex->Unlock();
  const bool late = Futex(signals_, FUTEX_WAIT_BITSET, before, until) < 0 && errno == ETIMEDOUT;
  mutex->Lock();
  --waiters_;
  return !late;
}

void MonotonicCond::Signal() { Wake(1); }

void MonotonicCond::SignalAll() { Wake(INT_MAX); }

void MonotonicCond::Wake(int most) {
  if (waiters_ == 0) return;
  signals_.fetch_add(1, std::memory_order_relaxed);
  Futex(signals_, FUTEX_WAKE, static_cast<uint32_t>(most), nullptr);
}

}  // namespace salius
