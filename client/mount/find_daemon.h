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

// The time within which a daemon must answer a helper.
inline constexpr std::chrono::seconds kDaemonAnswerBound{2};

// Returns the socket at which the daemon of the mount at `mountpoint` answers. Finds it by the UUID
// of `dir`, its backing directory. When that cannot be read it asks every daemon for its mount.
// Empty when none has this one.
std::string SocketOf(const std::string& mountpoint, const absl::StatusOr<VolumeDir>& dir);

// The process that listens at a volume's socket; `pidfd` is invalid when none does.
struct DaemonProcess {
  UniqueFd pidfd;
  pid_t pid = 0;
};
DaemonProcess ListenerAt(const std::string& path);

}  // namespace salius
