// The two remote calls of `salius`: the status of a replica, over TCP, and of a mounted volume,
// over its unix socket. Each waits a few seconds at most.
//
// Threads: any; nothing is kept between calls.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "proto/control.pb.h"

namespace salius::cli {

// Replica.Status at "host:port". UNAVAILABLE or DEADLINE_EXCEEDED when it does not answer.
absl::StatusOr<control::ReplicaStatusResponse> CallReplicaStatus(const std::string& host_port);

// Primary.VolumeStatus at a socket. NOT_FOUND when there is none, UNAVAILABLE or DEADLINE_EXCEEDED
// when nobody answers at it (the mount died).
absl::StatusOr<control::VolumeStatusResponse> CallVolumeStatus(const std::string& socket_path);

}  // namespace salius::cli
