// Asks mounted volumes what they are: the other end of status_server.h.
//
// Threads: any; nothing is kept between calls.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/control.pb.h"

namespace salius {

// The sockets in `run_directory`, sorted; none when there is no such directory.
std::vector<std::string> VolumeSocketsIn(const std::string& run_directory);

// Who listens at a socket, without waiting.
enum class Listener {
  kNone,          // there is no socket
  kDead,          // its process has died
  kListens,       // connections are taken
  kBusy,          // it listens, and its queue is full: it takes no connections
  kNoPermission,  // only its owner may know
};
struct Listening {
  Listener state = Listener::kNone;
  int pid = 0;  // of the process that listens; 0: not known
};
Listening WhoListens(const std::string& socket_path);

// The status of the volume that answers at a socket. UNAVAILABLE or DEADLINE_EXCEEDED when none
// does.
absl::StatusOr<control::VolumeStatusResponse> ReadVolumeStatus(const std::string& socket_path,
                                                               std::chrono::milliseconds timeout);

// Tells the volume that answers at a socket that what its recoveries gave up is known; returns of how
// many recoveries. Errors as ReadVolumeStatus, and the file system's.
absl::StatusOr<uint32_t> SendAcknowledge(const std::string& socket_path,
                                         std::chrono::milliseconds timeout);

// Primary.Remount of the volume that answers at a socket. Its own errors, and those of ReadVolumeStatus.
absl::Status AskForRemount(const std::string& socket_path, const std::string& options, bool check_only,
                           std::chrono::milliseconds timeout);

}  // namespace salius
