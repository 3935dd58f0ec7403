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
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/engine/pipeline.h"
#include "client/status/socket_path.h"
#include "common/ids.h"
#include "proto/control.pb.h"

namespace salius {

struct StatusServerOptions {
  VolumeId volume{};
  std::string backing;
  std::string mountpoint;
  uint32_t acks = 1;
  std::string run_directory = kRunDirectory;
  std::function<PipelineStatus()> source;  // from any thread
};

// Version of this program, in answers and in --version.
inline constexpr char kSaliusVersion[] = "0.1.0";

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
