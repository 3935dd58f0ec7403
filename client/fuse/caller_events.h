// Eventfds of programs that use the mount (SALIUS_IOC_NOTIFY): taken from the caller's process, and
// signalled when records are durable.
//
// Signalling never blocks. A write(2) to an eventfd blocks while its counter is full, and its owner
// decides that. So the kernel itself signals: each signal is an asynchronous read of /dev/null with
// the eventfd as its notification (IOCB_FLAG_RESFD), which is complete when io_submit returns.
#pragma once

#include <cstdint>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "common/file.h"

namespace salius {

// Takes the eventfd that has number `fd` in the thread `tid`, as the mount's daemon sees it. The
// thread must not continue meanwhile. Errors by errno: EBADF, EINVAL (no eventfd), ENOTSUP (the
// thread is not visible from here, or may not be inspected).
absl::StatusOr<UniqueFd> TakeEventFd(uint32_t tid, int32_t fd);

// Threads: any.
class EventSignals {
 public:
  EventSignals() = default;
  ~EventSignals();
  EventSignals(const EventSignals&) = delete;
  EventSignals& operator=(const EventSignals&) = delete;

  // Prepares; any number of calls. ENOTSUP: the kernel has no asynchronous I/O, or no more of it
  // (fs.aio-max-nr).
  absl::Status Open();
  // Adds 1 to the eventfd, unless its counter is full. Open() has succeeded.
  void Signal(int eventfd);

 private:
  absl::Mutex mutex_;
  uint64_t context_ ABSL_GUARDED_BY(mutex_) = 0;  // aio_context_t
  UniqueFd null_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace salius
