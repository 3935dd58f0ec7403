// `salius status`: what a volume or a replica is really doing (I10), from the process that knows;
// for a volume that is not mounted, what its state file says, and that it says no more.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "client/cli/status_text.h"

namespace salius::cli {

// Runs the subcommand; `words` are the arguments after its name. Returns the exit code.
int RunStatus(absl::Span<const std::string> words);

// The backing directory of the volume mounted at `given`, or `given` itself, as an absolute path. A
// mount point is looked up in the kernel's table and not touched, because a dead or stopped mount
// would fail or hang. Errors: as realpath(3).
absl::StatusOr<std::string> BackingDirectoryOf(const std::string& given);

// Reads the volume in the directory `backing` without locking it. Errors as VolumeDir::Open and
// StateFile::Open.
absl::StatusOr<OfflineStatus> ReadOfflineStatus(const std::string& backing);

}  // namespace salius::cli
