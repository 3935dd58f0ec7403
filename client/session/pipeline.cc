#include "client/session/pipeline.h"

#include <sys/eventfd.h>

#include <algorithm>
#include <cerrno>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/session/ack_receiver.h"
#include "client/session/applier.h"
#include "client/session/disk_writers.h"
#include "client/session/io_thread.h"
#include "client/session/replica_links.h"
#include "client/session/shared_core.h"
#include "common/check.h"
#include "common/clock.h"
#include "common/crc32c.h"
#include "common/ext4_watch.h"
#include "common/file.h"
#include "common/host.h"
#include "common/log.h"
#include "common/random.h"
#include "common/strings.h"
#include "log/applied_mark.h"

namespace salius {
namespace {

constexpr int64_t kMs = 1'000'000;
// The io thread is woken for gathered records unless it wakes within this anyway.
constexpr int64_t kGatherSlackNs = 11 * kMs;

// Wires the parts of a session, and owns its threads:
//
//   io          acknowledgements when no waiting thread receives them, timers, replicas' addresses
//   apply       records that became durable and that no waiting thread applied
//   sync        SyncApplied for checkpoints
//   stable      appends to the stable log
//   note        writes the state file
//   session[i]  opens sessions at replica i
class Pipeline final : public RecordStream {
 public:
  Pipeline(const VolumeDir& dir, StateFile state, StableLog stable, AppliedMark mark,
           ApplySink& sink, StreamOptions options, Clock& clock)
      : dir_(dir),
        options_(std::move(options)),
        shared_(options_, clock),
        links_(shared_),
        applier_(shared_, sink, std::move(mark)),
        stable_(shared_, dir, std::move(stable)),
        notes_(shared_, std::move(state), [&sink] { sink.Checkpointed(); }),
        receiver_(shared_, links_, applier_),
        io_(shared_, links_, receiver_, dir) {}
  ~Pipeline() override { StopThreads(); }

  // Makes the channel, the first note, and the threads.
  absl::Status Begin();

  absl::StatusOr<RecordRef> Issue(RecordDraft draft) override;
  absl::Status WaitDurable(Seq seq) override { return receiver_.WaitDurable(seq); }
  void WhenDurable(Seq seq, DurableCallback done) override {
    receiver_.WhenDurable(seq, std::move(done));
  }
  void NotifyDurable(Seq seq, DurableCallback done) override {
    receiver_.NotifyDurable(seq, std::move(done));
  }
  bool ManyWait() const override {
    return shared_.mirror.many_wait.load(std::memory_order_relaxed);
  }
  absl::Status WaitApplied(Seq seq) override;
  absl::Status WaitAppliedFor(Seq seq, int64_t bound_ns) override {
    return receiver_.WaitAppliedFor(seq, bound_ns);
  }
  void TryApply() override { applier_.ApplySome(SessionCore::kApplyBurst); }
  absl::Status Checkpoint() override;
  absl::Status SyncNow() override { return applier_.SyncNow(); }
  absl::StatusOr<FileId> NewFileId() override;
  Watermarks watermarks() const override {
    absl::MutexLock lock(&shared_.mu);
    return WatermarksLocked();
  }
  int64_t oldest_uncheckpointed_ns() const override {
    absl::MutexLock lock(&shared_.mu);
    return shared_.core.policy().oldest_uncheckpointed_ns(shared_.clock.MonotonicNanos());
  }
  absl::Status health() const override;
  SessionStatus status() const override;
  absl::Status Stop() override;

