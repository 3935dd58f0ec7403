// The target of recovery's replay: the backing file system, or a simulator's model of one.
//
// Threads: used by recovery's own thread.
#pragma once

#include "absl/status/status.h"
#include "recovery/replay/replay.h"
#include "recovery/replay/replay_plan.h"
#include "recovery/replay/replay_result.h"
#include "storage/volume_config.h"

namespace salius::recovery {

class ReplayTarget {
 public:
  virtual ~ReplayTarget() = default;
  // Do the same as CheckReplay() and Replay() in recovery/replay/replay.h.
  virtual absl::Status Check(const ReplayContext& context, const ReplayPlan& plan) = 0;
  virtual ReplayResult Replay(const ReplayContext& context, const ReplayPlan& plan) = 0;
  // Brings everything that was replayed to the disk; on OK it is there.
  virtual absl::Status Sync(const ReplayContext& context) = 0;
  // Removes the files that a clean volume does not need and makes room for the next recovery.
  // Failures are logged: they harm nothing.
  virtual void CleanUp(const ReplayContext& context, const VolumeConfig& config) = 0;
};

// Returns the backing file system that the context's descriptors name. Lives for ever.
ReplayTarget& BackingFileSystem();

}  // namespace salius::recovery
