// The thread that lets time pass for the core, receives acknowledgements while no waiting thread
// does, and does the periodic work.
#pragma once

#include "client/session/ack_receiver.h"
#include "client/session/replica_links.h"
#include "client/session/shared_core.h"
#include "storage/volume_config.h"

namespace salius {

class IoThread {
 public:
  // All outlive it.
  IoThread(SharedCore& shared, ReplicaLinks& links, AckReceiver& receiver, const VolumeDir& dir)
      : shared_(shared), links_(links), receiver_(receiver), dir_(dir) {}

  // Runs until the session stops.
  void Loop();

 private:
  // The next sleep.
  struct Sleep {
    int64_t ns = 0;
    bool polls_channel = false;  // datagrams end it
  };
  // Returns nothing when the session stops.
  std::optional<Sleep> NextSleep();
  void SleepFor(const Sleep& sleep);
  // Returns whether the datagrams are left to a leader.
  bool LeftToLeader();
  // Has the records applied that a leader left, unless other threads apply them. Returns whether
  // the periodic work is due.
  bool PassTime();
  void Refresh();

  SharedCore& shared_;
  ReplicaLinks& links_;
  AckReceiver& receiver_;
  const VolumeDir& dir_;
  int64_t busy_until_ns_ = 0;  // until then it leaves the channel to waiting threads
  int64_t refresh_at_ns_ = 0;
  int64_t kernel_log_at_ns_ = 0;
  Seq applied_before_ = 0;
};

}  // namespace salius
