#include "recovery/phases/fence_phase.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "common/check.h"
#include "common/log.h"
#include "common/random.h"
#include "recovery/agree/account.h"
#include "recovery/agree/merge.h"
#include "recovery/agree/quorum.h"

namespace salius::recovery {
namespace {

// A forced recovery takes an epoch above every epoch in the answers. Each round can only find the
// epoch of a further replica.
constexpr int kFenceRounds = 4;

// R19: returns the token and fence epoch of this recovery, an earlier run's when it was cut off.
absl::StatusOr<RunNote> PrepareRun(const Run& run, const VolumeState& state) {
  SALIUS_ASSIGN_OR_RETURN(
      const std::optional<RunNote> earlier,
      ReadRunNote(*run.dir().backing, run.dir().salius_fd, state.volume, state.epoch));
  if (earlier.has_value()) {
    // Its name may be in the page cache only: the run that wrote it may have died before the sync.
    if (!run.options().dry_run) {
      SALIUS_RETURN_IF_ERROR(run.dir().backing->Fsync(run.dir().salius_fd));
    }
    return *earlier;
  }
  RunNote note{state.volume, state.epoch, state.epoch + 1, 0};
  while (note.token == 0) note.token = SecureRandom64();
  if (!run.options().dry_run) SALIUS_RETURN_IF_ERROR(NoteRun(run, note));
  return note;
}

void AskPeers(const Run& run, const VolumeState& state, const RunNote& note,
              std::vector<Peer>* peers) {
  const RecoveryOptions& options = run.options();
  FenceRequest request;
  request.epoch = note.fence_epoch;
  request.token = note.token;
  request.ask_only = options.dry_run;
  request.rpc_timeout_ms = options.rpc_timeout_ms;
  request.total_timeout_ms = options.fence_timeout_ms;
  request.grace_ms = options.fence_grace_ms;
  request.one_thread = options.one_thread;
  if (QuorumNeeded(state) == 0) {  // R29
    request.rpc_timeout_ms = std::min(request.rpc_timeout_ms, options.local_fence_timeout_ms);
    request.total_timeout_ms = options.local_fence_timeout_ms;
  }
  const uint64_t total = peers->size();
  FenceAll(
      state, request,
      [&](uint64_t answers) {
        run.Progress({"fence", answers, total, "replicas"});
      },
      peers);
}

// Returns an epoch above every epoch in the answers.
Epoch EpochAboveAnswers(Epoch fence_epoch, absl::Span<const Peer> peers) {
  for (const Peer& peer : peers) {
    if (!peer.answer.has_value()) continue;
    const Inventory& inventory = peer.answer->inventory;
    fence_epoch = std::max({fence_epoch, inventory.epoch + 1, inventory.promised_epoch + 1});
  }
  return fence_epoch;
}

// Checks the inventories before any record is fetched; Merge checks again those that count.
absl::Status CheckInventories(const Run& run, const VolumeState& state, const Fenced& fenced) {
  for (const Peer& peer : fenced.peers) {
    if (!peer.answer.has_value()) continue;
    Inventory inventory = peer.answer->inventory;
    // It is our own promise, when an earlier forced run went higher than one above the state.
    if (inventory.promised_epoch == fenced.note.fence_epoch) inventory.promised_epoch = 0;
    const absl::Status checked =
        CheckInventory(state.epoch, state.checkpoint, peer.address, inventory);
    if (!checked.ok() && !run.options().force) return checked;
    if (!checked.ok()) run.report().overridden.emplace_back(checked.message());
  }
  return absl::OkStatus();
}

// Asks until no replica refuses, each round with a larger epoch. R30, R31: refusals end the run
// without --force.
absl::Status FenceInRounds(Run& run, const VolumeState& state, ReplicaConnector& connector,
                           Fenced* fenced) {
  for (int round = 0;; ++round) {
    fenced->peers = MakePeers(state, run.dir().config.replicas, connector);
    AskPeers(run, state, fenced->note, &fenced->peers);
    if (run.options().dry_run) return absl::OkStatus();
    absl::Status refusals = CheckRefusals(fenced->peers, fenced->note.fence_epoch);
    if (refusals.ok()) return absl::OkStatus();
    RecoveryReport& report = run.report();
    if (!run.options().force || round >= kFenceRounds) {
      report.replicas = AccountFor(state, fenced->peers, {}, {}).replicas;
      if (!absl::IsDataLoss(refusals)) report.outcome = RecoveryOutcome::kFenced;
      return refusals;
    }
    report.overridden.emplace_back(refusals.message());
    fenced->note.fence_epoch = EpochAboveAnswers(fenced->note.fence_epoch, fenced->peers);
    SALIUS_RETURN_IF_ERROR(NoteRun(run, fenced->note));
  }
}

}  // namespace

absl::StatusOr<Fenced> FenceReplicas(Run& run, const VolumeState& state,
                                     absl::Span<const RecordView> stable) {
  Fenced fenced;
  SALIUS_ASSIGN_OR_RETURN(fenced.note, PrepareRun(run, state));
  if (run.options().connector == nullptr) fenced.connector = MakeGrpcConnector(run.options().keys);
  ReplicaConnector& connector =
      fenced.connector != nullptr ? *fenced.connector : *run.options().connector;
  SALIUS_RETURN_IF_ERROR(FenceInRounds(run, state, connector, &fenced));
  run.report().next_epoch = fenced.note.fence_epoch;
  for (const Peer& peer : fenced.peers) {
    if (peer.answer.has_value()) SALIUS_RETURN_IF_ERROR(run.Step(RecoveryStep::kFenced));
  }
  SALIUS_ASSIGN_OR_RETURN(fenced.shortfall, CheckQuorum(run, state, fenced.peers, {}, stable));
  SALIUS_RETURN_IF_ERROR(CheckInventories(run, state, fenced));
  return fenced;
}

absl::Status NoteRun(const Run& run, const RunNote& note) {
  SALIUS_RETURN_IF_ERROR(WithSpace(
      run.context(), [&] { return WriteRunNote(*run.dir().backing, run.dir().salius_fd, note); }));
  return run.Step(RecoveryStep::kRunNoted);
}

absl::StatusOr<std::string> CheckQuorum(const Run& run, const VolumeState& state,
                                        absl::Span<const Peer> peers,
                                        absl::Span<const Collected> collected,
                                        absl::Span<const RecordView> stable) {
  const QuorumAccount account = AccountFor(state, peers, collected, stable);
  RecoveryReport& report = run.report();
  report.quorum_needed = account.count.needed;
  report.quorum_counted = account.count.counted;
  report.replicas = account.replicas;
  if (account.count.enough()) return "";
  if (!run.options().force) {  // R27
    report.outcome = RecoveryOutcome::kNotEnough;
    return absl::UnavailableError(account.text);
  }
  report.explanation = "forced: " + account.text;
  SLOG_WARN("recovery of {} is forced: {}", report.volume, account.text);
  return account.text;
}

}  // namespace salius::recovery
