// Asks mounted volumes for their status: the client of status_server.h.
//
// Threads: any; nothing is kept between calls.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/control.pb.h"

namespace salius {

// Returns the sockets in `run_directory`, sorted; none when there is no such directory.
std::vector<std::string> VolumeSocketsIn(const std::string& run_directory);

// The state of the listener at a socket, found without waiting.
enum class SocketState {
  kNone,          // there is no socket
  kDead,          // its process has died
  kListening,     // it accepts connections
  kBusy,          // it listens, and its queue is full: it accepts no connections
  kNoPermission,  // only its owner may know
};
struct SocketProbe {
  SocketState state = SocketState::kNone;
  int pid = 0;  // the listening process; 0: not known
};
SocketProbe ProbeSocket(const std::string& socket_path);

// Returns the status of the volume that answers at a socket. UNAVAILABLE or DEADLINE_EXCEEDED when
// none answers.
absl::StatusOr<control::VolumeStatusResponse> ReadVolumeStatus(const std::string& socket_path,
                                                               std::chrono::milliseconds timeout);

// Notifies the volume that answers at a socket that its recoveries' losses are known. Returns the
// number of recoveries acknowledged. Errors: as ReadVolumeStatus, and the file system's.
absl::StatusOr<uint32_t> SendAcknowledge(const std::string& socket_path,
                                         std::chrono::milliseconds timeout);

// Calls Primary.Remount of the volume that answers at a socket. Errors: its own, and those of
// ReadVolumeStatus.
absl::Status SendRemount(const std::string& socket_path, const std::string& options,
                         bool check_only, std::chrono::milliseconds timeout);

}  // namespace salius
