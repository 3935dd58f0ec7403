// System calls without the C library: no errno, no cancellation point, no interposed function.
// They go through the page that a gate's filter allows, where it is mapped (client/gate/call_page.h).
// They work before the library's constructor, in signal handlers and in children of vfork(2).
#pragma once

#include <sys/syscall.h>
#include <cerrno>

#include <type_traits>

#include "client/gate/call_page.h"

#if !defined(__x86_64__)
#error "the preload library knows the system calls of x86-64 only"
#endif

namespace salius::preload {

template <typename Value>
inline long RegisterOf(Value value) {
  if constexpr (std::is_pointer_v<Value> || std::is_null_pointer_v<Value>) {
    return reinterpret_cast<long>(static_cast<const volatile void*>(value));
  } else {
    return static_cast<long>(value);
  }
}

inline long RawSix(long number, long a, long b, long c, long d, long e, long f) {
  return salius_gate_call(number, a, b, c, d, e, f);
}

// Makes system call `number` with up to six arguments. Returns what the kernel returns: a failure
// is -errno.
template <typename... Arguments>
inline long Raw(long number, Arguments... arguments) {
  static_assert(sizeof...(Arguments) <= 6);
  long words[6] = {RegisterOf(arguments)...};
  return RawSix(number, words[0], words[1], words[2], words[3], words[4], words[5]);
}

// Returns a result of Raw as the C library returns it: -1 with errno set when it is a failure.
inline long Returned(long result) {
  if (result >= 0 || result < -4095) return result;
  errno = static_cast<int>(-result);
  return -1;
}

}  // namespace salius::preload
