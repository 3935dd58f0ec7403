// A lock between processes that survives its owner's death: the kernel marks it, and the next to
// take it learns that.
//
// Needs the standard library and POSIX only; never allocates. Not async-signal-safe.
#pragma once

#include <cerrno>
#include <utility>

#include "client/direct/window/layout.h"
#include "common/require.h"

namespace salius::direct {

// Makes `word` a free lock. Once, when the memory is formatted.
inline void InitLock(RobustWord& word) {
  pthread_mutexattr_t attributes;
  SALIUS_REQUIRE(pthread_mutexattr_init(&attributes) == 0);
  SALIUS_REQUIRE(pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED) == 0);
  SALIUS_REQUIRE(pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST) == 0);
  SALIUS_REQUIRE(pthread_mutex_init(&word.mutex, &attributes) == 0);
  pthread_mutexattr_destroy(&attributes);
}

// The result of an attempt to take a lock.
enum class Taken { kNo, kYes, kFromTheDead };

// Takes the lock; waits for it. kFromTheDead: its last owner died with it, so the guarded data may be
// half done. The lock is good again afterwards.
inline Taken TakeLock(RobustWord& word) {
  const int error = pthread_mutex_lock(&word.mutex);
  if (error == 0) return Taken::kYes;
  SALIUS_REQUIRE(error == EOWNERDEAD);
  SALIUS_REQUIRE(pthread_mutex_consistent(&word.mutex) == 0);
  return Taken::kFromTheDead;
}

// Takes the lock if it is free, or its owner is dead.
inline Taken TryTakeLock(RobustWord& word) {
  const int error = pthread_mutex_trylock(&word.mutex);
  if (error == 0) return Taken::kYes;
  if (error == EBUSY) return Taken::kNo;
  SALIUS_REQUIRE(error == EOWNERDEAD);
  SALIUS_REQUIRE(pthread_mutex_consistent(&word.mutex) == 0);
  return Taken::kFromTheDead;
}

inline void GiveLock(RobustWord& word) { SALIUS_REQUIRE(pthread_mutex_unlock(&word.mutex) == 0); }

// Returns whether a living thread holds the lock. Takes nothing and waits for nothing.
inline bool HeldByTheLiving(const RobustWord& word) {
  // The futex word of a robust mutex (futex(2), "Robust futexes"): the owner's thread id, and the
  // bit that the kernel sets at its death.
  const auto value =
      static_cast<uint32_t>(__atomic_load_n(&word.mutex.__data.__lock, __ATOMIC_ACQUIRE));
  constexpr uint32_t kOwnerDied = 0x40000000, kOwner = 0x3FFFFFFF;
  return (value & kOwner) != 0 && (value & kOwnerDied) == 0;
}

// Holds the window lock. Nothing that it guards needs repair after a death: each change is one
// store that leaves the window valid. So a dead owner is counted only.
class WindowLock {
 public:
  explicit WindowLock(const SharedWindow& window) : header_(window.header()) {
    if (TakeLock(header_.window_lock) == Taken::kFromTheDead) {
      header_.counters.dead_owners.fetch_add(1, std::memory_order_relaxed);
      header_.trouble.fetch_or(kTroubleDeadOwner);
    }
  }
  ~WindowLock() { GiveLock(header_.window_lock); }
  WindowLock(const WindowLock&) = delete;
  WindowLock& operator=(const WindowLock&) = delete;

 private:
  Header& header_;
};

}  // namespace salius::direct
