// The command lines of salius-mount and of the helper that mount(8) calls, /sbin/mount.salius.
//
// pure: no thread, lock, socket or clock.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/mount/mount_options.h"

namespace salius {

struct MountCommand {
  enum class Action { kMount, kFake };
  Action action = Action::kMount;
  bool foreground = false;
  bool verbose = false;
  std::string backing;
  std::string mountpoint;
  MountOptions options;
  std::vector<std::string> option_lists;  // as they were given, in order
  std::optional<std::string> answer;      // to print in place of mounting: --help, --version
};

// Parses salius-mount [-f] [-o OPTIONS]... BACKING MOUNTPOINT. `words` are the arguments without
// the program. INVALID_ARGUMENT names the mistake, and the usage or the allowed values.
absl::StatusOr<MountCommand> ParseSaliusMount(const std::vector<std::string>& words);

// Parses mount.salius BACKING MOUNTPOINT [-sfnv] [-N namespace] [-t type] [-o options], as mount(8)
// calls it: here -f is "fake" (everything but the mount). INVALID_ARGUMENT for -N, which is not
// supported.
absl::StatusOr<MountCommand> ParseMountHelper(const std::vector<std::string>& words);

}  // namespace salius