 private:
  void StopThreads();
  // Waits until the window has room for a record of `record_bytes`.
  absl::Status AwaitWindow(size_t record_bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(shared_.mu);
  Watermarks WatermarksLocked() const ABSL_SHARED_LOCKS_REQUIRED(shared_.mu) {
    const Replicator& policy = shared_.core.policy();
    return {policy.checkpoint(), policy.applied(), policy.durable(), policy.issued()};
  }

  const VolumeDir& dir_;
  const StreamOptions options_;
  SharedCore shared_;
  ReplicaLinks links_;
  Applier applier_;
  StableWriter stable_;
  NoteWriter notes_;
  AckReceiver receiver_;
  IoThread io_;
  std::vector<std::thread> threads_;
};

absl::Status Pipeline::Begin() {
  shared_.io_wake.Reset(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!shared_.io_wake.valid()) return ErrnoStatus(errno, "eventfd");
  SALIUS_RETURN_IF_ERROR(links_.Begin());

  // Before anything else: this session, durably, in mode local with no members (docs/protocol.md).
  StateNotes::Place place;
  SALIUS_ASSIGN_OR_RETURN(place.boot_id, BootId());
  const absl::StatusOr<uint64_t> mount_id = dir_.backing->MountIdOf(dir_.root_fd);
  if (mount_id.ok()) place.mount_id = *mount_id;
  const absl::StatusOr<uint64_t> complaints = dir_.backing->ComplaintsOf(dir_.root_fd);
  applier_.Begin(notes_.next_epoch(),
                 complaints.ok() ? *complaints : AppliedMark::kUnknownComplaints);
  SALIUS_RETURN_IF_ERROR(notes_.Begin(place, SecureRandom64()));
  const Epoch epoch = shared_.key().epoch;
  SALIUS_RETURN_IF_ERROR(stable_.Begin(epoch));
  SLOG_INFO("{}: session epoch {} started, mode local, {} replicas, acks {}", options_.session_name,
            epoch, links_.size(), options_.config.acks);
  threads_.emplace_back([this] { io_.Loop(); });
  threads_.emplace_back([this] { applier_.ApplyLoop(); });
  threads_.emplace_back([this] { applier_.SyncLoop(); });
  threads_.emplace_back([this] { stable_.Loop(); });
  threads_.emplace_back([this] { notes_.Loop(); });
  for (size_t i = 0; i < links_.size(); ++i) {
    threads_.emplace_back([this, i] { links_.SessionLoop(static_cast<int>(i)); });
  }
  return absl::OkStatus();
}

void Pipeline::StopThreads() {
  {
    SharedCore::Turn turn(shared_);
    turn.Feed(input::Stopping{});
    shared_.WakeCallers();
    shared_.WakeThreads();
  }
  links_.StopOpening();
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
}

absl::Status Pipeline::AwaitWindow(size_t record_bytes) {
  ++shared_.window_waiters;
  while (shared_.core.Waitable().ok() &&
         !shared_.core.CanIssue(shared_.clock.MonotonicNanos(), record_bytes)) {
    shared_.window_cv.WaitFor(&shared_.mu, 20 * kMs);
  }
  --shared_.window_waiters;
  SALIUS_RETURN_IF_ERROR(shared_.health());
  return shared_.core.Waitable();
}

absl::StatusOr<RecordRef> Pipeline::Issue(RecordDraft draft) {
  SALIUS_CHECK(draft.body.size() <= kMaxRecordBody);
  const SendWhen when = draft.when;
  auto record = std::make_shared<Record>(std::move(draft));
  record->stamp().body_crc = Crc32c(absl::MakeConstSpan(
      reinterpret_cast<const uint8_t*>(record->body().data()), record->body().size()));
  bool wake_io = false;
  {
    SharedCore::Turn turn(shared_);
    SALIUS_RETURN_IF_ERROR(AwaitWindow(record->header().total_bytes()));
    const int64_t now = shared_.clock.MonotonicNanos();
    shared_.core.Issue(now, shared_.clock.RealtimeNanos(), record, when, turn.work());
    const Replicator& policy = shared_.core.policy();
    if (policy.sendable() < policy.issued() && shared_.io_wakes_ns > now + kGatherSlackNs) {
      wake_io = true;
      shared_.io_wakes_ns = now;
    }
  }
  if (wake_io) shared_.WakeIo();
  return RecordRef(std::move(record));
}

absl::Status Pipeline::WaitApplied(Seq seq) {
  SALIUS_RETURN_IF_ERROR(WaitDurable(seq));
  while (shared_.mirror.applied.load(std::memory_order_acquire) < seq) {
    applier_.ApplySome(0);
    applier_.Hurry(seq);
    absl::MutexLock lock(&shared_.mu);
    if (shared_.core.policy().applied() >= seq) break;
    SALIUS_RETURN_IF_ERROR(shared_.health());
    SALIUS_RETURN_IF_ERROR(shared_.core.Waitable());
    ++shared_.applied_waiters;
    shared_.applied_cv.WaitFor(&shared_.mu, 50 * kMs);
    --shared_.applied_waiters;
  }
  return absl::OkStatus();
}

absl::Status Pipeline::Checkpoint() {
  const Seq target = shared_.mirror.issued.load(std::memory_order_acquire);
  if (target == 0) return absl::OkStatus();
  SALIUS_RETURN_IF_ERROR(WaitApplied(target));
  while (true) {
    {
      SharedCore::Turn turn(shared_);
      const Replicator& policy = shared_.core.policy();
      SALIUS_RETURN_IF_ERROR(shared_.health());
      if (policy.checkpoint() >= target) return absl::OkStatus();
      SALIUS_RETURN_IF_ERROR(shared_.core.Waitable());
      turn.Feed(input::CheckpointWanted{});
    }
    absl::MutexLock lock(&shared_.mu);
    if (shared_.core.policy().checkpoint() < target && shared_.health().ok()) {
      shared_.checkpoint_cv.WaitFor(&shared_.mu, 100 * kMs);
    }
  }
}

absl::StatusOr<FileId> Pipeline::NewFileId() {
  while (true) {
    {
      SharedCore::Turn turn(shared_);
      SALIUS_RETURN_IF_ERROR(shared_.health());
      SALIUS_RETURN_IF_ERROR(shared_.core.Waitable());
      const std::optional<FileId> id =
          shared_.core.NewFileId(shared_.clock.MonotonicNanos(), turn.work());
      if (id) return *id;
    }
    absl::MutexLock lock(&shared_.mu);
    if (shared_.core.needs_file_ids() && shared_.core.Waitable().ok()) {
      shared_.checkpoint_cv.WaitFor(&shared_.mu, 50 * kMs);
    }
  }
}

absl::Status Pipeline::health() const {
  if (!shared_.mirror.failed.load(std::memory_order_acquire)) return absl::OkStatus();
  absl::MutexLock lock(&shared_.mu);
  return shared_.health();
}

SessionStatus Pipeline::status() const {
  SessionStatus out;
  absl::MutexLock lock(&shared_.mu);
  const Replicator& policy = shared_.core.policy();
  const int64_t now = shared_.clock.MonotonicNanos();
  out.epoch = shared_.core.key().epoch;
  out.marks = WatermarksLocked();
  out.mode = shared_.core.mode();
  out.mode_since_unix_ms = shared_.mode_since.unix_ms;
  out.mode_for_ms = static_cast<uint64_t>(now - shared_.mode_since.ns) / kMs;
  out.mode_detail = policy.ModeDetail(now);
  out.uncheckpointed_bytes = policy.uncheckpointed_bytes();
  out.oldest_uncheckpointed_ms = static_cast<uint64_t>(policy.oldest_uncheckpointed_ns(now)) / kMs;
  out.stable_log_used_bytes = stable_.used_bytes();
  out.stable_log_capacity_bytes = stable_.capacity();
  out.failure = std::string(shared_.health().message());
  out.replicas = links_.Reports(now);
  out.sealing = links_.Sealing();
  uint64_t members = 0, recoverable = 0;
  for (const ReplicaReport& report : out.replicas) {
    members += report.member ? 1 : 0;
    recoverable += report.member && report.control_problem.empty() ? 1 : 0;
  }
  const uint64_t needed = members + 1 - std::min<uint64_t>(members, options_.config.acks);
  if (out.mode == "replicated" && recoverable < needed) {
    absl::StrAppend(&out.mode_detail, out.mode_detail.empty() ? "" : "; ",
                    "a recovery would need answers from ", needed, " members and could ask ",
                    recoverable, ": the replicas' problems say why");
  }
  return out;
}

absl::Status Pipeline::Stop() {
  SALIUS_RETURN_IF_ERROR(Checkpoint());
  {
    SharedCore::Turn turn(shared_);
    SALIUS_RETURN_IF_ERROR(shared_.health());
    const Replicator& policy = shared_.core.policy();
    if (policy.checkpoint() != policy.issued()) {
      return absl::FailedPreconditionError("records were issued while the volume was being closed");
    }
    turn.Feed(input::Stopping{});  // no record is issued after this
  }
  StopThreads();
  SALIUS_RETURN_IF_ERROR(notes_.Close());
  // From here on nothing depends on a replica; the drop only frees their memory earlier.
  links_.DropLogs();
  SLOG_INFO("{}: session epoch {} closed cleanly", options_.session_name, shared_.key().epoch);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<RecordStream>> StartPipeline(const VolumeDir& dir, StateFile state,
                                                            StableLog stable, ApplySink& sink,
                                                            StreamOptions options) {
  SALIUS_RETURN_IF_ERROR(ValidateVolumeConfig(options.config));
  if (state.state().open) {
    return absl::FailedPreconditionError(
        "the volume was not closed cleanly: recover it first (salius-recover)");
  }
  SALIUS_ASSIGN_OR_RETURN(AppliedMark mark,
                          AppliedMark::IsReliedOn(*dir.backing, dir.root_fd)
                              ? AppliedMark::Open(dir.salius_fd)
                              : absl::StatusOr<AppliedMark>(AppliedMark::InMemory()));
  auto pipeline =
      std::make_unique<Pipeline>(dir, std::move(state), std::move(stable), std::move(mark), sink,
                                 std::move(options), SystemClock());
  SALIUS_RETURN_IF_ERROR(pipeline->Begin());
  return pipeline;
}

}  // namespace salius
