// Reports the synchronization of the distribution's Abseil to the thread sanitizer.
//
// That library is not compiled with the sanitizer. To the sanitizer absl::Mutex orders nothing, and
// every guarded variable looks like a race. An executable's own definitions come before a shared
// library's, for the library's inner calls too. So each function here marks the address and calls
// the real one.
#include <dlfcn.h>
#include <sanitizer/tsan_interface.h>
#include <stdio.h>
#include <stdlib.h>

#include "absl/synchronization/blocking_counter.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "absl/time/time.h"

extern "C" {
// From the sanitizer's run-time library, which has no header for them.
void AnnotateIgnoreReadsBegin(const char* file, int line);
void AnnotateIgnoreReadsEnd(const char* file, int line);
}

namespace {

// Returns the library's function of this mangled name. `Function` spells out `this` as its first
// argument.
template <typename Function>
Function* Real(const char* symbol) {
  void* const found = dlsym(RTLD_NEXT, symbol);
  if (found == nullptr) {
    fprintf(stderr, "absl_tsan: no %s in the Abseil of this system\n", symbol);
    abort();
  }
  return reinterpret_cast<Function*>(found);
}

void* Address(const void* object) { return const_cast<void*>(object); }

}  // namespace

// Suppresses races inside libraries that are not compiled with the sanitizer. Our own handlers are
// called from libgrpc++.so, which is not named, so that their races are still seen. gRPC leaves
// threads of its own unjoined when the process ends.
extern "C" const char* __tsan_default_suppressions() {
  return "race:libabsl_graphcycles_internal.so\n"
         "race:libgrpc.so\n"
         "thread:libgpr.so\n";
}

#define ABSL_SYMBOL(rest) "_ZN4absl7debian3" rest
#define ABSL_CONST_SYMBOL(rest) "_ZNK4absl7debian3" rest

