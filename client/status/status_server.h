// The status of a mounted volume: the gRPC service `Primary` (proto/control.proto) on a unix
// socket, /run/salius/<uuid>.sock. Only root may connect to it. Its clients are `salius status`,
// the umount helper, and a mount that finds the volume locked.
//
// I10: the answer comes from the pipeline at the moment of the call. The server itself keeps only
// that the mount has ended and the volume drains.
//
// Threads: gRPC's threads call the source; the destructor waits for them.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/session/session_status.h"
#include "client/status/placement.h"
#include "client/status/recovery_history.h"
#include "client/status/socket_path.h"
#include "common/ids.h"
#include "common/version.h"
#include "proto/control.pb.h"

namespace salius {

struct StatusServerOptions {
  VolumeId volume{};
  std::string backing;
  std::string mountpoint;
  uint32_t acks = 1;
  std::string names;     // as VolumeStatusResponse.names
  std::string contract;  // as VolumeStatusResponse.contract
  std::string run_directory = kRunDirectory;
  std::function<SessionStatus()> source;  // from any thread
  uint64_t started_unix_ms = 0;
  std::string log_file;  // as VolumeStatusResponse.log_file
  // The addresses of this host, to warn of replicas that share one; null: do not warn.
  std::optional<PrimaryHost> host;
  RecoveryHistory* history = nullptr;  // null: nothing is known
  // The gate of a mount with commit=external, from any thread; empty: another contract.
  std::function<control::VolumeStatusResponse::GateUse()> gate;
  // The unapplied data of a mount, from any thread; empty: a direct volume.
  std::function<control::VolumeStatusResponse::PatchUse()> patches;
  // Primary.Remount; may be empty. One call at a time.
  std::function<absl::Status(const std::string& options, bool check_only)> remount;
};

// Returns the replicas' hosts, as far as the session knows them. Pure.
std::vector<PlacedReplica> PlacedReplicas(const SessionStatus& status);

// Returns the answer for one moment of a volume that serves. Pure.
control::VolumeStatusResponse ToStatusResponse(const StatusServerOptions& options,
                                               const SessionStatus& status);

class StatusServer {
 public:
  // Makes the directory (0755) and the socket (0600); replaces a socket that a dead process left.
  // ALREADY_EXISTS when a process answers at it: another copy of this volume is in use.
  static absl::StatusOr<std::unique_ptr<StatusServer>> Start(StatusServerOptions options);
  // Stops serving and removes the socket.
  ~StatusServer();
  StatusServer(const StatusServer&) = delete;
  StatusServer& operator=(const StatusServer&) = delete;

  // Makes answers say from now on that the volume drains: it accepts nothing new, and releases its
  // lock when it is drained. Any thread.
  void SetDraining();

  const std::string& socket_path() const;

 private:
  struct Impl;
  explicit StatusServer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace salius
