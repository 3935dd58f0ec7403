#include "recovery/recovery.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_format.h"
#include "common/check.h"
#include "common/clock.h"
#include "common/file.h"
#include "common/log.h"
#include "common/random.h"
#include "log/recovery_notes.h"
#include "log/stable_log.h"
#include "log/state_file.h"
#include "recovery/agree/account.h"
#include "recovery/agree/collect.h"
#include "recovery/agree/coverage.h"
#include "recovery/agree/fence.h"
#include "recovery/agree/merge.h"
#include "recovery/agree/pin.h"
#include "recovery/replay/commit.h"
#include "recovery/replay/replay.h"
#include "recovery/replay/replay_plan.h"
#include "recovery/replay/replay_target.h"
#include "recovery/run_file.h"
#include "storage/clean_volume.h"

namespace salius {
namespace recovery {
namespace {

// A forced recovery takes an epoch above every epoch in the answers. Each round can only find the
// epoch of a further replica.
constexpr int kFenceRounds = 4;
constexpr uint64_t kDropTimeoutMs = 2000;
constexpr int64_t kNanosPerMs = 1'000'000;

// One run. The methods are the phases, in order.
class Run {
 public:
  Run(VolumeDir& dir, const RecoveryOptions& options, RecoveryReport* report)
      : dir_(dir), options_(options), report_(*report) {
    context_.root_fd = dir.root_fd;
    context_.salius_fd = dir.salius_fd;
    context_.force = options.force;
    context_.report = report;
    context_.ext4 = dir.ext4.get();
    context_.step = [this](RecoveryStep step) { return Step(step); };
    context_.progress = [this](const RecoveryProgress& progress) {
      if (options_.on_progress) options_.on_progress(progress);
    };
  }

  absl::Status Go() {
    absl::Status status = Phases();
    Enter("");
    if (status.ok()) return status;
    if (report_.already_decided && report_.outcome != RecoveryOutcome::kBadRequest) {
      absl::Status whole(
          status.code(),
          absl::StrFormat("%s (already decided: records up to %d, by an earlier run)",
                          status.message(), decision_->last));
      status.ForEachPayload(
          [&](absl::string_view url, const absl::Cord& value) { whole.SetPayload(url, value); });
      status = std::move(whole);
    }
    report_.explanation = std::string(status.message());
    if (report_.outcome == RecoveryOutcome::kUnknown) {
      report_.outcome =
          absl::IsDataLoss(status) ? RecoveryOutcome::kDataLoss : RecoveryOutcome::kFailed;
    }
    return status;
  }

 private:
  // Ends the present phase and starts `phase`.
  void Enter(std::string phase) {
    const int64_t now = SystemClock().MonotonicNanos();
    if (!phase_.empty()) {
      report_.phase_ms.emplace_back(phase_, (now - phase_began_ns_) / kNanosPerMs);
    }
    phase_ = std::move(phase);
    phase_began_ns_ = now;
  }

  absl::Status Phases() {
    Enter("open");
    SALIUS_RETURN_IF_ERROR(OpenState());
    if (report_.outcome == RecoveryOutcome::kClean) return absl::OkStatus();
    SALIUS_ASSIGN_OR_RETURN(StableLog stable, OpenStableLog());
    SALIUS_RETURN_IF_ERROR(Step(RecoveryStep::kLocked));
    SALIUS_ASSIGN_OR_RETURN(decision_, FindDecision(state().epoch, decisions_));
    if (decision_.has_value()) {
      SALIUS_RETURN_IF_ERROR(ResumeDecision());
    } else {
      SALIUS_RETURN_IF_ERROR(SameLife());
      Enter("fence");
      SALIUS_RETURN_IF_ERROR(FenceReplicas());
      Enter("collect");
      SALIUS_RETURN_IF_ERROR(CollectRecords());
      Enter("merge");
      SALIUS_RETURN_IF_ERROR(MergeRecords());
    }
    SALIUS_ASSIGN_OR_RETURN(ReplayPlan plan, PlanReplay(decided_));
    if (options_.dry_run) {
      ObjectPaths paths;
      context_.paths = &paths;
      const absl::Status checked = target().Check(context_, plan);
      context_.paths = nullptr;
      report_.plan = DescribePlan(plan, paths);
      CountPlan(plan);
      SALIUS_RETURN_IF_ERROR(checked);
      report_.outcome = RecoveryOutcome::kDryRun;
      return absl::OkStatus();
    }
    if (!decision_.has_value()) {
      Enter("pin");
      SALIUS_RETURN_IF_ERROR(NoteGivenUp());
      SALIUS_RETURN_IF_ERROR(PinDecision(stable));
    }
    Enter("replay");
    SALIUS_ASSIGN_OR_RETURN(plan,
                            ReplayRecords(decided_, &report_, [this](const ReplayPlan& accepted) {
                              return target().Replay(context_, accepted);
                            }));
    Enter("sync");
    context_.progress({"sync", 0, 0, ""});
    SALIUS_RETURN_IF_ERROR(target().Sync(context_));
    SALIUS_RETURN_IF_ERROR(Step(RecoveryStep::kSynced));
    Enter("commit");
    return Commit(plan, stable);
  }

