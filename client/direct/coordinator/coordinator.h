// The session of a direct volume: the policy on the shared window, and the threads around it. The
// processes of the command stamp, send and count themselves (client/direct/process); this does the
// rest: state notes, sessions with the replicas, checkpoints, re-sends, records that no process
// sends, and the changes of mode.
//
//     policy      timers, acknowledgements in the mailboxes, holes, stripes; sleeps until kicked
//     sync        syncs the file system for checkpoints and for mode local
//     note        writes the state file
//     session[i]  opens sessions at replica i
//
// The thread that starts it must live as long as the process, and destroys it: the kernel marks its
// lock at its death, and then every sync call of the attached processes fails. So it does after the
// coordinator was destroyed.
#pragma once

#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/direct/window/layout.h"
#include "client/session/record_stream.h"
#include "client/session/session_status.h"
#include "log/state_file.h"
#include "storage/volume_config.h"

namespace salius::direct {

class Coordinator {
 public:
  // The descriptors that a process needs. Valid while the coordinator exists.
  struct Handles {
    int window_fd = -1;
    uint64_t window_bytes = 0;
    int socket_fd = -1;
  };

  // Starts a session on a clean (or just recovered) volume: notes it, in mode local, then opens
  // sessions at the replicas in the background. `dir` holds the volume's lock, and outlives it.
  // `options.channel_layer` must be empty. Datagrams are plain with `options.insecure` and
  // without `options.keys` or `sealed`. Else a replica that takes no key is of no use.
  static absl::StatusOr<std::unique_ptr<Coordinator>> Start(const VolumeDir& dir, StateFile state,
                                                            StreamOptions options);
  // Ends it. Without Stop() that is like a crash of the process: the volume stays open.
  virtual ~Coordinator() = default;

  virtual Handles handles() const = 0;
  virtual const SharedWindow& window() const = 0;
  virtual SessionStatus status() const = 0;
  // Drains: syncs, notes the state as clean, and asks the replicas to drop the log. No attached
  // process may be left. On an error the volume stays open and must be recovered.
  virtual absl::Status Stop() = 0;
};

}  // namespace salius::direct
