// The recovery notes of a mounted volume (log/recovery_notes.h). They are read once, at the mount,
// so that a status waits for no disk. They are written when the administrator acknowledges what
// recoveries gave up.
//
// Threads: any.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "common/files.h"
#include "log/recovery_notes.h"

namespace salius {

class RecoveryHistory {
 public:
  // Loads the notes. `salius_fd` is the volume's .salius, whose lock this process holds, a
  // descriptor of `files`; `path` is the backing directory, for messages. Notes that cannot be read
  // are logged and count as none.
  static absl::StatusOr<std::unique_ptr<RecoveryHistory>> Load(Files& files, int salius_fd,
                                                               std::string path);

  RecoveryNotes notes() const;
  // Notes durably that the administrator knows of the records given up. Returns the number of
  // recoveries acknowledged. Errors: the file system's.
  absl::StatusOr<uint32_t> Acknowledge();
  // Logs a warning for each recovery that gave records up and was not acknowledged.
  void LogUnacknowledged() const;

 private:
  RecoveryHistory(Files& files, BackingFd salius_fd, std::string path, RecoveryNotes notes);

  Files& files_;
  const BackingFd salius_fd_;
  const std::string path_;
  absl::Mutex writing_;     // taken first; held over the write by the one thread that writes
  mutable absl::Mutex mu_;  // guards notes_; never held over a system call
  RecoveryNotes notes_ ABSL_GUARDED_BY(mu_);
};

}  // namespace salius
