// System calls of the library itself, straight to the kernel: the preload library replaces the C
// library's functions of these names, and its own calls must not come back to it. They leave errno
// alone and are no cancellation points. Each returns what the kernel returns: -errno on an error.
//
// RawCall and the clocks are the only way of the window and of a process to the kernel, but for the
// robust locks. A simulator links its own (tests/sim/direct_kernel.h).
#pragma once

#include <fcntl.h>
#include <linux/futex.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>

#include <atomic>
#include <cstdint>

namespace salius::direct {

long RawCall(long number, long a = 0, long b = 0, long c = 0, long d = 0, long e = 0, long f = 0);

template <typename T>
long AsLong(T* pointer) {
  return reinterpret_cast<long>(pointer);
}

inline int RawClose(int fd) { return static_cast<int>(RawCall(SYS_close, fd)); }
inline int RawFsync(int fd) { return static_cast<int>(RawCall(SYS_fsync, fd)); }
inline int RawFdatasync(int fd) { return static_cast<int>(RawCall(SYS_fdatasync, fd)); }
inline int RawSyncfs(int fd) { return static_cast<int>(RawCall(SYS_syncfs, fd)); }
inline int RawFcntl(int fd, int command, long argument) {
  return static_cast<int>(RawCall(SYS_fcntl, fd, command, argument));
}
inline int RawOpenDirectory(const char* path) {
  return static_cast<int>(
      RawCall(SYS_openat, AT_FDCWD, AsLong(path), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
}
inline int RawSendmmsg(int fd, mmsghdr* messages, unsigned count) {
  return static_cast<int>(RawCall(SYS_sendmmsg, fd, AsLong(messages), count, MSG_NOSIGNAL));
}
inline int RawRecvmmsg(int fd, mmsghdr* messages, unsigned count, int flags) {
  return static_cast<int>(RawCall(SYS_recvmmsg, fd, AsLong(messages), count, flags));
}

// The clocks of the host, ns.
int64_t MonotonicNs();
int64_t RealtimeNs();

// Sleeps while *word is `expected`, for at most `timeout_ns`, until a wake with a bit of `bits`.
inline void FutexWait(std::atomic<uint32_t>& word, uint32_t expected, int64_t timeout_ns,
                      uint32_t bits) {
  // The bitset form takes an absolute time of the monotonic clock.
  const int64_t ns = MonotonicNs() + timeout_ns;
  const timespec until{ns / 1'000'000'000, ns % 1'000'000'000};
  RawCall(SYS_futex, AsLong(&word), FUTEX_WAIT_BITSET, expected, AsLong(&until), 0, bits);
}
// Wakes at most `count` sleepers whose bits meet `bits`.
inline void FutexWake(std::atomic<uint32_t>& word, int count, uint32_t bits) {
  RawCall(SYS_futex, AsLong(&word), FUTEX_WAKE_BITSET, count, 0, 0, bits);
}

}  // namespace salius::direct
