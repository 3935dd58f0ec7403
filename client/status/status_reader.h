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

// The status of the volume that answers at a socket. UNAVAILABLE or DEADLINE_EXCEEDED when none
// does.
absl::StatusOr<control::VolumeStatusResponse> ReadVolumeStatus(const std::string& socket_path,
                                                               std::chrono::milliseconds timeout);

}  // namespace salius
