// The remote calls of `salius`: to a replica, over TCP, and to a mounted volume, over its unix
// socket. Each waits a few seconds at most.
//
// `keys`: of this process; null: none. Threads: any; nothing is kept between calls.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "common/ids.h"
#include "proto/control.pb.h"

namespace salius {
class Credentials;  // transport/credentials.h
}  // namespace salius

namespace salius::cli {

// How long a call waits for its answer.
inline constexpr std::chrono::milliseconds kCallTimeout{5000};

// Calls Replica.Status at "host:port". UNAVAILABLE or DEADLINE_EXCEEDED when it does not answer.
absl::StatusOr<control::ReplicaStatusResponse> CallReplicaStatus(
    const std::string& host_port, std::chrono::milliseconds timeout = kCallTimeout,
    const std::shared_ptr<Credentials>& keys = nullptr, const VolumeId* volume = nullptr);

// Calls Replica.ForgetVolume at "host:port". FAILED_PRECONDITION with the reason when the replica
// refuses.
absl::StatusOr<control::ForgetVolumeResponse> CallForgetVolume(const std::string& host_port,
                                                               const VolumeId& volume, bool force,
                                                               const std::shared_ptr<Credentials>& keys = nullptr);

// Calls Primary.VolumeStatus at a socket. Errors:
//   NOT_FOUND          there is no socket
//   UNAVAILABLE        the process of the mount has died
//   DEADLINE_EXCEEDED  the process exists and does not answer; the message names its pid
//   PERMISSION_DENIED  only root may ask
absl::StatusOr<control::VolumeStatusResponse> CallVolumeStatus(
    const std::string& socket_path, std::chrono::milliseconds timeout = kCallTimeout);

}  // namespace salius::cli
