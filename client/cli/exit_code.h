// The exit codes of `salius`: one table for every subcommand, the man page and scripts.
#pragma once

#include "absl/status/status.h"

namespace salius::cli {

enum ExitCode : int {
  kExitOk = 0,
  kExitFailed = 1,       // doctor: a finding is FAIL. status: the volume has failed. Otherwise: any
                         // error without a number of its own
  kExitUsage = 2,        // an option or value that is not allowed
  kExitNotFound = 3,     // no such directory, no volume there, no such volume mounted
  kExitExists = 4,       // there is a volume already
  kExitUnsuitable = 5,   // read-only, or a file system that cannot keep the guarantees
  kExitNoSpace = 6,      // not enough space, or over a quota
  kExitUnreachable = 7,  // a host does not resolve, a replica or a mount does not answer (hung)
  kExitDamaged = 8,      // the data on disk cannot be trusted
  kExitPermission = 9,   // needs root
  // Only from `salius status`: the volume's health (client/cli/health.h).
  kExitDegraded = 10,
  kExitLocal = 11,
  kExitNeedsRecovery = 12,
  kExitNotMounted = 13,
  kExitBusy = 14,
  kExitGivenUp = 15,
};

// Returns the exit code for an error; kExitOk for OK.
ExitCode ExitCodeOf(const absl::Status& status);

// Prints "salius COMMAND: message" to stderr unless `status` is OK; returns its exit code.
int Report(const char* command, const absl::Status& status);

}  // namespace salius::cli