  // Counts the changes of the plan.
  void CountPlan(const ReplayPlan& plan) {
    report_.bytes_written = plan.data_bytes;
    for (const auto& [id, object] : plan.objects) {
      if (!object.ops.empty() && object.fate != Fate::kUnbound) ++report_.files_changed;
      report_.records_skipped += object.skipped;
    }
    for (const auto& [name, binding] : plan.bindings) {
      ++(binding.target == kNoFileId ? report_.names_removed : report_.names_bound);
    }
  }

  const VolumeState& state() const { return state_->state(); }
  ReplayTarget& target() {
    return options_.target != nullptr ? *options_.target : BackingFileSystem();
  }

  absl::Status Step(RecoveryStep step) {
    if (!options_.step_hook) return absl::OkStatus();
    absl::Status status = options_.step_hook(step);
    if (!status.ok()) report_.outcome = RecoveryOutcome::kInterrupted;
    return status;
  }

  absl::Status OpenState() {
    SALIUS_CHECK(dir_.lock_fd >= 0, "recovery needs the volume lock");
    absl::StatusOr<StateFile> opened = StateFile::Open(dir_.salius_fd, kStateFileName);
    if (absl::IsNotFound(opened.status())) {
      return absl::DataLossError(absl::StrFormat(
          "%s/%s/%s is missing; without it recovery cannot know which records are needed",
          dir_.path, kSaliusDir, kStateFileName));
    }
    SALIUS_RETURN_IF_ERROR(opened.status());
    state_.emplace(*std::move(opened));
    SALIUS_RETURN_IF_ERROR(CheckVolume(state(), dir_.config.volume));
    report_.volume = state().volume.ToString();
    report_.mode = std::string(ModeName(state().mode));
    report_.epoch = state().epoch;
    report_.next_epoch = state().epoch;
    report_.checkpoint = report_.decided = report_.highest = state().checkpoint;
    if (state().open) return absl::OkStatus();
    SALIUS_RETURN_IF_ERROR(OpenCleanLog(dir_.salius_fd, state()).status());
    // The last run may have been cut off between its commit and its clean-up.
    if (!options_.dry_run) target().CleanUp(context_, dir_.config);
    report_.outcome = RecoveryOutcome::kClean;
    return absl::OkStatus();
  }

  absl::StatusOr<StableLog> OpenStableLog() {
    StableLog::Contents contents;
    absl::StatusOr<StableLog> stable =
        StableLog::Open(dir_.salius_fd, kStableLogFileName, state().volume, &contents);
    if (absl::IsNotFound(stable.status())) {
      return absl::DataLossError(
          absl::StrFormat("%s/%s/%s is missing", dir_.path, kSaliusDir, kStableLogFileName));
    }
    SALIUS_RETURN_IF_ERROR(stable.status());
    report_.torn_bytes = contents.torn_bytes;
    decisions_ = std::move(contents.decisions);
    for (std::string& record : contents.records) {
      SALIUS_RETURN_IF_ERROR(stable_records_.Add(std::move(record)));
    }
    return stable;
  }

