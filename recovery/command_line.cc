#include "recovery/command_line.h"

#include <cstdint>
#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "common/config.h"
#include "common/options.h"
#include "common/version.h"

namespace salius::recovery {
namespace {

// Longest time for --timeout. More would be a slip of the fingers.
constexpr int64_t kMaxTimeoutUs = int64_t{1'000'000} * 1'000'000;

absl::Status Bad(const std::string& what) { return absl::InvalidArgumentError(what); }

absl::Status SetUntil(const std::string& value, CommandLine& line) {
  uint64_t seq = 0;
  if (!absl::SimpleAtoi(value, &seq)) return Bad("must be the seq of a record");
  line.until = seq;
  return absl::OkStatus();
}

absl::Status SetTimeout(const std::string& value, CommandLine& line) {
  SALIUS_ASSIGN_OR_RETURN(const int64_t us, ParseDurationUs(value));
  if (us < 1000 || us > kMaxTimeoutUs) {
    return Bad(absl::StrCat("must be 1ms to ", DurationText(kMaxTimeoutUs)));
  }
  line.timeout_ms = static_cast<uint64_t>(us / 1000);
  return absl::OkStatus();
}

absl::Status SetCrashAt(const std::string& value, CommandLine& line) {
  const size_t colon = value.find(':');
  line.crash_at = ParseRecoveryStep(value.substr(0, colon));
  if (!line.crash_at.has_value()) return Bad("there is no such step");
  if (colon != std::string::npos &&
      (!absl::SimpleAtoi(value.substr(colon + 1), &line.crash_count) || line.crash_count == 0)) {
    return Bad("N must be a number from 1");
  }
  return absl::OkStatus();
}

// Returns the table of all options, which sets `line`.
Options Table(CommandLine& line) {
  Options table("salius-recover", "BACKING-DIRECTORY",
                "Brings a volume whose primary died to the state after its last acknowledged "
                "operation.");
  table.Switch("dry-run", &line.dry_run,
               "say what would be done; change nothing, here or at a replica");
  table.Switch("json", &line.json, "print the report as JSON");
  table.Switch("force", &line.force,
               "go on with too few replicas, with records or files missing; the\n"
               "report says what is unaccounted for");
  table.Value(
      "until", "SEQ", [&line](const std::string& value) { return SetUntil(value, line); },
      "recover no further than record SEQ, for good; needs --force where it\n"
      "leaves records out");
  table.Value(
      "timeout", "TIME", [&line](const std::string& value) { return SetTimeout(value, line); },
      "how long to ask replicas that do not answer (30s)");
  table.Text("keys", "FILE", &line.keys,
             "this host's key and certificate, of `salius keys`, in place of the\nvolume's; '': none");
  table.Choice("progress", {"auto", "always", "never"}, &line.progress,
               "draw a progress bar; auto: on a terminal (auto)");
  table.LogLevel(&line.log_level);
  table.Value(
      "crash-at", "STEP[:N]", [&line](const std::string& value) { return SetCrashAt(value, line); },
      "for tests: kill this process at the N-th STEP");
  table.Version(absl::StrCat("salius-recover ", kSaliusVersion));
  table.Note(
      "Exit codes: 0 recovered or clean, 1 internal error, 2 usage, or keys that cannot be used,\n"
      "3 the volume is in use, 4 not enough replicas, 5 data loss, 6 I/O error, 7 another recovery holds the replicas, 8 no\n"
      "volume.");
  return table;
}

}  // namespace

absl::StatusOr<CommandLine> ParseCommandLine(const std::vector<std::string>& arguments) {
  CommandLine line;
  Options table = Table(line);
  SALIUS_RETURN_IF_ERROR(table.Parse(arguments, 1, 1));
  line.answer = table.answer();
  if (!line.answer.has_value()) line.backing = table.places()[0];
  return line;
}

int ExitCodeOfOpen(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kUnavailable:
      return kExitLocked;
    case absl::StatusCode::kNotFound:
    case absl::StatusCode::kFailedPrecondition:
    case absl::StatusCode::kInvalidArgument:
      return kExitNoVolume;
    case absl::StatusCode::kDataLoss:
      return kExitDataLoss;
    default:
      return kExitIo;
  }
}

int ExitCodeOf(RecoveryOutcome outcome) {
  switch (outcome) {
    case RecoveryOutcome::kClean:
    case RecoveryOutcome::kRecovered:
    case RecoveryOutcome::kDryRun:
      return kExitOk;
    case RecoveryOutcome::kBadRequest:
      return kExitUsage;
    case RecoveryOutcome::kNotEnough:
      return kExitNotEnough;
    case RecoveryOutcome::kDataLoss:
      return kExitDataLoss;
    case RecoveryOutcome::kFenced:
      return kExitFenced;
    case RecoveryOutcome::kFailed:
      return kExitIo;
    case RecoveryOutcome::kUnknown:
    case RecoveryOutcome::kInterrupted:
      return kExitInternal;
  }
  return kExitInternal;
}

}  // namespace salius::recovery
