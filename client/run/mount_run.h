// One run of a command at the mounts with commit=external of this host: registers at their gates,
// gates the outputs of the command, and ends when everything that it did there is durable
// (docs/external-synchrony.md).
#pragma once

#include "absl/status/statusor.h"
#include "client/run/command_line.h"

namespace salius::run {

// Runs the command, to which SIGTERM, SIGINT and SIGHUP are passed on. Waits for processes that it
// left behind. Returns its exit code (command_line.h); kExitFailure when something that it did
// cannot become durable. Errors: there is no such mount, or outputs cannot be gated here; NOT_FOUND
// and PERMISSION_DENIED are the command's own.
absl::StatusOr<int> RunAtMounts(const RunCommand& command);

}  // namespace salius::run