  absl::Status ResumeDecision() {
    report_.already_decided = true;
    if (options_.until.has_value() && *options_.until < decision_->last) {
      report_.outcome = RecoveryOutcome::kBadRequest;
      return absl::FailedPreconditionError(absl::StrFormat(
          "an earlier run has decided for records up to %d; --until %d comes too late",
          decision_->last, *options_.until));
    }
    SALIUS_ASSIGN_OR_RETURN(decided_, RecordsOfDecision(*decision_, stable_records_.views()));
    report_.checkpoint = decision_->checkpoint;
    TakeDecided(decision_->last);
    SALIUS_ASSIGN_OR_RETURN(const std::optional<RunNote> note,
                            ReadRunNote(dir_.salius_fd, state().volume, state().epoch));
    report_.next_epoch = note.has_value() ? note->fence_epoch : state().epoch + 1;
    return absl::OkStatus();
  }

  absl::Status SameLife() {
    SALIUS_ASSIGN_OR_RETURN(report_.same_life, IsSameLife(dir_, state()));
    if (!report_.same_life || options_.dry_run) return absl::OkStatus();
    SALIUS_RETURN_IF_ERROR(NoteSameLife(context_, &*state_));
    report_.checkpoint = report_.decided = report_.highest = state().checkpoint;
    return absl::OkStatus();
  }

  // Sets the token and fence epoch of this recovery, an earlier run's when it was cut off.
  absl::Status PrepareRun() {
    SALIUS_ASSIGN_OR_RETURN(const std::optional<RunNote> earlier,
                            ReadRunNote(dir_.salius_fd, state().volume, state().epoch));
    if (earlier.has_value()) {
      run_note_ = *earlier;
      return absl::OkStatus();
    }
    run_note_ = RunNote{state().volume, state().epoch, state().epoch + 1, 0};
    while (run_note_.token == 0) run_note_.token = SecureRandom64();
    return options_.dry_run ? absl::OkStatus() : NoteRun();
  }

  absl::Status NoteRun() {
    SALIUS_RETURN_IF_ERROR(
        WithSpace(context_, [&] { return WriteRunNote(dir_.salius_fd, run_note_); }));
    return Step(RecoveryStep::kRunNoted);
  }

  absl::Status FenceReplicas() {
    SALIUS_RETURN_IF_ERROR(PrepareRun());
    if (options_.connector == nullptr) connector_ = MakeGrpcConnector();
    for (int round = 0;; ++round) {
      peers_ = MakePeers(state(), dir_.config.replicas, connector());
      AskPeers();
      absl::Status refusals =
          options_.dry_run ? absl::OkStatus() : CheckRefusals(peers_, run_note_.fence_epoch);
      if (refusals.ok()) break;
      if (!options_.force || round >= kFenceRounds) {
        report_.replicas = AccountFor(state(), peers_, collected_, {}).replicas;
        if (!absl::IsDataLoss(refusals)) report_.outcome = RecoveryOutcome::kFenced;
        return refusals;
      }
      report_.overridden.emplace_back(refusals.message());
      for (const Peer& peer : peers_) {
        if (!peer.answer.has_value()) continue;
        const Inventory& inventory = peer.answer->inventory;
        run_note_.fence_epoch =
            std::max({run_note_.fence_epoch, inventory.epoch + 1, inventory.promised_epoch + 1});
      }
      SALIUS_RETURN_IF_ERROR(NoteRun());
    }
    report_.next_epoch = run_note_.fence_epoch;
    for (const Peer& peer : peers_) {
      if (peer.answer.has_value()) SALIUS_RETURN_IF_ERROR(Step(RecoveryStep::kFenced));
    }
    SALIUS_RETURN_IF_ERROR(CheckQuorum());
    return CheckInventories();
  }

