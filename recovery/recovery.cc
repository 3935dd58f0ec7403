#include "recovery/recovery.h"

#include <optional>

#include "common/check.h"
#include "common/clock.h"
#include "common/log.h"
#include "recovery/direct/direct_plan.h"
#include "recovery/direct/direct_replay.h"
#include "recovery/direct/pinned_log.h"
#include "recovery/phases/agree_phase.h"
#include "recovery/phases/decided.h"
#include "recovery/phases/fence_phase.h"
#include "recovery/phases/given_up.h"
#include "recovery/phases/open_volume.h"
#include "recovery/phases/run.h"
#include "recovery/replay/commit.h"
#include "recovery/replay/replay.h"
#include "recovery/replay/replay_plan.h"
#include "recovery/replay/replay_target.h"

namespace salius {
namespace recovery {
namespace {

constexpr uint64_t kDropTimeoutMs = 2000;
constexpr int64_t kNanosPerMs = 1'000'000;

// Counts the changes of the plan, for a dry run.
void CountPlan(const ReplayPlan& plan, RecoveryReport* report) {
  report->bytes_written = plan.data_bytes;
  for (const auto& [id, object] : plan.objects) {
    if (!object.ops.empty() && object.fate != Fate::kUnbound) ++report->files_changed;
    report->records_skipped += object.skipped;
  }
  for (const auto& [name, binding] : plan.bindings) {
    ++(binding.target == kNoFileId ? report->names_removed : report->names_bound);
  }
}

// Reports what a run would do. DATA_LOSS when it would end with it.
absl::Status DescribeReplay(Run& run, const ReplayPlan& plan) {
  ObjectPaths paths;
  ReplayContext context = run.context();
  context.paths = &paths;
  const absl::Status checked = run.target().Check(context, plan);
  run.report().plan = DescribePlan(plan, paths);
  CountPlan(plan, &run.report());
  SALIUS_RETURN_IF_ERROR(checked);
  run.report().outcome = RecoveryOutcome::kDryRun;
  return absl::OkStatus();
}

// R82: has the replicas drop the log. They do so at the next session's open at the latest.
void DropAtReplicas(const VolumeId& volume, Epoch epoch, std::vector<Peer>& peers) {
  for (Peer& peer : peers) {
    if (!peer.answer.has_value() || peer.refused || !peer.answer->inventory.known) continue;
    const absl::Status dropped = peer.client->Drop(volume, epoch, kDropTimeoutMs);
    if (!dropped.ok()) {
      SLOG_INFO("replica {} keeps its log until the next session: {}", peer.address,
                dropped.ToString());
    }
  }
}

// The largest of the replayed records.
struct Largest {
  FileId file_id = kNoFileId;
  uint64_t timestamp_ns = 0;
};

// R81: notes the clean state. From then on nothing can fail the recovery: the next session does any
// work left undone (R82).
absl::Status Commit(Run& run, const Largest& largest, OpenVolume* volume,
                    std::vector<Peer>& peers) {
  RecoveryReport& report = run.report();
  const Epoch epoch = volume->state().epoch;
  SALIUS_RETURN_IF_ERROR(volume->file.Write(CommittedState(
      volume->state(), report.next_epoch, report.decided, largest.file_id, largest.timestamp_ns)));
  SALIUS_RETURN_IF_ERROR(run.Step(RecoveryStep::kCommitted));
  const absl::Status cut =
      volume->stable.has_value() ? volume->stable->Cut(report.next_epoch, 0) : absl::OkStatus();
  if (!cut.ok()) SLOG_WARN("stable log not cut: {}", cut.ToString());
  DropAtReplicas(volume->state().volume, epoch, peers);
  report.outcome = RecoveryOutcome::kRecovered;
  return absl::OkStatus();
}

// R86
absl::Status CleanUpDirect(Run& run, OpenVolume* volume) {
  volume->stable.reset();
  const absl::Status removed = RemovePinnedLog(*run.dir().backing, run.dir().salius_fd);
  if (!removed.ok()) SLOG_WARN("the pinned log stays: {}", removed.ToString());
  return run.Step(RecoveryStep::kDropped);
}

// The replicas that were asked, and what they gave; empty when none was asked.
struct Asked {
  Fenced fenced;
  Gathered gathered;
};

// Asks the replicas, and chooses T.
absl::StatusOr<Decided> Agree(Run& run, const OpenVolume& volume, Asked* asked, GivenUp* given_up) {
  run.Enter("fence");
  SALIUS_ASSIGN_OR_RETURN(asked->fenced,
                          FenceReplicas(run, volume.state(), volume.stable_records.views()));
  run.Enter("collect");
  SALIUS_ASSIGN_OR_RETURN(asked->gathered, CollectRecords(run, volume, &asked->fenced));
  run.Enter("merge");
  return MergeRecords(run, volume, asked->gathered, &asked->fenced, given_up);
}

absl::Status Sync(Run& run) {
  run.Enter("sync");
  run.Progress({"sync", 0, 0, ""});
  SALIUS_RETURN_IF_ERROR(run.target().Sync(run.context()));
  return run.Step(RecoveryStep::kSynced);
}

// The phases of a mount volume, in order. Each takes the results of those before it.
absl::Status RunPhases(Run& run) {
  run.Enter("open");
  SALIUS_ASSIGN_OR_RETURN(std::optional<OpenVolume> volume, ReadVolume(run));
  if (!volume.has_value()) return absl::OkStatus();  // R1
  const bool resumed = volume->decision.has_value();
  GivenUp given_up(run, volume->state().epoch);
  Asked asked;
  Decided decided;
  if (resumed) {  // R10
    SALIUS_ASSIGN_OR_RETURN(decided, ResumeDecision(run, *volume));
  } else {
    SALIUS_RETURN_IF_ERROR(UseSameLife(run, &volume->file));
    SALIUS_ASSIGN_OR_RETURN(decided, Agree(run, *volume, &asked, &given_up));
  }
  SALIUS_ASSIGN_OR_RETURN(ReplayPlan plan, PlanReplay(decided.records));
  if (run.options().dry_run) return DescribeReplay(run, plan);
  if (!resumed) {
    run.Enter("pin");
    SALIUS_RETURN_IF_ERROR(given_up.NoteBeforePin());
    SALIUS_RETURN_IF_ERROR(PinDecision(run, decided, asked.gathered.in_stable, &*volume));
  }
  run.Enter("replay");
  const auto attempt = [&run](const ReplayPlan& accepted) {
    return run.target().Replay(run.context(), accepted);
  };
  SALIUS_ASSIGN_OR_RETURN(plan, ReplayRecords(decided.records, &run.report(), attempt));
  SALIUS_RETURN_IF_ERROR(Sync(run));
  run.Enter("commit");
  SALIUS_RETURN_IF_ERROR(given_up.NoteBeforeCommit());
  SALIUS_RETURN_IF_ERROR(
      Commit(run, {plan.max_file_id, plan.last_timestamp_ns}, &*volume, asked.fenced.peers));
  run.target().CleanUp(run.context(), run.dir().config);
  return run.Step(RecoveryStep::kDropped);
}

// R83: decides to keep what the page cache has, which is on the disk.
absl::StatusOr<Decided> KeepPageCache(Run& run, const VolumeState& state) {
  Decided decided;
  decided.last = state.checkpoint;
  ReportDecided(decided, &run.report());
  SALIUS_ASSIGN_OR_RETURN(run.report().next_epoch, NextEpoch(run, state));
  return decided;
}

// The phases of a direct volume. Names and attributes are the file system's own. There is a log on
// this disk only from the pin to the commit.
absl::Status RunDirectPhases(Run& run) {
  run.report().direct = true;
  run.Enter("open");
  SALIUS_ASSIGN_OR_RETURN(std::optional<OpenVolume> volume, ReadVolume(run));
  if (!volume.has_value()) return absl::OkStatus();  // R1
  const bool resumed = volume->decision.has_value();
  GivenUp given_up(run, volume->state().epoch);
  Asked asked;
  Decided decided;
  if (resumed) {  // R10
    SALIUS_ASSIGN_OR_RETURN(decided, ResumeDecision(run, *volume));
  } else {
    SALIUS_ASSIGN_OR_RETURN(const bool same_life, UseDirectSameLife(run, volume->file));
    SALIUS_ASSIGN_OR_RETURN(decided, same_life ? KeepPageCache(run, volume->state())
                                               : Agree(run, *volume, &asked, &given_up));
  }
  SALIUS_ASSIGN_OR_RETURN(const DirectPlan plan, PlanDirect(decided.records));
  const VolumeId& id = volume->state().volume;
  if (run.options().dry_run) {
    SALIUS_RETURN_IF_ERROR(DescribeDirect(run.context(), id, plan));
    run.report().outcome = RecoveryOutcome::kDryRun;
    return absl::OkStatus();
  }
  if (!resumed && !decided.records.empty()) {  // R84
    run.Enter("pin");
    SALIUS_RETURN_IF_ERROR(given_up.NoteBeforePin());
    SALIUS_ASSIGN_OR_RETURN(volume->stable, MakePinnedLog(*run.dir().backing, run.dir().salius_fd,
                                                          id, decided.records));
    SALIUS_RETURN_IF_ERROR(PinDecision(run, decided, asked.gathered.in_stable, &*volume));
  }
  run.Enter("replay");
  SALIUS_RETURN_IF_ERROR(ReplayDirect(run.context(), id, plan));
  SALIUS_RETURN_IF_ERROR(Sync(run));
  run.Enter("commit");
  SALIUS_RETURN_IF_ERROR(given_up.NoteBeforeCommit());
  SALIUS_RETURN_IF_ERROR(
      Commit(run, {plan.max_file_id, plan.last_timestamp_ns}, &*volume, asked.fenced.peers));
  return CleanUpDirect(run, &*volume);
}

}  // namespace
}  // namespace recovery

absl::StatusOr<RecoveryReport> Recover(VolumeDir& dir, const RecoveryOptions& options) {
  Clock& clock = SystemClock();
  const int64_t start_ns = clock.MonotonicNanos();
  RecoveryReport report;
  recovery::Run run(dir, options, clock, &report);
  absl::Status status = dir.config.kind == VolumeKind::kDirect ? recovery::RunDirectPhases(run)
                                                               : recovery::RunPhases(run);
  run.Enter("");
  if (!status.ok()) status = run.Fail(status);
  report.elapsed_ms =
      static_cast<uint64_t>(clock.MonotonicNanos() - start_ns) / recovery::kNanosPerMs;
  if (options.partial_report != nullptr) *options.partial_report = report;
  if (!status.ok()) return status;
  return report;
}

}  // namespace salius
