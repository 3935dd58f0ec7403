// Time behind an interface, so that tests and the simulator step it.
#ifndef SALIUS_COMMON_CLOCK_H_
#define SALIUS_COMMON_CLOCK_H_

#include <atomic>
#include <cstdint>

namespace salius {

// Thread-safe.
class Clock {
 public:
  virtual ~Clock() = default;

  // Returns nanoseconds since some fixed instant; never goes back. For every interval and time-out.
  virtual int64_t MonotonicNanos() = 0;

  // Returns nanoseconds since 1970. May jump either way; for timestamps and for people only.
  virtual int64_t RealtimeNanos() = 0;
};

// Returns CLOCK_MONOTONIC and CLOCK_REALTIME of this host. Lives for ever.
Clock& SystemClock();

// A clock that moves only when a test moves it.
class ManualClock : public Clock {
 public:
  // Both readings start at the values given, in nanoseconds.
  explicit ManualClock(int64_t monotonic_ns = 1'000'000'000, int64_t realtime_ns = 0)
      : monotonic_ns_(monotonic_ns), realtime_ns_(realtime_ns) {}

  int64_t MonotonicNanos() override { return monotonic_ns_.load(); }
  int64_t RealtimeNanos() override { return realtime_ns_.load(); }

  // Moves both readings forward by `ns`, which must not be negative.
  void Advance(int64_t ns);

  // Makes the real-time reading jump, as an administrator or NTP does.
  void SetRealtime(int64_t realtime_ns) { realtime_ns_.store(realtime_ns); }

 private:
  std::atomic<int64_t> monotonic_ns_;
  std::atomic<int64_t> realtime_ns_;
};

}  // namespace salius

#endif  // SALIUS_COMMON_CLOCK_H_
