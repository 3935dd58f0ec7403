// The command line of salius-recover, and its exit codes (docs/recovery.md lists them).
//
// pure: no thread, lock, socket or clock.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "recovery/recovery.h"

namespace salius::recovery {

enum ExitCode : int {
  kExitOk = 0,         // recovered, or there was nothing to recover
  kExitInternal = 1,   // a bug, or the end by --crash-at
  kExitUsage = 2,      // the command line, or an --until that the decision or the disk forbids
  kExitLocked = 3,     // a process (also a stopped one) holds the volume
  kExitNotEnough = 4,  // too few members answer
  kExitDataLoss = 5,   // the records or the disk contradict each other or are incomplete
  kExitIo = 6,         // the disk: errors, full, missing rights
  kExitFenced = 7,     // another recovery or a newer session holds the replicas
  kExitNoVolume = 8,   // the directory is no volume, or cannot be one
};

struct CommandLine {
  std::string backing;
  bool dry_run = false;
  bool json = false;
  bool force = false;
  std::optional<Seq> until;
  std::optional<uint64_t> timeout_ms;
  // File of `salius keys`; empty: none. Without a value that of the volume is used.
  std::optional<std::string> keys;
  std::string progress = "auto";  // auto, always, never
  std::string log_level = "warn";
  std::optional<RecoveryStep> crash_at;  // for tests: the process kills itself (SIGKILL) there
  uint64_t crash_count = 1;              // at this occurrence of the step
  std::optional<std::string> answer;     // to print in place of recovering: --help, --version
};

// Parses `arguments`, without the program's name. INVALID_ARGUMENT names the option and its allowed
// values.
absl::StatusOr<CommandLine> ParseCommandLine(const std::vector<std::string>& arguments);

// Return the exit code for a result of VolumeDir::Open, and for an outcome of Recover.
int ExitCodeOfOpen(const absl::Status& status);
int ExitCodeOf(RecoveryOutcome outcome);

}  // namespace salius::recovery
