// The daemon of a mounted volume, for the helpers of mount(8) and umount(8).
//
// Threads: any; nothing is kept between calls.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <string>

#include "absl/status/statusor.h"
#include "common/file.h"
#include "storage/volume_config.h"

namespace salius {

// How long a daemon may take to answer a helper.
inline constexpr std::chrono::seconds kDaemonAnswerBound{2};

// Where the daemon of the mount at `mountpoint` answers: by the UUID of `dir`, its backing directory, or, when that
// cannot be read, by asking every daemon what it mounts. Empty when none says so.
std::string SocketOf(const std::string& mountpoint, const absl::StatusOr<VolumeDir>& dir);

// The process that listens at a volume's socket; `pidfd` is invalid when none does.
struct DaemonProcess {
  UniqueFd pidfd;
  pid_t pid = 0;
};
DaemonProcess ListenerAt(const std::string& path);

}  // namespace salius
