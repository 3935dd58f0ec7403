// The pipeline's threads that may wait for the disk: applier, stable log, checkpoint sync, state
// notes.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "client/session/pipeline_impl.h"
#include "common/check.h"
#include "common/log.h"
#include "common/metrics.h"

namespace salius {
namespace {

// One append to the stable log takes at most this much: group commit without long pauses.
constexpr uint64_t kStableBatchBytes = 2u << 20;

absl::Span<const uint8_t> AsBytes(std::string_view text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

}  // namespace

void Pipeline::ApplyLocked(size_t limit) {
  std::vector<RecordRef> batch;
  batch.reserve(kApplyTogether);
  for (size_t done = 0; limit == 0 || done < limit; done += batch.size()) {
    batch.clear();
    {
      absl::MutexLock lock(&mu);
      if (!HealthLocked().ok() || core.applied() >= core.durable()) return;
      const Seq last = std::min(core.durable(), core.applied() + kApplyTogether);
      for (Seq seq = core.applied() + 1; seq <= last; ++seq) batch.push_back(RecordAt(seq));
    }
    size_t count = 0;
    absl::Status status;
    bool awaited = false;  // by a caller that must not wait for the records that follow
    apply_since_ns.store(clock.MonotonicNanos(), std::memory_order_relaxed);
    while (count < batch.size() && status.ok() && !awaited && !failed.load()) {
      const absl::StatusOr<size_t> together = sink.Apply(absl::MakeConstSpan(batch).subspan(count));
      status = together.status();
      if (!status.ok()) break;
      count += *together;
      applied_mark.Store(batch[count - 1]->seq());
      awaited = batch[count - 1]->result() != nullptr;
    }
    apply_since_ns.store(0, std::memory_order_relaxed);
    Work work;
    {
      absl::MutexLock lock(&mu);
      if (count > 0) core.OnApplied(batch[count - 1]->seq());
      if (!status.ok()) {
        const RecordHeader& header = batch[count]->header();
        core.OnApplyFailed(absl::Status(
            status.code(), absl::StrCat("seq ", header.seq, " (", std::string(OpName(header.op)),
                                        ") could not be applied: ", status.message(),
                                        ". The volume is read-only and keeps its log")));
      }
      Collect(&work);
      if (applied_waiters > 0) applied_cv.SignalAll();
    }
    Perform(work);
  }
}

void Pipeline::ApplySome(size_t limit) {
  // A thread that fails to get the lock leaves its records to the holder, which looks again after
  // it has released the lock.
  while (applied.load(std::memory_order_acquire) < durable.load(std::memory_order_acquire) &&
         !failed.load(std::memory_order_acquire)) {
    if (!apply_mu.TryLock()) return;
    ApplyLocked(limit);
    apply_mu.Unlock();
    if (limit != 0) break;
  }
}

void Pipeline::ApplierLoop() {
  while (true) {
    {
      absl::MutexLock lock(&mu);
      while (!stopping && (core.applied() >= core.durable() || !HealthLocked().ok())) {
        applier_cv.Wait(&mu);
      }
      if (stopping) return;
    }
    absl::MutexLock lock(&apply_mu);
    ApplyLocked(256);
  }
}

void Pipeline::StableLoop() {
  while (true) {
    std::vector<Seq> seqs;
    std::vector<RecordRef> batch;
    std::optional<Seq> cut;
    {
      absl::MutexLock lock(&mu);
      while (!stopping && !stable_wanted && !cut_wanted) stable_cv.Wait(&mu);
      if (stopping) return;
      cut = std::exchange(cut_wanted, std::nullopt);
      seqs = core.TakeStableBatch(kStableBatchBytes);
      if (seqs.empty()) stable_wanted = false;
      for (Seq seq : seqs) batch.push_back(RecordAt(seq));
    }
    absl::Status status;
    {
      absl::MutexLock lock(&stable_mu);
      if (cut) status = stable.Cut(epoch, *cut);
      if (status.ok() && !seqs.empty()) {
        std::vector<StableLog::Item> items;
        items.reserve(batch.size());
        for (const RecordRef& record : batch) {
          items.push_back(
              {{record->encoded_header(), kRecordHeaderBytes}, AsBytes(record->body())});
        }
        status = stable.Append(items);
        if (status.ok()) status = dir.CheckSynced();
      }
      stable_used = stable.used_bytes();
    }
    if (seqs.empty() && status.ok()) continue;
    Work work;
    {
      absl::MutexLock lock(&mu);
      core.OnStable(clock.MonotonicNanos(), seqs, status);
      Collect(&work);
      if (absl::IsResourceExhausted(status)) {
        // Full until a checkpoint is noted and the log is cut; NoteLoop then wakes this thread.
        stable_wanted = false;
      }
      if (core.applied() < core.durable() && durable_waiters == 0) applier_cv.Signal();
    }
    Perform(work);
  }
}

absl::Status Pipeline::SyncLocked(Seq* before) {
  // A store into the mark may wait for the disk, even one that hangs: so `mu` is not held.
  applied_mark.SyncBegins();
  {
    absl::MutexLock lock(&mu);
    *before = core.applied();
  }
  const int64_t start = clock.MonotonicNanos();
  const absl::Status status = sink.SyncApplied();
  static Histogram& seconds =
      GetLatencyHistogram("salius_checkpoint_sync_seconds", "Time to sync the backing file system");
  seconds.Observe(static_cast<double>(clock.MonotonicNanos() - start) * 1e-9);
  applied_mark.SyncEnds(status.ok());
  return status;
}

void Pipeline::SyncLoop() {
  while (true) {
    {
      absl::MutexLock lock(&mu);
      while (!stopping && !sync_wanted) sync_cv.Wait(&mu);
      if (stopping) return;
      sync_wanted = false;
    }
    Work work;
    {
      absl::MutexLock one(&sync_mu);
      Seq before = 0;
      const absl::Status status = SyncLocked(&before);
      absl::MutexLock lock(&mu);
      core.OnSynced(clock.MonotonicNanos(), before, status);
      Collect(&work);
    }
    Perform(work);
  }
}

absl::Status Pipeline::SyncNow() {
  Work work;
  absl::Status status;
  {
    absl::MutexLock one(&sync_mu);
    SALIUS_RETURN_IF_ERROR(health());
    Seq before = 0;
    status = SyncLocked(&before);
    if (status.ok()) return status;
    absl::MutexLock lock(&mu);
    core.OnSynced(clock.MonotonicNanos(), before, status);
    Collect(&work);
    status = HealthLocked();
  }
  Perform(work);
  return status;
}

VolumeState Pipeline::ComposeState(const Note& note) {
  VolumeState next = opened;
  next.open = true;
  next.mode = note.mode;
  next.checkpoint = note.checkpoint;
  next.members.clear();
  for (size_t i = 0; i < peers.size(); ++i) {
    if (note.members & (1u << i)) {
      next.members.push_back({peers[i].address, note.incarnation[i], note.base[i]});
    }
  }
  next.last_timestamp_ns = last_timestamp;
  next.file_id_limit = file_id_limit_wanted;
  return next;
}

void Pipeline::NoteLoop() {
  while (true) {
    VolumeState next;
    {
      absl::MutexLock lock(&mu);
      while (!stopping && !note_wanted) note_cv.Wait(&mu);
      if (stopping) return;
      next = *note_wanted;
    }
    absl::Status status;
    {
      absl::MutexLock lock(&note_mu);
      status = state.Write(next);
    }
    Work work;
    {
      absl::MutexLock lock(&mu);
      note_wanted.reset();
      if (status.ok()) file_id_limit = next.file_id_limit;
      core.OnNoteWritten(clock.MonotonicNanos(), status);
      Collect(&work);
      checkpoint_cv.SignalAll();
      if (cut_wanted) {
        stable_wanted = true;
        stable_cv.Signal();
      }
      if (core.applied() < core.durable()) applier_cv.Signal();
    }
    Perform(work);
  }
}

}  // namespace salius
