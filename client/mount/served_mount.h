// A volume that is mounted: the front, the connection to the kernel, the status socket, the
// metrics, and the entry in utab for umount(8).
//
//     Start -> Probe -> serve -> SetDraining -> End
//
// Threads: those of its parts; every method belongs to the thread that made it.
#pragma once

#include <functional>
#include <memory>
#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/fuse/connection.h"
#include "client/fuse/front.h"
#include "client/gate/insiders.h"
#include "client/gate/memory.h"
#include "client/gate/server.h"
#include "client/mount/mount_command.h"
#include "client/mount/utab_entry.h"
#include "client/status/placement.h"
#include "client/status/recovery_history.h"
#include "client/status/status_server.h"
#include "client/volume/volume.h"
#include "common/metrics.h"
#include "storage/volume_config.h"

namespace salius {

class ServedMount {
 public:
  // The arguments of a mount. Everything referred to outlives the mount.
  struct Subject {
    const MountCommand& command;
    const VolumeConfig& config;
    Volume& volume;
    gate::Memory* gate;  // commit=external; else null
    RecoveryHistory& history;
    const PrimaryHost& host;
  };

  // Opens the status socket, and the metrics if the command names an address. Then it removes dead
  // mounts of the volume, mounts, and begins to answer. `on_end` is called once, on the last worker
  // to leave. Errors: ALREADY_EXISTS when another copy of the volume is in use, UNAVAILABLE when an
  // address cannot be bound, mount(2)'s own; nothing is mounted then.
  static absl::StatusOr<std::unique_ptr<ServedMount>> Start(const Subject& subject,
                                                            std::function<void()> on_end);
  // End must have returned, if Start has. Closes the status socket and the metrics.
  ~ServedMount() = default;
  ServedMount(const ServedMount&) = delete;
  ServedMount& operator=(const ServedMount&) = delete;

  // Asks the kernel for the root. OK means that the mount answers.
  absl::Status Probe() const { return connection_->Probe(); }

  // Makes the status socket report from now on that the volume drains.
  void SetDraining() { status_server_->SetDraining(); }

  // Ends the mount: afterwards every request is answered, no file is open, and the volume can be
  // closed. `has_ended`: the connection ended alone (on_end was called); else this unmounts.
  // Returns whether the kernel ended it without an unmount; the dead mount then stays.
  bool End(bool has_ended);

 private:
  explicit ServedMount(const Subject& subject);
  absl::Status OpenStatusSocket();
  absl::Status Connect(std::function<void()> on_end);
  // Does the work of StatusServerOptions::remount.
  absl::Status Remount(const std::string& options, bool check_only);

  // Needs commit=external.
  control::VolumeStatusResponse::GateUse GateUse() const;
  // Returns the use of memory by unapplied data.
  control::VolumeStatusResponse::PatchUse PatchUse() const;

  // Opens the gate socket of a mount with commit=external.
  absl::Status OpenGate();

  const Subject subject_;
  gate::Insiders insiders_;
  std::optional<ExternalFront> external_;  // commit=external
  Front front_;
  std::unique_ptr<gate::Server> gate_server_;  // commit=external; else null
  std::unique_ptr<StatusServer> status_server_;
  std::unique_ptr<MetricsServer> metrics_;  // null: no address is given
  std::unique_ptr<Connection> connection_;
  std::optional<UtabEntry> utab_entry_;
};

// Returns the error for a connection that ended without an unmount.
absl::Status CutOffError(const MountCommand& command);

}  // namespace salius
