// The names of recovery's steps and outcomes, and the report for users and programs.
#include "recovery/report.h"

#include <algorithm>
#include <array>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/json.h"
#include "common/runbook.h"
#include "common/strings.h"

namespace salius {
namespace {

constexpr std::array<std::string_view, kRecoverySteps> kStepNames = {"locked",
                                                                     "same-life-synced",
                                                                     "same-life-noted",
                                                                     "run-noted",
                                                                     "fenced",
                                                                     "collected",
                                                                     "merged",
                                                                     "pin-appended",
                                                                     "pinned",
                                                                     "replay-rebuilt",
                                                                     "replay-data",
                                                                     "replay-displaced",
                                                                     "replay-hidden-link",
                                                                     "replay-attached",
                                                                     "replay-removed",
                                                                     "synced",
                                                                     "committed",
                                                                     "dropped"};

Json ReplicasJson(const RecoveryReport& report) {
  Json list = Json::array();
  for (const RecoveryReplica& replica : report.replicas) {
    list.push_back({{"address", replica.address},
                    {"member", replica.member},
                    {"answered", replica.answered},
                    {"counted", replica.counted},
                    {"records", replica.records},
                    {"fetched", replica.fetched},
                    {"detail", replica.detail}});
  }
  return list;
}

std::string Summary(const RecoveryReport& report) {
  switch (report.outcome) {
    case RecoveryOutcome::kClean:
      return "clean: nothing to recover";
    case RecoveryOutcome::kRecovered:
      return absl::StrFormat("recovered to record %d of epoch %d in %.1f s", report.decided,
                             report.epoch, static_cast<double>(report.elapsed_ms) / 1000);
    case RecoveryOutcome::kDryRun:
      return absl::StrFormat("would be recovered to record %d of epoch %d", report.decided,
                             report.epoch);
    default:
      return absl::StrCat("not recovered: ", std::string(RecoveryOutcomeName(report.outcome)));
  }
}

void AppendReplay(const RecoveryReport& report, std::string* text) {
  absl::StrAppendFormat(text, "  records       %d (%d bytes) above checkpoint %d%s\n",
                        report.records, report.record_bytes, report.checkpoint,
                        report.already_decided ? ", decided by an earlier run" : "");
  const bool dry = report.outcome == RecoveryOutcome::kDryRun;
  absl::StrAppendFormat(text, "  files         %d %s, %d bytes written", report.files_changed,
                        dry ? "would be changed" : "changed", report.bytes_written);
  if (!dry && !report.direct) absl::StrAppendFormat(text, ", %d rebuilt", report.objects_rebuilt);
  if (report.direct) absl::StrAppendFormat(text, ", %d gone", report.files_gone);
  *text += "\n";
  absl::StrAppend(text, "  time          ");
  for (const auto& [phase, ms] : report.phase_ms) {
    absl::StrAppendFormat(text, "%s%s %.1f s", phase == report.phase_ms.front().first ? "" : ", ",
                          phase, static_cast<double>(ms) / 1000);
  }
  *text += "\n";
  if (!report.direct) {
    absl::StrAppendFormat(text, "  names         %d %s, %d removed%s\n", report.names_bound,
                          dry ? "would be bound" : "bound", report.names_removed,
                          dry ? ", where they are not so already" : "");
  }
  if (report.records_skipped > 0) {
    absl::StrAppendFormat(text,
                          "  skipped       %d records (on disk already, or of files now gone)\n",
                          report.records_skipped);
  }
  if (report.same_life) {
    *text += "  same life     only the process had died\n";
  }
  if (!report.ballast_restored) {
    *text += "  WARNING       no room to set space aside for the next recovery\n";
  }
}

}  // namespace

std::string_view RecoveryStepName(RecoveryStep step) {
  return kStepNames[static_cast<size_t>(step)];
}

std::optional<RecoveryStep> ParseRecoveryStep(std::string_view name) {
  for (size_t i = 0; i < kStepNames.size(); ++i) {
    if (kStepNames[i] == name) return static_cast<RecoveryStep>(i);
  }
  return std::nullopt;
}

std::string_view RecoveryOutcomeName(RecoveryOutcome outcome) {
  switch (outcome) {
    case RecoveryOutcome::kUnknown:
      return "unknown";
    case RecoveryOutcome::kClean:
      return "clean";
    case RecoveryOutcome::kRecovered:
      return "recovered";
    case RecoveryOutcome::kDryRun:
      return "dry run";
    case RecoveryOutcome::kNotEnough:
      return "not enough replicas";
    case RecoveryOutcome::kDataLoss:
      return "data loss";
    case RecoveryOutcome::kFenced:
      return "fenced";
    case RecoveryOutcome::kBadRequest:
      return "bad request";
    case RecoveryOutcome::kFailed:
      return "failed";
    case RecoveryOutcome::kInterrupted:
      return "interrupted";
  }
  return "unknown";
}

std::string RecoveryAdvice(RecoveryOutcome outcome) {
  switch (outcome) {
    case RecoveryOutcome::kNotEnough:
      return SeeRunbook("too-few-members");
    case RecoveryOutcome::kDataLoss:
      return SeeRunbook("data-loss");
    case RecoveryOutcome::kFenced:
      return SeeRunbook("another-recovery");
    case RecoveryOutcome::kFailed:
      return SeeRunbook("recovery-hits-the-disk");
    case RecoveryOutcome::kUnknown:
    case RecoveryOutcome::kClean:
    case RecoveryOutcome::kRecovered:
    case RecoveryOutcome::kDryRun:
    case RecoveryOutcome::kBadRequest:
    case RecoveryOutcome::kInterrupted:
      return "";
  }
  return "";
}

std::string RecoveryReportText(const RecoveryReport& report) {
  std::string text = absl::StrFormat("volume %s: %s\n", report.volume, Summary(report));
  if (report.outcome == RecoveryOutcome::kClean) return text;
  absl::StrAppendFormat(&text, "  epoch         %d in mode %s%s\n", report.epoch, report.mode,
                        report.outcome == RecoveryOutcome::kRecovered
                            ? absl::StrFormat(", now %d", report.next_epoch)
                            : "");
  for (const RecoveryReplica& replica : report.replicas) {
    absl::StrAppendFormat(&text, "  replica       %s%s: %s, %d records, %d fetched\n",
                          replica.address, replica.member ? "" : " (not a member)", replica.detail,
                          replica.records, replica.fetched);
  }
  if (report.outcome == RecoveryOutcome::kRecovered || report.outcome == RecoveryOutcome::kDryRun) {
    AppendReplay(report, &text);
  }
  if (!report.unaccounted.empty()) {
    absl::StrAppendFormat(&text, "  UNACCOUNTED   seqs %s\n",
                          recovery::RangesText(report.unaccounted));
  }
  if (report.dropped.has_value()) {
    const auto& [first, last] = *report.dropped;
    const Seq acknowledged = std::min(last, report.durable_mark);
    absl::StrAppendFormat(
        &text, "  DROPPED       seqs %s by --until, %s\n", recovery::RangesText({{first, last}}),
        acknowledged < first
            ? "none of them known to have been acknowledged"
            : "acknowledged of them at least " + recovery::RangesText({{first, acknowledged}}));
  }
  if (!report.given_up.empty()) {
    absl::StrAppendFormat(&text, "  GIVEN UP      %s\n", report.given_up);
  }
  for (const std::string& missing : report.missing) {
    absl::StrAppendFormat(&text, "  MISSING       %s\n", Printable(missing, NewLines::kReplace));
  }
  for (const std::string& refused : report.refused) {
    absl::StrAppendFormat(&text, "  left out      %s\n", Printable(refused, NewLines::kReplace));
  }
  for (const std::string& lost : report.lost_and_found) {
    absl::StrAppendFormat(&text, "  set aside     .salius/lost/%s\n",
                          Printable(lost, NewLines::kReplace));
  }
  if (!report.explanation.empty()) {
    absl::StrAppendFormat(&text, "  %s\n", Printable(report.explanation, NewLines::kReplace));
  }
  for (const std::string& line : report.plan) {
    absl::StrAppendFormat(&text, "  %s\n", Printable(line, NewLines::kReplace));
  }
  return text;
}

std::string RecoveryReportJson(const RecoveryReport& report) {
  Json dropped = Json::array();
  if (report.dropped.has_value()) dropped.push_back(*report.dropped);
  Json phases = Json::object();
  for (const auto& [phase, ms] : report.phase_ms) phases[std::string(phase)] = ms;
  return JsonLine({{"outcome", RecoveryOutcomeName(report.outcome)},
                   {"volume", report.volume},
                   {"mode", report.mode},
                   {"epoch", report.epoch},
                   {"next_epoch", report.next_epoch},
                   {"same_life", report.same_life},
                   {"already_decided", report.already_decided},
                   {"checkpoint", report.checkpoint},
                   {"decided", report.decided},
                   {"durable_mark", report.durable_mark},
                   {"highest", report.highest},
                   {"quorum_needed", report.quorum_needed},
                   {"quorum_counted", report.quorum_counted},
                   {"replicas", ReplicasJson(report)},
                   {"unaccounted", report.unaccounted},
                   {"dropped", dropped},
                   {"given_up", report.given_up},
                   {"overridden", report.overridden},
                   {"records", report.records},
                   {"record_bytes", report.record_bytes},
                   {"torn_bytes", report.torn_bytes},
                   {"files_changed", report.files_changed},
                   {"bytes_written", report.bytes_written},
                   {"records_skipped", report.records_skipped},
                   {"direct", report.direct},
                   {"files_gone", report.files_gone},
                   {"names_bound", report.names_bound},
                   {"names_removed", report.names_removed},
                   {"objects_rebuilt", report.objects_rebuilt},
                   {"tree_scanned", report.tree_scanned},
                   {"ballast_used", report.ballast_used},
                   {"ballast_restored", report.ballast_restored},
                   {"lost_and_found", report.lost_and_found},
                   {"missing", report.missing},
                   {"refused", report.refused},
                   {"plan", report.plan},
                   {"phase_ms", phases},
                   {"elapsed_ms", report.elapsed_ms},
                   {"explanation", report.explanation}});
}

namespace recovery {

std::string RangesText(absl::Span<const std::pair<Seq, Seq>> ranges) {
  constexpr size_t kShown = 16;
  std::string text;
  for (size_t i = 0; i < ranges.size() && i < kShown; ++i) {
    if (i > 0) text += ", ";
    absl::StrAppend(&text, ranges[i].first);
    if (ranges[i].second != ranges[i].first) absl::StrAppend(&text, "-", ranges[i].second);
  }
  if (ranges.size() > kShown) {
    absl::StrAppend(&text, ", and ", ranges.size() - kShown, " more ranges");
  }
  return text;
}

}  // namespace recovery
}  // namespace salius
