#include "client/session/applier.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/metrics.h"

namespace salius {

void Applier::ApplyLocked(size_t limit) {
  std::vector<RecordRef> batch;
  batch.reserve(SessionCore::kApplyTogether);
  for (size_t done = 0; limit == 0 || done < limit; done += batch.size()) {
    {
      absl::MutexLock lock(&shared_.mu);
      shared_.core.NextToApply(&batch);
      if (batch.empty()) return;
    }
    size_t count = 0;
    absl::Status status;
    bool awaited = false;  // by a caller that must not wait for the records that follow
    since_ns_.store(shared_.clock.MonotonicNanos(), std::memory_order_relaxed);
    while (count < batch.size() && status.ok() && !awaited && !shared_.mirror.failed.load()) {
      const absl::StatusOr<size_t> together =
          sink_.Apply(absl::MakeConstSpan(batch).subspan(count));
      status = together.status();
      if (!status.ok()) break;
      count += *together;
      if (const Seq seq = order_.Applied(*batch[count - 1]); seq != 0) mark_.Store(seq);
      awaited = batch[count - 1]->result() != nullptr;
    }
    since_ns_.store(0, std::memory_order_relaxed);
    SharedCore::Turn turn(shared_);
    if (count > 0) turn.Feed(input::Applied{batch[count - 1]->seq()});
    if (!status.ok()) {
      const RecordHeader& header = batch[count]->header();
      turn.Feed(input::ApplyFailed{absl::Status(
          status.code(), absl::StrCat("seq ", header.seq, " (", std::string(OpName(header.op)),
                                      ") could not be applied: ", status.message(),
                                      ". The volume is read-only and keeps its log"))});
    }
    if (shared_.applied_waiters > 0) shared_.applied_cv.SignalAll();
  }
}

void Applier::ApplySome(size_t limit) {
  const SharedCore::Mirror& mirror = shared_.mirror;
  // A thread that fails to get the lock leaves its records to the holder, which looks again after
  // it has released the lock.
  while (mirror.applied.load(std::memory_order_acquire) <
             mirror.durable.load(std::memory_order_acquire) &&
         !mirror.failed.load(std::memory_order_acquire)) {
    if (!apply_mu_.TryLock()) return;
    ApplyLocked(limit);
    apply_mu_.Unlock();
    if (limit != 0) break;
  }
}

void Applier::ApplyLoop() {
  while (true) {
    {
      absl::MutexLock lock(&shared_.mu);
      const Replicator& policy = shared_.core.policy();
      while (!shared_.core.stopping() &&
             (policy.applied() >= policy.durable() || !policy.failure().ok())) {
        shared_.applier_cv.Wait(&shared_.mu);
      }
      if (shared_.core.stopping()) return;
    }
    absl::MutexLock lock(&apply_mu_);
    ApplyLocked(256);
  }
}

absl::Status Applier::SyncLocked(Seq* before) {
  // A store into the mark may wait for the disk, even one that hangs: so `mu` is not held.
  mark_.SyncBegins();
  {
    absl::MutexLock lock(&shared_.mu);
    *before = shared_.core.policy().applied();
  }
  const int64_t start = shared_.clock.MonotonicNanos();
  const absl::Status status = sink_.SyncApplied();
  static Histogram& seconds =
      GetLatencyHistogram("salius_checkpoint_sync_seconds", "Time to sync the backing file system");
  seconds.Observe(static_cast<double>(shared_.clock.MonotonicNanos() - start) * 1e-9);
  mark_.SyncEnds(status.ok());
  return status;
}

void Applier::SyncLoop() {
  while (true) {
    {
      absl::MutexLock lock(&shared_.mu);
      while (!shared_.core.stopping() && !shared_.sync_wanted) {
        shared_.sync_cv.Wait(&shared_.mu);
      }
      if (shared_.core.stopping()) return;
      shared_.sync_wanted = false;
    }
    absl::ReleasableMutexLock one(&sync_mu_);
    Seq before = 0;
    const absl::Status status = SyncLocked(&before);
    SharedCore::Turn turn(shared_);
    turn.Feed(input::Synced{before, status});
    one.Release();
  }
}

absl::Status Applier::SyncNow() {
  absl::ReleasableMutexLock one(&sync_mu_);
  {
    absl::MutexLock lock(&shared_.mu);
    if (!shared_.health().ok()) return shared_.health();
  }
  Seq before = 0;
  const absl::Status status = SyncLocked(&before);
  if (status.ok()) return status;
  SharedCore::Turn turn(shared_);
  turn.Feed(input::Synced{before, status});
  one.Release();
  return shared_.health();
}

}  // namespace salius
