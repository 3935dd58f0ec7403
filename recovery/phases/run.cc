#include "recovery/phases/run.h"

#include <utility>

#include "absl/strings/cord.h"
#include "absl/strings/str_format.h"

namespace salius::recovery {
namespace {

constexpr int64_t kNanosPerMs = 1'000'000;

}  // namespace

Run::Run(VolumeDir& dir, const RecoveryOptions& options, Clock& clock, RecoveryReport* report)
    : dir_(dir), options_(options), clock_(clock), report_(*report) {
  context_.backing = dir.backing;
  context_.root_fd = dir.root_fd;
  context_.salius_fd = dir.salius_fd;
  context_.force = options.force;
  context_.report = report;
  context_.ext4 = dir.ext4.get();
  context_.step = [this](RecoveryStep step) { return Step(step); };
  context_.progress = [this](const RecoveryProgress& progress) { Progress(progress); };
}

ReplayTarget& Run::target() const {
  return options_.target != nullptr ? *options_.target : BackingFileSystem();
}

void Run::Enter(std::string phase) {
  const int64_t now = clock_.MonotonicNanos();
  if (!phase_.empty()) {
    report_.phase_ms.emplace_back(phase_, (now - phase_began_ns_) / kNanosPerMs);
  }
  phase_ = std::move(phase);
  phase_began_ns_ = now;
}

absl::Status Run::Step(RecoveryStep step) const {
  if (!options_.step_hook) return absl::OkStatus();
  absl::Status status = options_.step_hook(step);
  if (!status.ok()) report_.outcome = RecoveryOutcome::kInterrupted;
  return status;
}

void Run::Progress(const RecoveryProgress& progress) const {
  if (options_.on_progress) options_.on_progress(progress);
}

absl::Status Run::Fail(const absl::Status& error) {
  absl::Status explained = error;
  if (earlier_decision_.has_value() && report_.outcome != RecoveryOutcome::kBadRequest) {
    explained = absl::Status(
        error.code(), absl::StrFormat("%s (already decided: records up to %d, by an earlier run)",
                                      error.message(), *earlier_decision_));
    error.ForEachPayload(
        [&](absl::string_view url, const absl::Cord& value) { explained.SetPayload(url, value); });
  }
  report_.explanation = std::string(explained.message());
  if (report_.outcome == RecoveryOutcome::kUnknown) {
    report_.outcome =
        absl::IsDataLoss(explained) ? RecoveryOutcome::kDataLoss : RecoveryOutcome::kFailed;
  }
  return explained;
}

void Run::TakeEarlierDecision(Seq last) {
  report_.already_decided = true;
  earlier_decision_ = last;
}

}  // namespace salius::recovery
