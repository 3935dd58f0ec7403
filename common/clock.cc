#include "common/clock.h"

#include <time.h>

#include "common/check.h"

namespace salius {
namespace {

int64_t Read(clockid_t id) {
  timespec now;
  SALIUS_CHECK(clock_gettime(id, &now) == 0);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

class RealClock : public Clock {
 public:
  int64_t MonotonicNanos() override { return Read(CLOCK_MONOTONIC); }
  int64_t RealtimeNanos() override { return Read(CLOCK_REALTIME); }
};

}  // namespace

Clock& SystemClock() {
  static RealClock* const clock = new RealClock;  // Never destroyed: threads may outlive main().
  return *clock;
}

void ManualClock::Advance(int64_t ns) {
  SALIUS_CHECK(ns >= 0) << "a monotonic clock never goes back";
  monotonic_ns_.fetch_add(ns);
  realtime_ns_.fetch_add(ns);
}

}  // namespace salius