  void AskPeers() {
    FenceRequest request;
    request.epoch = run_note_.fence_epoch;
    request.token = run_note_.token;
    request.ask_only = options_.dry_run;
    request.rpc_timeout_ms = options_.rpc_timeout_ms;
    request.total_timeout_ms = options_.fence_timeout_ms;
    request.grace_ms = options_.fence_grace_ms;
    request.one_thread = options_.one_thread;
    if (QuorumNeeded(state()) == 0) {
      request.rpc_timeout_ms = std::min(request.rpc_timeout_ms, options_.local_fence_timeout_ms);
      request.total_timeout_ms = options_.local_fence_timeout_ms;
    }
    const uint64_t total = peers_.size();
    FenceAll(
        state(), request,
        [&](uint64_t answers) {
          context_.progress({"fence", answers, total, "replicas"});
        },
        &peers_);
  }

  // Checks the inventories before any record is fetched; Merge checks again those that count.
  absl::Status CheckInventories() {
    for (const Peer& peer : peers_) {
      if (!peer.answer.has_value()) continue;
      Inventory inventory = peer.answer->inventory;
      // It is our own promise, when an earlier forced run went higher than one above the state.
      if (inventory.promised_epoch == run_note_.fence_epoch) inventory.promised_epoch = 0;
      const absl::Status checked =
          CheckInventory(state().epoch, Checkpoint(), peer.address, inventory);
      if (!checked.ok() && !options_.force) return checked;
      if (!checked.ok()) report_.overridden.emplace_back(checked.message());
    }
    return absl::OkStatus();
  }

  ReplicaConnector& connector() {
    return options_.connector != nullptr ? *options_.connector : *connector_;
  }
  Seq Checkpoint() const { return state_->state().checkpoint; }

  absl::Status CheckQuorum() {
    const QuorumAccount account = AccountFor(state(), peers_, collected_, stable_records_.views());
    report_.quorum_needed = account.count.needed;
    report_.quorum_counted = account.count.counted;
    report_.replicas = account.replicas;
    quorum_text_ = account.count.enough() ? "" : account.text;
    if (account.count.enough()) return absl::OkStatus();
    if (options_.force) {
      report_.explanation = "forced: " + account.text;
      SLOG_WARN("recovery of {} is forced: {}", report_.volume, account.text);
      return absl::OkStatus();
    }
    report_.outcome = RecoveryOutcome::kNotEnough;
    return absl::UnavailableError(account.text);
  }

  absl::Status CollectRecords() {
    for (const RecordView& record : stable_records_.views()) {
      if (record.header.epoch == state().epoch) in_stable_.Add(record.seq());
    }
    // In mode local the stable log is the log, and no replica is needed.
    if (state().mode == Mode::kLocal) return absl::OkStatus();
    CollectRequest request;
    request.volume = state().volume;
    request.epoch = state().epoch;
    request.checkpoint = Checkpoint();
    request.timeout_ms = options_.fetch_timeout_ms;
    request.attempts = options_.fetch_attempts;
    request.least_piece = options_.fetch_piece;
    request.one_thread = options_.one_thread;
    Coverage coverage = in_stable_;
    SALIUS_RETURN_IF_ERROR(CollectAll(
        request, &peers_,
        [this](uint64_t done, uint64_t total) {
          context_.progress({"collect", done, total, "records"});
        },
        [this] { return Step(RecoveryStep::kCollected); }, &coverage, &collected_));
    return CheckQuorum();
  }

