// What a mounted volume says about itself: the gRPC service `Primary` (proto/control.proto) on a
// unix socket, /run/salius/<uuid>.sock, which only root may connect to. `salius status` and the
// umount helper read it, and a mount that finds the volume locked.
//
// I10: the answer comes from the pipeline at the moment of the call; nothing is kept here but that
// the mount is gone and the volume drains.
//
// Threads: gRPC's own call the source; Stop and the destructor wait for them.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/engine/pipeline.h"
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
  std::string run_directory = kRunDirectory;
  std::function<PipelineStatus()> source;  // from any thread
  uint64_t started_unix_ms = 0;
  std::string log_file;  // as VolumeStatusResponse.log_file
  // Where this host is, to warn of replicas that share one; null: do not warn.
  std::optional<PrimaryHost> host;
  RecoveryHistory* history = nullptr;  // null: nothing is known
  // Primary.Remount; may be empty. One call at a time.
  std::function<absl::Status(const std::string& options, bool check_only)> remount;
};

// Where the replicas are, as far as the session knows. Pure.
std::vector<PlacedReplica> PlacedOf(const PipelineStatus& status);

// The answer for one moment, of a volume that serves. Pure.
control::VolumeStatusResponse ToStatusResponse(const StatusServerOptions& options,
                                               const PipelineStatus& status);

class StatusServer {
 public:
  // Makes the directory (0755) and the socket (0600); a socket that a dead process left is
  // replaced. ALREADY_EXISTS when a process answers at it: another copy of this volume is in use.
  static absl::StatusOr<std::unique_ptr<StatusServer>> Start(StatusServerOptions options);
  // Stops serving and removes the socket.
  ~StatusServer();
  StatusServer(const StatusServer&) = delete;
  StatusServer& operator=(const StatusServer&) = delete;

  // From now on answers say that it serves no more: nothing new comes, and the lock of the volume
  // is let go of when it is drained. Any thread.
  void SayDraining();

  const std::string& socket_path() const;

 private:
  struct Impl;
  explicit StatusServer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace salius
