// `salius status`: the real state of a volume or a replica (I10), from the process that serves it.
// For a volume that is not mounted it shows the state file, and says that this is all it shows.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "client/cli/status_text.h"
#include "common/ids.h"

namespace salius::cli {

// Runs the subcommand; `words` are the arguments after its name. Returns the exit code.
int RunStatus(absl::Span<const std::string> words);

// Returns the absolute path of the backing directory of the volume mounted at `given`, or of
// `given` itself. Looks up a mount point in the kernel's table and does not touch it, because a
// dead or stopped mount would fail or hang. Errors: as realpath(3).
absl::StatusOr<std::string> BackingDirectoryOf(const std::string& given);

// Returns the path of the socket at which the volume would answer: that of a direct volume that this
// user runs if it exists, else that of a mount.
std::string StatusSocketOf(const VolumeId& volume);

// Reads the volume in the directory `backing` without locking it. Errors: as VolumeDir::Open and
// StateFile::Open.
absl::StatusOr<OfflineStatus> ReadOfflineStatus(const std::string& backing);

}  // namespace salius::cli