  absl::Status MergeRecords() {
    if (options_.until.has_value() && *options_.until < Checkpoint()) {
      report_.outcome = RecoveryOutcome::kBadRequest;
    }
    MergeInput input;
    input.volume = state().volume;
    input.epoch = state().epoch;
    input.checkpoint = Checkpoint();
    input.mode = state().mode;
    input.stable = stable_records_.views();
    input.force = options_.force;
    input.until = options_.until;
    for (size_t i = 0; i < peers_.size(); ++i) {
      if (!peers_[i].answer.has_value()) continue;
      ReplicaEvidence evidence{peers_[i].address, peers_[i].answer->inventory, {}};
      // Ignore the promise that this recovery asked for.
      if (evidence.inventory.promised_epoch == report_.next_epoch) {
        evidence.inventory.promised_epoch = 0;
      }
      if (i < collected_.size()) evidence.records = collected_[i].records.views();
      input.replicas.push_back(std::move(evidence));
    }
    SALIUS_ASSIGN_OR_RETURN(MergeResult merged, Merge(input));
    report_.durable_mark = merged.durable_mark;
    report_.highest = merged.highest;
    if (options_.force) report_.unaccounted = merged.missing;
    if (merged.highest_epoch >= report_.next_epoch) {  // overridden by --force
      report_.next_epoch = run_note_.fence_epoch = merged.highest_epoch + 1;
      if (!options_.dry_run) SALIUS_RETURN_IF_ERROR(NoteRun());
    }
    SALIUS_RETURN_IF_ERROR(CheckDropped(merged));
    TakeGivenUp(merged);
    decided_ = std::move(merged.records);
    TakeDecided(merged.last);
    return Step(RecoveryStep::kMerged);
  }

  // Keeps the records that this decision leaves out although they were, or may have been,
  // acknowledged.
  void TakeGivenUp(const MergeResult& merged) {
    if (!quorum_text_.empty()) report_.overridden.push_back(quorum_text_);
    Seq last = merged.durable_mark;
    if (!quorum_text_.empty()) last = std::max(last, merged.highest);
    if (report_.dropped.has_value()) last = std::max(last, report_.dropped->second);
    if (last > merged.last) note_.given_up = {{merged.last + 1, last}};
    note_.overridden = report_.overridden;
    report_.given_up = GivenUpText(note_);
  }

  // Writes the note before the decision is pinned, so that no later crash hides the records given
  // up.
  absl::Status NoteGivenUp() {
    return note_.GaveUp() ? WithSpace(context_, [this] { return WriteNote(); }) : absl::OkStatus();
  }

  // Writes the note before the commit. After a recovery that gave nothing up it only informs.
  absl::Status NoteRecovered() {
    if (report_.already_decided) {
      const absl::StatusOr<RecoveryNotes> notes = ReadRecoveryNotes(dir_.salius_fd);
      const RecoveryNote* const begun = notes.ok() ? notes->Find(state().epoch) : nullptr;
      if (begun != nullptr) note_ = *begun;
    }
    if (!report_.missing.empty()) {
      note_.overridden.push_back(absl::StrFormat("%d files or directories were missing: %s%s",
                                                 report_.missing.size(), report_.missing.front(),
                                                 report_.missing.size() > 1 ? ", ..." : ""));
      note_.acknowledged = false;
    }
    note_.next_epoch = report_.next_epoch;
    report_.given_up = GivenUpText(note_);
    const absl::Status noted = WithSpace(context_, [this] { return WriteNote(); });
    if (noted.ok() || note_.GaveUp()) return noted;
    SLOG_WARN("{}: the recovery is not noted for `salius status`: {}", dir_.path, noted.ToString());
    return absl::OkStatus();
  }

  absl::Status WriteNote() {
    note_.at_unix_ms = static_cast<uint64_t>(SystemClock().RealtimeNanos() / kNanosPerMs);
    note_.epoch = state().epoch;
    note_.decided = report_.decided;
    note_.records = report_.records;
    absl::StatusOr<RecoveryNotes> notes = ReadRecoveryNotes(dir_.salius_fd);
    if (absl::IsDataLoss(notes.status()) || absl::IsInvalidArgument(notes.status())) {
      // They may have named records that earlier recoveries gave up.
      note_.overridden.push_back(
          absl::StrFormat("the notes of earlier recoveries cannot be read (%s/%s/%s)", dir_.path,
                          kSaliusDir, kRecoveriesFileName));
      notes = RecoveryNotes();
    }
    SALIUS_RETURN_IF_ERROR(notes.status());
    notes->Put(note_);
    return WriteRecoveryNotes(dir_.salius_fd, *notes);
  }

