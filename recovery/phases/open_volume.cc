#include "recovery/phases/open_volume.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_format.h"
#include "common/check.h"
#include "log/applied_mark.h"
#include "recovery/agree/merge.h"
#include "recovery/direct/pinned_log.h"
#include "recovery/replay/commit.h"
#include "recovery/run_file.h"
#include "storage/clean_volume.h"

namespace salius::recovery {
namespace {

absl::StatusOr<StateFile> OpenState(Run& run) {
  const VolumeDir& dir = run.dir();
  SALIUS_CHECK(dir.lock_fd >= 0, "recovery needs the volume lock");
  absl::StatusOr<StateFile> opened = StateFile::Open(*dir.backing, dir.salius_fd, kStateFileName);
  if (absl::IsNotFound(opened.status())) {  // R6
    return absl::DataLossError(absl::StrFormat(
        "%s/%s/%s is missing; without it recovery cannot know which records are needed", dir.path,
        kSaliusDir, kStateFileName));
  }
  SALIUS_RETURN_IF_ERROR(opened.status());
  const VolumeState& state = opened->state();
  SALIUS_RETURN_IF_ERROR(CheckVolume(state, dir.config.volume));  // R2, R7
  RecoveryReport& report = run.report();
  report.volume = state.volume.ToString();
  report.mode = std::string(ModeName(state.mode));
  report.epoch = state.epoch;
  report.next_epoch = state.epoch;
  report.checkpoint = report.decided = report.highest = state.checkpoint;
  return opened;
}

// R1: ends the recovery of a clean volume.
absl::Status TidyCleanVolume(Run& run, const VolumeState& state) {
  if (run.dir().config.kind == VolumeKind::kDirect) {  // R86
    if (!run.options().dry_run) {
      SALIUS_RETURN_IF_ERROR(RemovePinnedLog(*run.dir().backing, run.dir().salius_fd));
    }
    run.report().outcome = RecoveryOutcome::kClean;
    return absl::OkStatus();
  }
  SALIUS_RETURN_IF_ERROR(
      OpenCleanLog(*run.dir().backing, run.dir().salius_fd, state).status());  // R2
  // The last run may have been cut off between its commit and its clean-up.
  if (!run.options().dry_run) run.target().CleanUp(run.context(), run.dir().config);
  run.report().outcome = RecoveryOutcome::kClean;
  return absl::OkStatus();
}

absl::StatusOr<std::optional<StableLog>> OpenStableLog(Run& run, const VolumeState& state,
                                                       StableLog::Contents* contents) {
  const VolumeDir& dir = run.dir();
  const bool direct = dir.config.kind == VolumeKind::kDirect;
  absl::StatusOr<StableLog> stable =
      StableLog::Open(*dir.backing, dir.salius_fd, kStableLogFileName, state.volume, contents);
  if (direct && absl::IsNotFound(stable.status())) return std::nullopt;
  if (absl::IsNotFound(stable.status())) {  // R7, R8
    return absl::DataLossError(
        absl::StrFormat("%s/%s/%s is missing", dir.path, kSaliusDir, kStableLogFileName));
  }
  SALIUS_RETURN_IF_ERROR(stable.status());
  run.report().torn_bytes = contents->torn_bytes;  // R9
  if (direct) {  // R85: an earlier run was cut off while it pinned
    const bool decided =
        std::any_of(contents->decisions.begin(), contents->decisions.end(),
                    [&state](const Decision& decision) { return decision.epoch >= state.epoch; });
    if (!decided) {
      *contents = StableLog::Contents();
      return std::nullopt;
    }
  }
  return std::optional<StableLog>(*std::move(stable));
}

}  // namespace

absl::StatusOr<std::optional<OpenVolume>> ReadVolume(Run& run) {
  SALIUS_ASSIGN_OR_RETURN(StateFile file, OpenState(run));
  if (!file.state().open) {
    SALIUS_RETURN_IF_ERROR(TidyCleanVolume(run, file.state()));
    return std::nullopt;
  }
  StableLog::Contents contents;
  SALIUS_ASSIGN_OR_RETURN(std::optional<StableLog> stable,
                          OpenStableLog(run, file.state(), &contents));
  RecordSet records;
  for (std::string& record : contents.records) {
    SALIUS_RETURN_IF_ERROR(records.Add(std::move(record)));
  }
  SALIUS_RETURN_IF_ERROR(run.Step(RecoveryStep::kLocked));
  SALIUS_ASSIGN_OR_RETURN(const std::optional<Decision> decision,
                          FindDecision(file.state().epoch, contents.decisions));
  return OpenVolume{std::move(file), std::move(stable), std::move(records), decision};
}

absl::StatusOr<Decided> ResumeDecision(Run& run, const OpenVolume& volume) {
  const Decision& decision = *volume.decision;
  const VolumeState& state = volume.state();
  RecoveryReport& report = run.report();
  run.TakeEarlierDecision(decision.last);
  if (run.options().until.has_value() && *run.options().until < decision.last) {
    report.outcome = RecoveryOutcome::kBadRequest;
    return absl::FailedPreconditionError(absl::StrFormat(
        "an earlier run has decided for records up to %d; --until %d comes too late", decision.last,
        *run.options().until));
  }
  Decided decided;
  decided.last = decision.last;
  SALIUS_ASSIGN_OR_RETURN(decided.records,
                          RecordsOfDecision(decision, volume.stable_records.views()));
  report.checkpoint = decision.checkpoint;
  ReportDecided(decided, &report);
  SALIUS_ASSIGN_OR_RETURN(report.next_epoch, NextEpoch(run, state));
  return decided;
}

absl::StatusOr<Epoch> NextEpoch(const Run& run, const VolumeState& state) {
  SALIUS_ASSIGN_OR_RETURN(
      const std::optional<RunNote> note,
      ReadRunNote(*run.dir().backing, run.dir().salius_fd, state.volume, state.epoch));
  return note.has_value() ? note->fence_epoch : state.epoch + 1;
}

absl::Status UseSameLife(Run& run, StateFile* file) {
  RecoveryReport& report = run.report();
  SALIUS_ASSIGN_OR_RETURN(report.same_life, IsSameLife(run.dir(), file->state()));
  if (!report.same_life || run.options().dry_run) return absl::OkStatus();
  SALIUS_RETURN_IF_ERROR(NoteSameLife(run.context(), file));
  report.checkpoint = report.decided = report.highest = file->state().checkpoint;
  return absl::OkStatus();
}

absl::StatusOr<bool> UseDirectSameLife(Run& run, const StateFile& file) {
  RecoveryReport& report = run.report();
  SALIUS_ASSIGN_OR_RETURN(report.same_life, IsSameLife(run.dir(), file.state()));
  if (!report.same_life) return false;
  // Without a mark of the session it is not known whether a sync of it had failed.
  const absl::Status there =
      run.dir().backing->StatAt(run.dir().salius_fd, AppliedMark::kFileName).status();
  if (absl::IsNotFound(there)) {
    report.same_life = false;
    return false;
  }
  SALIUS_RETURN_IF_ERROR(there);
  if (run.options().dry_run) return true;
  SALIUS_ASSIGN_OR_RETURN(const std::optional<Seq> applied,
                          SyncSameLife(run.context(), file.state()));
  report.same_life = applied.has_value();
  return report.same_life;
}

}  // namespace salius::recovery
