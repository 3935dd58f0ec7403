#include "client/session/applier.h"

#include <cstddef>
#include <utility>
#include <vector>

#include "common/metrics.h"

namespace salius {

void Applier::ApplyLocked(size_t limit) {
  std::vector<RecordRef> batch;
  batch.reserve(SessionCore::kApplyTogether);
  for (size_t done = 0; limit == 0 || done < limit; done += batch.size()) {
    {
      absl::MutexLock lock(&shared_.mu);
      shared_.core.NextToApply(taken(), &batch);
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
      unapplied_.insert(unapplied_.end(), batch.begin() + static_cast<ptrdiff_t>(count),
                        batch.begin() + static_cast<ptrdiff_t>(count + *together));
      count += *together;
      awaited = batch[count - 1]->result() != nullptr;
    }
    since_ns_.store(0, std::memory_order_relaxed);
    if (count > 0) taken_.store(batch[count - 1]->seq(), std::memory_order_release);
    Advance(status.ok() ? status : NotApplied(*batch[count], status));
    if (!status.ok()) return;
  }
}

void Applier::Advance(const absl::Status& error) {
  const Seq first = sink_.FirstUnapplied();
  absl::Status failure = error;
  if (failure.ok() && first != 0 && !failed_) failure = sink_.LateError();
  const Seq prefix = first == 0 ? taken() : first - 1;
  for (; !unapplied_.empty() && unapplied_.front()->seq() <= prefix; unapplied_.pop_front()) {
    if (const Seq seq = order_.Applied(*unapplied_.front()); seq != 0) mark_.Store(seq);
  }
  if (prefix <= applied_ && failure.ok()) return;
  SharedCore::Turn turn(shared_);
  if (prefix > applied_) turn.Feed(input::Applied{applied_ = prefix});
  if (!failure.ok() && !std::exchange(failed_, true)) turn.Feed(input::ApplyFailed{failure});
  if (shared_.applied_waiters > 0) shared_.applied_cv.SignalAll();
}

void Applier::TakeLateChange() {
  late_change_.store(true);
  while (late_change_.load()) {
    if (!apply_mu_.TryLock()) return;
    if (late_change_.exchange(false)) Advance(absl::OkStatus());
    apply_mu_.Unlock();
  }
}

void Applier::ApplySome(size_t limit) {
  const SharedCore::Mirror& mirror = shared_.mirror;
  // A thread that fails to get the lock leaves its records to the holder, which looks again after
  // it has released the lock.
  while (taken() < mirror.durable.load(std::memory_order_acquire) &&
         !mirror.failed.load(std::memory_order_acquire)) {
    if (!apply_mu_.TryLock()) return;
    ApplyLocked(limit);
    apply_mu_.Unlock();
    if (late_change_.load()) TakeLateChange();
    if (limit != 0) break;
  }
}

void Applier::ApplyLoop() {
  while (true) {
    Seq hurry = 0;
    {
      absl::MutexLock lock(&shared_.mu);
      const Replicator& policy = shared_.core.policy();
      while (!shared_.core.stopping() && !shared_.hurry_wanted &&
             (taken() >= policy.durable() || !policy.failure().ok())) {
        shared_.applier_cv.Wait(&shared_.mu);
      }
      if (shared_.core.stopping()) return;
      if (std::exchange(shared_.hurry_wanted, false)) hurry = policy.durable();
    }
    if (hurry != 0) sink_.Hurry(hurry);
    {
      absl::MutexLock lock(&apply_mu_);
      ApplyLocked(256);
    }
    if (late_change_.load()) TakeLateChange();
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
