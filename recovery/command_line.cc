#include "recovery/command_line.h"

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/check.h"
#include "common/strings.h"

namespace salius::recovery {
namespace {

absl::Status Bad(const std::string& what) { return absl::InvalidArgumentError(what); }

// Walks over the arguments; an option's value follows it or comes after '='.
class Parser {
 public:
  explicit Parser(const std::vector<std::string>& arguments) : arguments_(arguments) {}

  absl::StatusOr<CommandLine> Run() {
    bool options_over = false;
    for (; at_ < arguments_.size(); ++at_) {
      const std::string& word = arguments_[at_];
      if (options_over || word.empty() || word[0] != '-') {
        if (!out_.backing.empty()) return Bad("more than one directory: " + word);
        out_.backing = word;
      } else if (word == "--") {
        options_over = true;
      } else {
        SALIUS_RETURN_IF_ERROR(Option(word));
      }
    }
    if (out_.backing.empty() && !out_.help && !out_.version) return Bad("which directory?");
    return out_;
  }

 private:
  absl::Status Option(const std::string& word) {
    const size_t equals = word.find('=');
    const std::string name = word.substr(0, equals);
    for (const auto& [flag, target] :
         {std::pair("--dry-run", &out_.dry_run), std::pair("--json", &out_.json),
          std::pair("--force", &out_.force), std::pair("--help", &out_.help),
          std::pair("-h", &out_.help), std::pair("--version", &out_.version),
          std::pair("-V", &out_.version)}) {
      if (name != flag) continue;
      if (equals != std::string::npos) return Bad(name + " takes no value");
      *target = true;
      return absl::OkStatus();
    }
    for (const char* known : {"--until", "--timeout", "--progress", "--log-level", "--crash-at"}) {
      if (name != known) continue;
      std::string value;
      if (equals != std::string::npos) {
        value = word.substr(equals + 1);
      } else if (at_ + 1 < arguments_.size()) {
        value = arguments_[++at_];
      }
      return Value(name, value);
    }
    return Bad("unknown option " + name);
  }

  absl::Status Value(const std::string& name, const std::string& value) {
    uint64_t number = 0;
    if (name == "--until") {
      if (!absl::SimpleAtoi(value, &number))
        return Bad("--until needs a seq, not \"" + value + "\"");
      out_.until = number;
    } else if (name == "--timeout") {
      double seconds = 0;
      if (!absl::SimpleAtod(value, &seconds) || !(seconds > 0) || seconds > 1e6) {
        return Bad("--timeout needs seconds, not \"" + value + "\"");
      }
      out_.timeout_ms = static_cast<uint64_t>(seconds * 1000);
    } else if (name == "--progress") {
      if (value != "auto" && value != "always" && value != "never") {
        return Bad("--progress is auto, always or never, not \"" + value + "\"");
      }
      out_.progress = value;
    } else if (name == "--log-level") {
      out_.log_level = value;
    } else {
      return CrashAt(value);
    }
    return absl::OkStatus();
  }

  absl::Status CrashAt(const std::string& value) {
    const size_t colon = value.find(':');
    out_.crash_at = ParseRecoveryStep(value.substr(0, colon));
    if (!out_.crash_at.has_value()) return Bad("--crash-at: no step \"" + value + "\"");
    if (colon != std::string::npos &&
        (!absl::SimpleAtoi(value.substr(colon + 1), &out_.crash_count) || out_.crash_count == 0)) {
      return Bad("--crash-at: no count in \"" + value + "\"");
    }
    return absl::OkStatus();
  }

  const std::vector<std::string>& arguments_;
  size_t at_ = 0;
  CommandLine out_;
};

}  // namespace

absl::StatusOr<CommandLine> ParseCommandLine(const std::vector<std::string>& arguments) {
  return Parser(arguments).Run();
}

std::string_view Usage() {
  return R"(usage: salius-recover [options] BACKING-DIRECTORY

Brings a volume whose primary died to the state after its last acknowledged operation.

  --dry-run           say what would be done; change nothing, here or at a replica
  --json              print the report as JSON
  --force             go on with too few replicas, with records or files missing; the report says
                      what is unaccounted for
  --until SEQ         recover no further than record SEQ, for good; needs --force where it leaves
                      records out
  --timeout SECONDS   how long to ask replicas that do not answer (default 30)
  --progress WHEN     auto (on a terminal), always or never
  --log-level LEVEL   debug, info, warn, error or off
  --crash-at STEP[:N] for tests: kill this process at the N-th STEP
  -V, --version       print the version
  -h, --help

exit: 0 recovered or clean, 1 internal error, 2 usage, 3 the volume is in use, 4 not enough
      replicas, 5 data loss, 6 I/O error, 7 another recovery holds the replicas, 8 no volume
)";
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
