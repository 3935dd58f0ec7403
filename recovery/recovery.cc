#include "recovery/recovery.h"

#include <optional>

#include "common/check.h"
#include "common/clock.h"
#include "common/log.h"
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

// R81: notes the clean state. From then on nothing can fail the recovery: the next session does any
// work left undone (R82).
absl::Status Commit(Run& run, const ReplayPlan& plan, OpenVolume* volume,
                    std::vector<Peer>& peers) {
  RecoveryReport& report = run.report();
  const Epoch epoch = volume->state().epoch;
  SALIUS_RETURN_IF_ERROR(
      volume->file.Write(CommittedState(volume->state(), report.next_epoch, report.decided,
                                        plan.max_file_id, plan.last_timestamp_ns)));
  SALIUS_RETURN_IF_ERROR(run.Step(RecoveryStep::kCommitted));
  if (const absl::Status cut = volume->stable.Cut(report.next_epoch, 0); !cut.ok()) {
    SLOG_WARN("stable log not cut: {}", cut.ToString());
  }
  DropAtReplicas(volume->state().volume, epoch, peers);
  run.target().CleanUp(run.context(), run.dir().config);
  SALIUS_RETURN_IF_ERROR(run.Step(RecoveryStep::kDropped));
  report.outcome = RecoveryOutcome::kRecovered;
  return absl::OkStatus();
}

// The phases, in order. Each takes the results of those before it.
absl::Status RunPhases(Run& run) {
  run.Enter("open");
  SALIUS_ASSIGN_OR_RETURN(std::optional<OpenVolume> volume, ReadVolume(run));
  if (!volume.has_value()) return absl::OkStatus();  // R1
  const bool resumed = volume->decision.has_value();
  GivenUp given_up(run, volume->state().epoch);
  Fenced fenced;
  Gathered gathered;
  Decided decided;
  if (resumed) {  // R10
    SALIUS_ASSIGN_OR_RETURN(decided, ResumeDecision(run, *volume));
  } else {
    SALIUS_RETURN_IF_ERROR(UseSameLife(run, &volume->file));
    run.Enter("fence");
    SALIUS_ASSIGN_OR_RETURN(fenced,
                            FenceReplicas(run, volume->state(), volume->stable_records.views()));
    run.Enter("collect");
    SALIUS_ASSIGN_OR_RETURN(gathered, CollectRecords(run, *volume, &fenced));
    run.Enter("merge");
    SALIUS_ASSIGN_OR_RETURN(decided, MergeRecords(run, *volume, gathered, &fenced, &given_up));
  }
  SALIUS_ASSIGN_OR_RETURN(ReplayPlan plan, PlanReplay(decided.records));
  if (run.options().dry_run) return DescribeReplay(run, plan);
  if (!resumed) {
    run.Enter("pin");
    SALIUS_RETURN_IF_ERROR(given_up.NoteBeforePin());
    SALIUS_RETURN_IF_ERROR(PinDecision(run, decided, gathered.in_stable, &*volume));
  }
  run.Enter("replay");
  const auto attempt = [&run](const ReplayPlan& accepted) {
    return run.target().Replay(run.context(), accepted);
  };
  SALIUS_ASSIGN_OR_RETURN(plan, ReplayRecords(decided.records, &run.report(), attempt));
  run.Enter("sync");
  run.Progress({"sync", 0, 0, ""});
  SALIUS_RETURN_IF_ERROR(run.target().Sync(run.context()));
  SALIUS_RETURN_IF_ERROR(run.Step(RecoveryStep::kSynced));
  run.Enter("commit");
  SALIUS_RETURN_IF_ERROR(given_up.NoteBeforeCommit());
  return Commit(run, plan, &*volume, fenced.peers);
}

}  // namespace
}  // namespace recovery

absl::StatusOr<RecoveryReport> Recover(VolumeDir& dir, const RecoveryOptions& options) {
  Clock& clock = SystemClock();
  const int64_t start_ns = clock.MonotonicNanos();
  RecoveryReport report;
  recovery::Run run(dir, options, clock, &report);
  absl::Status status = recovery::RunPhases(run);
  run.Enter("");
  if (!status.ok()) status = run.Fail(status);
  report.elapsed_ms =
      static_cast<uint64_t>(clock.MonotonicNanos() - start_ns) / recovery::kNanosPerMs;
  if (options.partial_report != nullptr) *options.partial_report = report;
  if (!status.ok()) return status;
  return report;
}

}  // namespace salius
