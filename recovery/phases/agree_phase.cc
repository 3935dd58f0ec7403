#include "recovery/phases/agree_phase.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_format.h"
#include "common/check.h"
#include "recovery/agree/merge.h"
#include "recovery/agree/pin.h"

namespace salius::recovery {
namespace {

MergeInput InputOf(const Run& run, const OpenVolume& volume, const Gathered& gathered,
                   const Fenced& fenced) {
  const VolumeState& state = volume.state();
  MergeInput input;
  input.volume = state.volume;
  input.epoch = state.epoch;
  input.checkpoint = state.checkpoint;
  input.mode = state.mode;
  input.stable = volume.stable_records.views();
  input.force = run.options().force;
  input.until = run.options().until;
  for (size_t i = 0; i < fenced.peers.size(); ++i) {
    const Peer& peer = fenced.peers[i];
    if (!peer.answer.has_value()) continue;
    ReplicaEvidence evidence{peer.address, peer.answer->inventory, {}};
    // Ignore the promise that this recovery asked for.
    if (evidence.inventory.promised_epoch == run.report().next_epoch) {
      evidence.inventory.promised_epoch = 0;
    }
    if (i < gathered.collected.size()) evidence.records = gathered.collected[i].records.views();
    input.replicas.push_back(std::move(evidence));
  }
  return input;
}

// R49, R50: notes the records that `until` leaves out, which only --force allows. Any of them may
// have been acknowledged, also above the largest durable mark: records carry that mark a little
// late.
absl::Status CheckDropped(const Run& run, const MergeResult& merged) {
  if (merged.last >= merged.last_there) return absl::OkStatus();
  RecoveryReport& report = run.report();
  report.dropped = {merged.last + 1, merged.last_there};
  if (run.options().force) return absl::OkStatus();
  report.outcome = RecoveryOutcome::kBadRequest;
  return absl::FailedPreconditionError(absl::StrFormat(
      "--until %d: the records %s would be dropped, which may have been acknowledged; --dry-run "
      "--force shows what would be left, --force does it",
      *run.options().until, RangesText({report.dropped.value()})));
}

}  // namespace

absl::StatusOr<Gathered> CollectRecords(Run& run, const OpenVolume& volume, Fenced* fenced) {
  const VolumeState& state = volume.state();
  Gathered gathered;
  gathered.shortfall = fenced->shortfall;
  for (const RecordView& record : volume.stable_records.views()) {
    if (record.header.epoch == state.epoch) gathered.in_stable.Add(record.seq());
  }
  if (state.mode == Mode::kLocal) return gathered;  // R41
  CollectRequest request;
  request.volume = state.volume;
  request.epoch = state.epoch;
  request.checkpoint = state.checkpoint;
  request.timeout_ms = run.options().fetch_timeout_ms;
  request.attempts = run.options().fetch_attempts;
  request.least_piece = run.options().fetch_piece;
  request.one_thread = run.options().one_thread;
  Coverage coverage = gathered.in_stable;
  SALIUS_RETURN_IF_ERROR(CollectAll(
      request, &fenced->peers,
      [&](uint64_t done, uint64_t total) {
        run.Progress({"collect", done, total, "records"});
      },
      [&] { return run.Step(RecoveryStep::kCollected); }, &coverage, &gathered.collected));
  SALIUS_ASSIGN_OR_RETURN(
      gathered.shortfall,
      CheckQuorum(run, state, fenced->peers, gathered.collected, volume.stable_records.views()));
  return gathered;
}

absl::StatusOr<Decided> MergeRecords(Run& run, const OpenVolume& volume, const Gathered& gathered,
                                     Fenced* fenced, GivenUp* given_up) {
  RecoveryReport& report = run.report();
  const RecoveryOptions& options = run.options();
  if (options.until.has_value() && *options.until < volume.state().checkpoint) {
    report.outcome = RecoveryOutcome::kBadRequest;
  }
  SALIUS_ASSIGN_OR_RETURN(MergeResult merged, Merge(InputOf(run, volume, gathered, *fenced)));
  report.durable_mark = merged.durable_mark;
  report.highest = merged.highest;
  if (options.force) report.unaccounted = merged.missing;
  if (merged.highest_epoch >= report.next_epoch) {  // overridden by --force
    report.next_epoch = fenced->note.fence_epoch = merged.highest_epoch + 1;
    if (!options.dry_run) SALIUS_RETURN_IF_ERROR(NoteRun(run, fenced->note));
  }
  SALIUS_RETURN_IF_ERROR(CheckDropped(run, merged));
  given_up->Take(merged, gathered.shortfall);
  Decided decided{merged.last, std::move(merged.records)};
  ReportDecided(decided, &report);
  SALIUS_RETURN_IF_ERROR(run.Step(RecoveryStep::kMerged));
  return decided;
}

absl::Status PinDecision(const Run& run, const Decided& decided, const Coverage& in_stable,
                         OpenVolume* volume) {
  PinRequest request;
  request.epoch = volume->state().epoch;
  request.checkpoint = volume->state().checkpoint;
  request.last = decided.last;
  request.records = decided.records;
  request.in_stable = [&](Seq seq) { return in_stable.Contains(seq); };
  SALIUS_RETURN_IF_ERROR(Pin(request, *volume->stable, [&](uint64_t done, uint64_t total) {
    run.Progress({"pin", done, total, "bytes"});
    return run.Step(RecoveryStep::kPinAppended);
  }));
  return run.Step(RecoveryStep::kPinned);
}

}  // namespace salius::recovery
