#include "client/direct/window/system.h"

#include <unistd.h>

#include <cerrno>

namespace salius::direct {
namespace {

int64_t Now(clockid_t clock) {
  timespec now{};
  clock_gettime(clock, &now);
  return now.tv_sec * int64_t{1'000'000'000} + now.tv_nsec;
}

}  // namespace

long RawCall(long number, long a, long b, long c, long d, long e, long f) {
#ifdef __x86_64__
  long result;
  register long r10 __asm__("r10") = d;
  register long r8 __asm__("r8") = e;
  register long r9 __asm__("r9") = f;
  __asm__ volatile("syscall"
                   : "=a"(result)
                   : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
                   : "rcx", "r11", "memory");
  return result;
#else
  const int saved = errno;
  const long result = syscall(number, a, b, c, d, e, f);
  const long answer = result < 0 ? -errno : result;
  errno = saved;
  return answer;
#endif
}

int64_t MonotonicNs() { return Now(CLOCK_MONOTONIC); }
int64_t RealtimeNs() { return Now(CLOCK_REALTIME); }

}  // namespace salius::direct
