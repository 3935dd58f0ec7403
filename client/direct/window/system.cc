#include "client/direct/window/system.h"

#include "client/gate/call_page.h"

namespace salius::direct {
namespace {

int64_t Now(clockid_t clock) {
  timespec now{};
  clock_gettime(clock, &now);
  return now.tv_sec * int64_t{1'000'000'000} + now.tv_nsec;
}

}  // namespace

long RawCall(long number, long a, long b, long c, long d, long e, long f) {
  return salius_gate_call(number, a, b, c, d, e, f);
}

int64_t MonotonicNs() { return Now(CLOCK_MONOTONIC); }
int64_t RealtimeNs() { return Now(CLOCK_REALTIME); }

}  // namespace salius::direct
