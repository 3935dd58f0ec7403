// A point on the monotonic clock at which something ends. A value: it holds no clock and starts no
// timer.
#pragma once

#include <algorithm>
#include <chrono>
#include <compare>
#include <cstdint>
#include <limits>

#include "common/clock.h"

namespace salius {

class Deadline {
 public:
  // Returns the deadline that is `ns` nanoseconds away; one that has expired when `ns` is not
  // positive.
  static Deadline After(Clock& clock, int64_t ns) {
    const int64_t now = clock.MonotonicNanos();
    return Deadline(ns < kNever - now ? now + std::max<int64_t>(ns, 0) : kNever);
  }
  static Deadline After(Clock& clock, std::chrono::nanoseconds time) {
    return After(clock, int64_t{time.count()});
  }
  static Deadline AfterMillis(Clock& clock, int64_t ms) { return After(clock, ms * 1'000'000); }
  // Returns the deadline that never expires.
  static Deadline Never() { return Deadline(kNever); }

  // `clock` is the clock that the deadline was made with, here and below.
  bool Expired(Clock& clock) const {
    return ExpiredAt(at_ns_ == kNever ? 0 : clock.MonotonicNanos());
  }
  // Returns whether it has expired at the monotonic time `now_ns`.
  bool ExpiredAt(int64_t now_ns) const { return now_ns >= at_ns_; }
  // Returns the nanoseconds that are left: 0 when it has expired, INT64_MAX when it never expires.
  int64_t RemainingNs(Clock& clock) const {
    return at_ns_ == kNever ? kNever : std::max<int64_t>(at_ns_ - clock.MonotonicNanos(), 0);
  }

  // The earlier one is less. Both were made with the same clock.
  auto operator<=>(const Deadline&) const = default;

 private:
  static constexpr int64_t kNever = std::numeric_limits<int64_t>::max();
  explicit Deadline(int64_t at_ns) : at_ns_(at_ns) {}

  int64_t at_ns_;
};

}  // namespace salius
