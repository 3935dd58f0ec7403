// Services that every daemon takes from its surroundings: signals, readiness, limits.
#ifndef SALIUS_COMMON_DAEMON_H_
#define SALIUS_COMMON_DAEMON_H_

#include <cstdint>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/file.h"

namespace salius {

// Blocks SIGTERM, SIGINT and SIGHUP in all threads and hands them to one thread that waits.
class SignalWaiter {
 public:
  // Blocks the signals in this thread, and so in every thread started afterwards: make it first in
  // main(). Also ignores SIGPIPE, so that a peer that hung up is an error of write().
  SignalWaiter();
  // Leaves the signals blocked: one that comes during shutdown must not kill the process.
  ~SignalWaiter() = default;
  SignalWaiter(const SignalWaiter&) = delete;
  SignalWaiter& operator=(const SignalWaiter&) = delete;

  // Waits for the next signal and returns its number, or 0 after Wake().
  int Wait();

  // Waits like Wait(), for at most `timeout_us` microseconds; returns -1 when nothing came.
  int WaitFor(int64_t timeout_us);

  // Makes one Wait() return 0, now or when it is next called. From any thread.
  void Wake();

 private:
  // Waits `timeout_ms` (-1: for ever).
  int Poll(int timeout_ms);

  UniqueFd signals_;
  UniqueFd wake_;
};

// Report to systemd (sd_notify(3)) that the daemon serves, or that it is shutting down. Without a
// service manager they do nothing.
void NotifyReady();
void NotifyStopping();

// Turns off Abseil's look for lock cycles; call it first in main(). The distribution's Abseil looks
// for cycles at every lock, and takes longer the more locks there are. Builds with a sanitizer keep
// that check.
void UsePlainMutexes();

// Keeps this process's memory from others, because keys are in it: no core dump has it, and no other
// process of the same user reads it or attaches to it, unless it has CAP_SYS_PTRACE. Threads and
// forked processes inherit that; a program that is executed does not.
void KeepMemoryPrivate();

// Lifts the limit of a file's size (ulimit -f) that the process was started with: the data that it
// writes belongs to others. A write beyond the limit would kill the process. RESOURCE_EXHAUSTED,
// with the remedy, when lifting it is not allowed.
absl::Status LiftFileSizeLimit();

// Raises the soft limit of open descriptors to the hard one; returns the new limit.
absl::StatusOr<uint64_t> RaiseFdLimit();

// Returns the value after "Name:" in /proc/self/status in bytes, for fields in kB ("VmLck",
// "VmRSS").
absl::StatusOr<uint64_t> ProcStatusBytes(std::string_view field);

}  // namespace salius

#endif  // SALIUS_COMMON_DAEMON_H_
