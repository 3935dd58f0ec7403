// A condition variable for absl::Mutex whose timed wait uses the monotonic clock.
//
// The distribution's Abseil (20220623) turns the bound of absl::CondVar::WaitWithTimeout and of
// absl::Mutex::AwaitWithTimeout into a time of the wall clock. The kernel then waits until the wall
// clock shows that time: a clock that is set back by an hour makes the wait an hour longer, and a
// clock that is set forward ends it at once. WaitFor below waits on CLOCK_MONOTONIC, which cannot be
// set. An untimed wait has no such problem: use absl::CondVar for it.
//
// absl::CondVar moves a signalled waiter to the queue of a mutex that is held. This class wakes the
// waiter, which then waits for the mutex. Prefer absl::CondVar where many threads wait untimed.
//
// Threads: any. All users of one object use the same mutex, and hold it in every call.
#pragma once

#include <atomic>
#include <cstdint>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

struct timespec;

namespace salius {

class MonotonicCond {
 public:
  MonotonicCond() = default;
  MonotonicCond(const MonotonicCond&) = delete;
  MonotonicCond& operator=(const MonotonicCond&) = delete;

  // Releases `mutex`, waits for a signal, and takes `mutex` again. May return without a signal:
  // test the condition in a loop.
  void Wait(absl::Mutex* mutex) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
  // Waits likewise, for at most `bound_ns` nanoseconds of the monotonic clock; not at all when that
  // is not positive. Returns false when that time has passed without a signal.
  bool WaitFor(absl::Mutex* mutex, int64_t bound_ns) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);

  // Wakes one waiter, if there is any, or more. The caller holds the waiters' mutex.
  void Signal();
  // Wakes all waiters. The caller holds their mutex.
  void SignalAll();

 private:
  bool Sleep(absl::Mutex* mutex, const timespec* until) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
  void Wake(int most);

  std::atomic<uint32_t> signals_{0};  // a futex; changes with each signal
  uint32_t waiters_ = 0;              // guarded by the waiters' mutex
};

}  // namespace salius
