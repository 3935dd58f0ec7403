#include "common/monotonic_cond.h"

#include <thread>
#include <vector>

#include "common/clock.h"
#include "gtest/gtest.h"

namespace salius {
namespace {

constexpr int64_t kMs = 1'000'000;
constexpr int64_t kMinute = 60'000 * kMs;

struct Shared {
  absl::Mutex mutex;
  MonotonicCond changed;
  int value ABSL_GUARDED_BY(mutex) = 0;
  int waiting ABSL_GUARDED_BY(mutex) = 0;
};

// Waits until `value` is at least `least`. A bounded wait fails the test after a minute.
void AwaitValue(Shared& shared, int least, bool bounded) {
  absl::MutexLock lock(&shared.mutex);
  ++shared.waiting;
  while (shared.value < least) {
    if (bounded) {
      EXPECT_TRUE(shared.changed.WaitFor(&shared.mutex, kMinute));
    } else {
      shared.changed.Wait(&shared.mutex);
    }
  }
}

TEST(MonotonicCondTest, WaitEndsAtItsBound) {
  Shared shared;
  const int64_t before = SystemClock().MonotonicNanos();
  absl::MutexLock lock(&shared.mutex);
  while (shared.changed.WaitFor(&shared.mutex, 5 * kMs)) {
  }
  EXPECT_GE(SystemClock().MonotonicNanos() - before, 5 * kMs);
}

TEST(MonotonicCondTest, WaitWithoutTimeReturnsAtOnce) {
  Shared shared;
  absl::MutexLock lock(&shared.mutex);
  EXPECT_FALSE(shared.changed.WaitFor(&shared.mutex, 0));
  EXPECT_FALSE(shared.changed.WaitFor(&shared.mutex, -kMinute));
}

TEST(MonotonicCondTest, SignalAllWakesEveryWaiter) {
  Shared shared;
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) threads.emplace_back([&, i] { AwaitValue(shared, 1, i % 2 == 0); });
  {
    absl::MutexLock lock(&shared.mutex);
    shared.mutex.Await(absl::Condition(
        +[](int* waiting) { return *waiting == 4; }, &shared.waiting));
    shared.value = 1;
    shared.changed.SignalAll();
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(MonotonicCondTest, SignalBetweenTwoThreadsIsNeverLost) {
  constexpr int kRounds = 20'000;
  Shared shared;
  const auto play = [&](int parity) {
    absl::MutexLock lock(&shared.mutex);
    while (shared.value < kRounds) {
      if (shared.value % 2 == parity) {
        ++shared.value;
        shared.changed.Signal();
      } else {
        EXPECT_TRUE(shared.changed.WaitFor(&shared.mutex, kMinute));
      }
    }
  };
  std::thread other([&] { play(1); });
  play(0);
  other.join();
}

TEST(MonotonicCondTest, SignalsWithoutWaitersAreNotKept) {
  Shared shared;
  absl::MutexLock lock(&shared.mutex);
  shared.changed.Signal();
  shared.changed.SignalAll();
  EXPECT_FALSE(shared.changed.WaitFor(&shared.mutex, kMs));
}

}  // namespace
}  // namespace salius
