// Applies durable records through the sink, on the threads of callers or on its own, and has what
// was applied synced for checkpoints.
//
// The sink takes records in order, and may apply some of them later, in another order. `applied` is
// the end of the prefix that is applied.
//
// Locks, both before the core's: apply_mu_ is held while records are applied, sync_mu_ over a sync
// of the backing file system.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "client/session/applied_order.h"
#include "client/session/record_stream.h"
#include "client/session/shared_core.h"
#include "common/ids.h"
#include "log/applied_mark.h"

namespace salius {

class Applier {
 public:
  // `shared` and `sink` outlive it.
  Applier(SharedCore& shared, ApplySink& sink, AppliedMark mark)
      : shared_(shared), sink_(sink), mark_(std::move(mark)) {
    sink_.OnLateChange([this] { TakeLateChange(); });
  }
  Applier(const Applier&) = delete;
  Applier& operator=(const Applier&) = delete;

  // Begins the session of `epoch`. `complaints`: of the file system, or kUnknownComplaints.
  void Begin(Epoch epoch, uint64_t complaints) { mark_.Reset(epoch, complaints); }
  // Applies durable records in order, unless another thread does: all when `limit` is 0, else it
  // ends with the batch that reaches it.
  void ApplySome(size_t limit) ABSL_LOCKS_EXCLUDED(apply_mu_);
  // Returns the last record that was given to the sink.
  Seq taken() const { return taken_.load(std::memory_order_acquire); }
  // Has the sink begin what it has put off.
  void Hurry(Seq seq) { sink_.Hurry(seq); }
  // Returns whether an apply has been under way for longer than `bound_ns`.
  bool Hangs(int64_t now, int64_t bound_ns) const {
    const int64_t since = since_ns_.load(std::memory_order_relaxed);
    return since != 0 && now - since > bound_ns;
  }
  // Syncs now. An error is final: the session has failed.
  absl::Status SyncNow() ABSL_LOCKS_EXCLUDED(sync_mu_);

  // The thread that applies the records that no waiting thread applied.
  void ApplyLoop();
  // The thread that syncs for checkpoints.
  void SyncLoop();

 private:
  void ApplyLocked(size_t limit) ABSL_EXCLUSIVE_LOCKS_REQUIRED(apply_mu_);
  // Moves `applied` to the end of the prefix that is applied. `error`: of the record after the taken
  // ones.
  void Advance(const absl::Status& error) ABSL_EXCLUSIVE_LOCKS_REQUIRED(apply_mu_);
  // Moves it after the sink has applied records later, unless another thread holds the lock: that
  // one does it then.
  void TakeLateChange() ABSL_LOCKS_EXCLUDED(apply_mu_);
  // Has the sink sync. Sets `*before` to the last record that the sync covers.
  absl::Status SyncLocked(Seq* before) ABSL_EXCLUSIVE_LOCKS_REQUIRED(sync_mu_);

  SharedCore& shared_;
  ApplySink& sink_;
  absl::Mutex apply_mu_ ABSL_ACQUIRED_BEFORE(shared_.mu);
  // Held over each sync and the report of its result: the kernel reports an error once, and a later
  // sync succeeds.
  absl::Mutex sync_mu_ ABSL_ACQUIRED_BEFORE(shared_.mu);
  AppliedMark mark_;
  AppliedOrder order_ ABSL_GUARDED_BY(apply_mu_);
  std::atomic<Seq> taken_{0};  // written under apply_mu_
  // The records that were given to the sink and are not in the applied prefix.
  std::deque<RecordRef> unapplied_ ABSL_GUARDED_BY(apply_mu_);
  Seq applied_ ABSL_GUARDED_BY(apply_mu_) = 0;
  bool failed_ ABSL_GUARDED_BY(apply_mu_) = false;
  std::atomic<bool> late_change_{false};  // the sink has not been looked at since
  std::atomic<int64_t> since_ns_{0};  // when the apply under way began; 0: none is
};

}  // namespace salius
