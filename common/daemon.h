// What every daemon needs from its surroundings: signals, readiness, limits.
#ifndef SALIUS_COMMON_DAEMON_H_
#define SALIUS_COMMON_DAEMON_H_

#include <cstdint>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/file.h"

namespace salius {

// Takes SIGTERM, SIGINT and SIGHUP out of the way of all threads and hands them to one that waits.
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

  // The same for at most `timeout_us` microseconds; -1 when nothing came.
  int WaitFor(int64_t timeout_us);

  // Makes one Wait() return 0, now or when it is next called. From any thread.
  void Wake();

 private:
  // Waits `timeout_ms` (-1: for ever).
  int Poll(int timeout_ms);

  UniqueFd signals_;
  UniqueFd wake_;
};

// Tell systemd (sd_notify(3)) that the daemon serves, or that it is shutting down, or one line on
// what it does. Without a service manager they do nothing.
void NotifyReady();
void NotifyStopping();
void NotifyStatus(std::string_view text);

// First in main() of a program: the distribution's Abseil looks for lock cycles at every lock, and
// takes longer and longer for it as there are more locks. Builds with a sanitizer keep that check.
void UsePlainMutexes();

// Lifts the limit of a file's size (ulimit -f) that the process was started with: what it writes is
// others' data. RESOURCE_EXHAUSTED, with what to do, when that is not allowed; a write beyond it
// would be deadly.
absl::Status LiftFileSizeLimit();

// Raises the soft limit of open descriptors to the hard one; returns what it now is.
absl::StatusOr<uint64_t> RaiseFdLimit();

// Ok when this process may lock `bytes` more of memory (privileged, or within RLIMIT_MEMLOCK).
// Otherwise RESOURCE_EXHAUSTED with what to set.
absl::Status LockMemoryCheck(uint64_t bytes);

// The value after "Name:" in /proc/self/status in bytes, for fields in kB ("VmLck", "VmRSS").
absl::StatusOr<uint64_t> ProcStatusBytes(std::string_view field);

}  // namespace salius

#endif  // SALIUS_COMMON_DAEMON_H_
