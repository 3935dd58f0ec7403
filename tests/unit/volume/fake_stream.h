// A record stream for tests of the volume: no threads, no network, no disk. A record is durable
// when a caller waits for it. WaitApplied, Checkpoint and ApplySome apply records, so that tests
// decide when patches disappear.
#pragma once

#include <functional>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "client/session/record_stream.h"
#include "log/stable_log.h"

namespace salius {

class FakeStream final : public RecordStream {
 public:
  // Makes a stream (a StartRecordStream).
  static absl::StatusOr<std::unique_ptr<RecordStream>> Start(const VolumeDir& dir, StateFile state,
                                                             StableLog stable, ApplySink& sink,
                                                             StreamOptions options);
  FakeStream(ApplySink& sink, FileId next_id);

  absl::StatusOr<RecordRef> Issue(RecordDraft draft) override;
  absl::Status WaitDurable(Seq seq) override;
  void WhenDurable(Seq seq, DurableCallback done) override;
  // Keeps the caller in `notified`.
  void NotifyDurable(Seq seq, DurableCallback done) override;
  bool ManyWait() const override { return false; }
  absl::Status WaitApplied(Seq seq) override;
  absl::Status WaitAppliedFor(Seq seq, int64_t bound_ns) override;
  void TryApply() override {}  // patches stay as long as possible
  absl::Status Checkpoint() override;
  absl::Status SyncNow() override;
  absl::StatusOr<FileId> NewFileId() override;
  Watermarks watermarks() const override;
  int64_t oldest_uncheckpointed_ns() const override;
  absl::Status health() const override;
  SessionStatus status() const override;
  absl::Status Stop() override { return Checkpoint(); }

  // Returns everything issued, in order, or the records with `op`; their body and result stay the
  // volume's.
  std::vector<RecordRef> Issued();
  std::vector<RecordRef> Issued(Op op);
  // Gives the next `count` records to the sink, and does not wait until they are applied.
  void Give(size_t count);
  // Applies the next `count` records.
  void ApplySome(size_t count);
  // Makes everything durable that held callbacks (and `notified`) wait for, unless the stream has
  // failed, and calls them.
  void CallHeld();
  // Makes every later call return the error.
  void Fail(const absl::Status& status);

  mutable absl::Mutex mu;  // guards what follows
  std::vector<RecordRef> records;
  std::vector<SendWhen> sent_when;  // of each record
  Seq durable = 0, taken = 0, applied = 0, checkpoint = 0;
  absl::Status failure;
  int64_t oldest_ns = 0;       // oldest_uncheckpointed_ns()
  bool apply_at_once = false;  // a record is applied before Issue returns, as by a faster thread
  bool disk_hangs = false;     // WaitAppliedFor gives up at once
  int applies = 0;             // calls of ApplySink::Apply that succeeded
  // Called (without mu) before a record is applied, one by one then.
  std::function<void(const RecordRef&)> before_apply;
  // Called (without mu) while a caller waits for records that the sink has taken over. Returns whether
  // it did something; else the caller waits for another thread.
  std::function<bool()> do_work;
  // Called (without mu) in Issue, before the record has its seq.
  std::function<void(Op)> before_issue;
  // Called (without mu) in WaitDurable.
  std::function<void(Seq)> on_wait_durable;
  std::vector<std::pair<Seq, DurableCallback>> notified;
  // Whether the sink learns of a checkpoint at once. Otherwise as when its thread is late.
  bool reports_checkpoints = false;
  int syncs = 0;
  bool hold_callbacks = false;  // WhenDurable keeps its callbacks until CallHeld
  // Calls of watermarks by other threads than the one that made the stream.
  mutable int looks_of_others = 0;

 private:
  absl::Status GiveTo(Seq seq);
  absl::Status ApplyTo(Seq seq);
  // Moves `applied`. Returns the sink's error.
  absl::Status Look();

  ApplySink& sink_;
  const std::thread::id maker_ = std::this_thread::get_id();
  absl::Mutex apply_mu_;
  uint64_t late_changes_ ABSL_GUARDED_BY(mu) = 0;
  std::vector<std::pair<Seq, DurableCallback>> held_ ABSL_GUARDED_BY(mu);
  uint64_t last_time_ns_ ABSL_GUARDED_BY(mu) = 0;
  FileId next_id_;
};

// Returns the fake under a volume that was opened with FakeStream::Start.
inline FakeStream& FakeOf(RecordStream& stream) { return dynamic_cast<FakeStream&>(stream); }

}  // namespace salius
