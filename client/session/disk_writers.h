// The threads that write the volume's own files: the stable log and the state file.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "client/session/shared_core.h"
#include "client/session/state_notes.h"
#include "common/ids.h"
#include "log/stable_log.h"
#include "log/state_file.h"
#include "storage/volume_config.h"

namespace salius {

// Appends to the stable log, and cuts it.
class StableWriter {
 public:
  // `shared` and `dir` outlive it.
  StableWriter(SharedCore& shared, const VolumeDir& dir, StableLog log)
      : shared_(shared), dir_(dir), log_(std::move(log)) {}

  // Begins the session of `epoch`, with an empty log.
  absl::Status Begin(Epoch epoch) ABSL_LOCKS_EXCLUDED(mu_);
  void Loop();

  uint64_t used_bytes() const { return used_; }
  uint64_t capacity() const { return capacity_; }

 private:
  absl::Status Write(std::optional<Seq> cut, absl::Span<const RecordRef> records)
      ABSL_LOCKS_EXCLUDED(mu_);

  SharedCore& shared_;
  const VolumeDir& dir_;
  absl::Mutex mu_;  // held over disk writes by the thread that writes
  StableLog log_ ABSL_GUARDED_BY(mu_);
  Epoch epoch_ = 0;  // constant after Begin
  std::atomic<uint64_t> used_{0}, capacity_{0};
};

// Writes the state file. Its lock is held over disk writes, and comes before the core's.
class NoteWriter {
 public:
  // `shared` outlives it.
  // `checkpointed`: called by Loop after a checkpoint has been noted; may be null.
  NoteWriter(SharedCore& shared, StateFile state, std::function<void()> checkpointed = nullptr)
      : shared_(shared), state_(std::move(state)), checkpointed_(std::move(checkpointed)) {}

  // Notes a new session, and begins it in the core. `session`: its random number.
  absl::Status Begin(const StateNotes::Place& place, uint64_t session) ABSL_LOCKS_EXCLUDED(mu_);
  // Returns the epoch of the session that Begin begins.
  Epoch next_epoch() ABSL_LOCKS_EXCLUDED(mu_) {
    absl::MutexLock lock(&mu_);
    return state_.state().epoch + 1;
  }
  // Notes that the session ended cleanly; no thread runs any more.
  absl::Status Close() ABSL_LOCKS_EXCLUDED(mu_);
  void Loop();

 private:
  SharedCore& shared_;
  absl::Mutex mu_ ABSL_ACQUIRED_BEFORE(shared_.mu);
  StateFile state_ ABSL_GUARDED_BY(mu_);
  const std::function<void()> checkpointed_;
};

}  // namespace salius
