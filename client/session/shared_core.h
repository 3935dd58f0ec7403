// The session core behind its lock: what the threads of a pipeline share.
//
// A thread takes a Turn: it holds the lock, feeds the core, and at its end does the work that
// follows. The work that may block is left for the thread that it is for (the `wanted` fields).
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <optional>
#include <string_view>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/types/span.h"
#include "client/session/frame_sender.h"
#include "client/session/record_stream.h"
#include "client/session/session_core.h"
#include "common/clock.h"
#include "common/file.h"
#include "common/ids.h"
#include "common/limits.h"
#include "common/monotonic_cond.h"

namespace salius {

class SharedCore {
 public:
  // One use of the core, under the lock.
  class ABSL_SCOPED_LOCKABLE Turn {
   public:
    explicit Turn(SharedCore& shared) ABSL_EXCLUSIVE_LOCK_FUNCTION(shared.mu) : shared_(shared) {
      shared_.mu.Lock();
    }
    // Wakes the threads that have work now, releases the lock, and does the rest of the work on
    // this thread: it sends, and calls callbacks.
    ~Turn() ABSL_UNLOCK_FUNCTION() {
      shared_.Dispatch(work_);
      shared_.mu.Unlock();
      shared_.Perform(work_);
    }
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;

    void Feed(const Input& input) { Feed(shared_.clock.MonotonicNanos(), input); }
    // The turn holds the lock, which the analysis does not see.
    void Feed(int64_t now, const Input& input) ABSL_NO_THREAD_SAFETY_ANALYSIS {
      shared_.core.Feed(now, input, work_);
    }
    Work& work() { return work_; }

   private:
    SharedCore& shared_;
    Work work_;
  };

  // All outlive it. `foreign`: as SessionTuning::foreign.
  SharedCore(const StreamOptions& options, Clock& clock, ForeignRecords* foreign = nullptr);

  // Feeds one input, and does the work that follows.
  void Feed(const Input& input) ABSL_LOCKS_EXCLUDED(mu) {
    Turn turn(*this);
    turn.Feed(input);
  }
  // Wakes every caller that waits, because the session ends or has failed.
  void WakeCallers() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  // Wakes every thread that waits for work.
  void WakeThreads() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  // Returns the error of every wait for `seq`, or OK while one can succeed.
  absl::Status Waitable(Seq seq) const ABSL_SHARED_LOCKS_REQUIRED(mu);
  // Returns the names of the session, which are constant once it has begun.
  SessionKey key() const ABSL_LOCKS_EXCLUDED(mu) {
    absl::MutexLock lock(&mu);
    return core.key();
  }
  const absl::Status& health() const ABSL_SHARED_LOCKS_REQUIRED(mu) {
    return core.policy().failure();
  }
  // Ends the io thread's sleep.
  void WakeIo();
  // Keeps the time at which the mode changed, if it has changed.
  void NoteMode() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);

  const StreamOptions& options;
  Clock& clock;
  // Constant once threads run. The sender is null when there are no replicas.
  FrameSender* sender = nullptr;
  UniqueFd io_wake;  // an eventfd

  // Never held over a system call other than a futex, nor over a write to stderr once the program
  // logs in the background.
  mutable absl::Mutex mu;
  SessionCore core ABSL_GUARDED_BY(mu);

  // Callers that wait, and their number where the followers of Waiters do not tell it.
  MonotonicCond durable_cv, applied_cv, window_cv, checkpoint_cv;
  int applied_waiters ABSL_GUARDED_BY(mu) = 0;
  int window_waiters ABSL_GUARDED_BY(mu) = 0;

  int64_t io_wakes_ns ABSL_GUARDED_BY(mu) = 0;  // when the io thread ends its sleep
  // Work for the other threads.
  absl::CondVar applier_cv, stable_cv, sync_cv, note_cv, session_cv;
  bool hurry_wanted ABSL_GUARDED_BY(mu) = false;  // the sink is to begin what it has put off
  bool stable_wanted ABSL_GUARDED_BY(mu) = false;
  bool sync_wanted ABSL_GUARDED_BY(mu) = false;
  bool stripes_wanted ABSL_GUARDED_BY(mu) = false;
  std::optional<VolumeState> note_wanted ABSL_GUARDED_BY(mu);
  std::optional<Seq> cut_wanted ABSL_GUARDED_BY(mu);
  // Per replica: the base with which a session is to be opened.
  std::array<std::optional<Seq>, kMaxReplicas> open_wanted ABSL_GUARDED_BY(mu);

  // Copies that are read without the lock.
  struct Mirror {
    std::atomic<Seq> issued{0}, sendable{0}, durable{0}, applied{0};
    std::atomic<bool> failed{false};
    std::atomic<bool> many_wait{false};  // Waiters::Many
  };
  Mirror mirror;

  // The mode that status last saw (SessionCore::mode), and since when.
  struct ModeSince {
    std::string_view mode;
    int64_t ns = 0;
    uint64_t unix_ms = 0;
  };
  ModeSince mode_since ABSL_GUARDED_BY(mu);

 private:
  // Wakes the threads that have work now.
  void Dispatch(Work& work) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  void Perform(Work& work) ABSL_LOCKS_EXCLUDED(mu);
  // Logs the core's events, with the replicas' addresses.
  void LogEvents(absl::Span<const ReplicatorEvent> events);
  void LogPath(int replica) ABSL_SHARED_LOCKS_REQUIRED(mu);
};

}  // namespace salius