namespace absl {
ABSL_NAMESPACE_BEGIN

void Mutex::Lock() {
  static auto* const real = Real<void(Mutex*)>(ABSL_SYMBOL("5Mutex4LockEv"));
  real(this);
  __tsan_acquire(this);
}

void Mutex::Unlock() {
  static auto* const real = Real<void(Mutex*)>(ABSL_SYMBOL("5Mutex6UnlockEv"));
  __tsan_release(this);
  real(this);
}

bool Mutex::TryLock() {
  static auto* const real = Real<bool(Mutex*)>(ABSL_SYMBOL("5Mutex7TryLockEv"));
  const bool locked = real(this);
  if (locked) __tsan_acquire(this);
  return locked;
}

void Mutex::ReaderLock() {
  static auto* const real = Real<void(Mutex*)>(ABSL_SYMBOL("5Mutex10ReaderLockEv"));
  real(this);
  __tsan_acquire(this);
}

void Mutex::ReaderUnlock() {
  static auto* const real = Real<void(Mutex*)>(ABSL_SYMBOL("5Mutex12ReaderUnlockEv"));
  __tsan_release(this);
  real(this);
}

bool Mutex::ReaderTryLock() {
  static auto* const real = Real<bool(Mutex*)>(ABSL_SYMBOL("5Mutex13ReaderTryLockEv"));
  const bool locked = real(this);
  if (locked) __tsan_acquire(this);
  return locked;
}

void Mutex::Await(const Condition& condition) {
  static auto* const real =
      Real<void(Mutex*, const Condition&)>(ABSL_SYMBOL("5Mutex5AwaitERKNS0_9ConditionE"));
  __tsan_release(this);
  real(this, condition);
  __tsan_acquire(this);
}

bool Mutex::AwaitWithTimeout(const Condition& condition, Duration timeout) {
  static auto* const real = Real<bool(Mutex*, const Condition&, Duration)>(
      ABSL_SYMBOL("5Mutex16AwaitWithTimeoutERKNS0_9ConditionENS0_8DurationE"));
  __tsan_release(this);
  const bool result = real(this, condition, timeout);
  __tsan_acquire(this);
  return result;
}

bool Mutex::AwaitWithDeadline(const Condition& condition, Time deadline) {
  static auto* const real = Real<bool(Mutex*, const Condition&, Time)>(
      ABSL_SYMBOL("5Mutex17AwaitWithDeadlineERKNS0_9ConditionENS0_4TimeE"));
  __tsan_release(this);
  const bool result = real(this, condition, deadline);
  __tsan_acquire(this);
  return result;
}

void Mutex::LockWhen(const Condition& condition) {
  static auto* const real =
      Real<void(Mutex*, const Condition&)>(ABSL_SYMBOL("5Mutex8LockWhenERKNS0_9ConditionE"));
  real(this, condition);
  __tsan_acquire(this);
}

bool Mutex::LockWhenWithTimeout(const Condition& condition, Duration timeout) {
  static auto* const real = Real<bool(Mutex*, const Condition&, Duration)>(
      ABSL_SYMBOL("5Mutex19LockWhenWithTimeoutERKNS0_9ConditionENS0_8DurationE"));
  const bool result = real(this, condition, timeout);
  __tsan_acquire(this);
  return result;
}

bool Mutex::LockWhenWithDeadline(const Condition& condition, Time deadline) {
  static auto* const real = Real<bool(Mutex*, const Condition&, Time)>(
      ABSL_SYMBOL("5Mutex20LockWhenWithDeadlineERKNS0_9ConditionENS0_4TimeE"));
  const bool result = real(this, condition, deadline);
  __tsan_acquire(this);
  return result;
}

void Mutex::ReaderLockWhen(const Condition& condition) {
  static auto* const real =
      Real<void(Mutex*, const Condition&)>(ABSL_SYMBOL("5Mutex14ReaderLockWhenERKNS0_9ConditionE"));
  real(this, condition);
  __tsan_acquire(this);
}

// The unlocking thread evaluates conditions after its mark above. In truth it holds the lock then,
// but the sanitizer does not see that.
bool Condition::Eval() const {
  static auto* const real = Real<bool(const Condition*)>(ABSL_CONST_SYMBOL("9Condition4EvalEv"));
  AnnotateIgnoreReadsBegin(__FILE__, __LINE__);
  const bool result = real(this);
  AnnotateIgnoreReadsEnd(__FILE__, __LINE__);
  return result;
}

void CondVar::Wait(Mutex* mutex) {
  static auto* const real = Real<void(CondVar*, Mutex*)>(ABSL_SYMBOL("7CondVar4WaitEPNS0_5MutexE"));
  __tsan_release(mutex);
  real(this, mutex);
  __tsan_acquire(mutex);
}

bool CondVar::WaitWithTimeout(Mutex* mutex, Duration timeout) {
  static auto* const real = Real<bool(CondVar*, Mutex*, Duration)>(
      ABSL_SYMBOL("7CondVar15WaitWithTimeoutEPNS0_5MutexENS0_8DurationE"));
  __tsan_release(mutex);
  const bool result = real(this, mutex, timeout);
  __tsan_acquire(mutex);
  return result;
}

bool CondVar::WaitWithDeadline(Mutex* mutex, Time deadline) {
  static auto* const real = Real<bool(CondVar*, Mutex*, Time)>(
      ABSL_SYMBOL("7CondVar16WaitWithDeadlineEPNS0_5MutexENS0_4TimeE"));
  __tsan_release(mutex);
  const bool result = real(this, mutex, deadline);
  __tsan_acquire(mutex);
  return result;
}

// HasBeenNotified() is inline and loads the flag behind the mutex, so that is marked as well.
void Notification::Notify() {
  static auto* const real = Real<void(Notification*)>(ABSL_SYMBOL("12Notification6NotifyEv"));
  __tsan_release(Address(this));
  __tsan_release(reinterpret_cast<char*>(this) + sizeof(Mutex));
  real(this);
}

void Notification::WaitForNotification() const {
  static auto* const real =
      Real<void(const Notification*)>(ABSL_CONST_SYMBOL("12Notification19WaitForNotificationEv"));
  real(this);
  __tsan_acquire(Address(this));
}

bool Notification::WaitForNotificationWithTimeout(Duration timeout) const {
  static auto* const real = Real<bool(const Notification*, Duration)>(
      ABSL_CONST_SYMBOL("12Notification30WaitForNotificationWithTimeoutENS0_8DurationE"));
  const bool result = real(this, timeout);
  if (result) __tsan_acquire(Address(this));
  return result;
}

bool Notification::WaitForNotificationWithDeadline(Time deadline) const {
  static auto* const real = Real<bool(const Notification*, Time)>(
      ABSL_CONST_SYMBOL("12Notification31WaitForNotificationWithDeadlineENS0_4TimeE"));
  const bool result = real(this, deadline);
  if (result) __tsan_acquire(Address(this));
  return result;
}

bool BlockingCounter::DecrementCount() {
  static auto* const real =
      Real<bool(BlockingCounter*)>(ABSL_SYMBOL("15BlockingCounter14DecrementCountEv"));
  __tsan_release(this);
  return real(this);
}

void BlockingCounter::Wait() {
  static auto* const real = Real<void(BlockingCounter*)>(ABSL_SYMBOL("15BlockingCounter4WaitEv"));
  real(this);
  __tsan_acquire(this);
}

ABSL_NAMESPACE_END
}  // namespace absl
