// One run of a command on a direct volume: takes the volume, recovers it if it is open, coordinates
// its processes, and closes it after the last of them has ended. When another salius-run has the
// volume, the command joins that one.
#pragma once

#include "absl/status/statusor.h"
#include "client/run/command_line.h"

namespace salius::run {

// Runs the command, to which SIGTERM, SIGINT and SIGHUP are passed on. Returns its exit code
// (command_line.h). Errors: the volume cannot be used, or the command not started: NOT_FOUND and
// PERMISSION_DENIED are the command's own.
absl::StatusOr<int> Run(const RunCommand& command);

}  // namespace salius::run