  // Notes the records that `until` leaves out, which only --force allows. Any of them may have been
  // acknowledged, also above the largest durable mark: records carry that mark a little late.
  absl::Status CheckDropped(const MergeResult& merged) {
    if (merged.last >= merged.last_there) return absl::OkStatus();
    report_.dropped = {merged.last + 1, merged.last_there};
    if (options_.force) return absl::OkStatus();
    report_.outcome = RecoveryOutcome::kBadRequest;
    return absl::FailedPreconditionError(absl::StrFormat(
        "--until %d: the records %s would be dropped, which may have been acknowledged; --dry-run "
        "--force shows what would be left, --force does it",
        *options_.until, RangesText({report_.dropped.value()})));
  }

  void TakeDecided(Seq last) {
    report_.decided = last;
    report_.highest = std::max(report_.highest, last);
    report_.records = decided_.size();
    for (const RecordView* record : decided_) report_.record_bytes += record->header.total_bytes();
  }

  absl::Status PinDecision(StableLog& stable) {
    PinRequest request;
    request.epoch = state().epoch;
    request.checkpoint = Checkpoint();
    request.last = report_.decided;
    request.records = decided_;
    request.in_stable = [this](Seq seq) { return in_stable_.Contains(seq); };
    SALIUS_RETURN_IF_ERROR(Pin(request, stable, [this](uint64_t done, uint64_t total) {
      context_.progress({"pin", done, total, "bytes"});
      return Step(RecoveryStep::kPinAppended);
    }));
    return Step(RecoveryStep::kPinned);
  }

  absl::Status Commit(const ReplayPlan& plan, StableLog& stable) {
    const Epoch epoch = state().epoch;
    SALIUS_RETURN_IF_ERROR(NoteRecovered());
    SALIUS_RETURN_IF_ERROR(state_->Write(CommittedState(
        state(), report_.next_epoch, report_.decided, plan.max_file_id, plan.last_timestamp_ns)));
    SALIUS_RETURN_IF_ERROR(Step(RecoveryStep::kCommitted));
    // From here on nothing can fail the recovery: the next session does any work left undone.
    if (const absl::Status cut = stable.Cut(report_.next_epoch, 0); !cut.ok()) {
      SLOG_WARN("stable log not cut: {}", cut.ToString());
    }
    DropAtReplicas(epoch);
    target().CleanUp(context_, dir_.config);
    SALIUS_RETURN_IF_ERROR(Step(RecoveryStep::kDropped));
    report_.outcome = RecoveryOutcome::kRecovered;
    return absl::OkStatus();
  }

  void DropAtReplicas(Epoch epoch) {
    for (Peer& peer : peers_) {
      if (!peer.answer.has_value() || peer.refused || !peer.answer->inventory.known) continue;
      const absl::Status dropped = peer.client->Drop(state().volume, epoch, kDropTimeoutMs);
      if (!dropped.ok()) {
        SLOG_INFO("replica {} keeps its log until the next session: {}", peer.address,
                  dropped.ToString());
      }
    }
  }

  VolumeDir& dir_;
  const RecoveryOptions& options_;
  RecoveryReport& report_;
  ReplayContext context_;
  std::string phase_;
  int64_t phase_began_ns_ = 0;
  std::optional<StateFile> state_;
  RecordSet stable_records_;
  std::vector<Decision> decisions_;
  std::optional<Decision> decision_;
  RunNote run_note_;
  std::unique_ptr<ReplicaConnector> connector_;
  std::vector<Peer> peers_;
  std::vector<Collected> collected_;
  Coverage in_stable_;
  std::vector<const RecordView*> decided_;
  std::string quorum_text_;  // why too few members count; empty: enough do
  RecoveryNote note_;
};

}  // namespace
}  // namespace recovery

absl::StatusOr<RecoveryReport> Recover(VolumeDir& dir, const RecoveryOptions& options) {
  const int64_t start_ns = SystemClock().MonotonicNanos();
  RecoveryReport report;
  const absl::Status status = recovery::Run(dir, options, &report).Go();
  report.elapsed_ms =
      static_cast<uint64_t>(SystemClock().MonotonicNanos() - start_ns) / recovery::kNanosPerMs;
  if (options.partial_report != nullptr) *options.partial_report = report;
  if (!status.ok()) return status;
  return report;
}

}  // namespace salius
