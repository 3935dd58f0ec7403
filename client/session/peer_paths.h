// The network paths to all replicas: how each transmission goes to each of its targets.
//
// pure: no thread, lock, socket or clock. Times are monotonic ns.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "client/session/peer_path.h"
#include "client/session/send_job.h"
#include "client/session/window.h"

namespace salius {

class PeerPaths {
 public:
  explicit PeerPaths(size_t replicas) : paths_(replicas) {}

  // Notes that each datagram has `overhead` bytes beside its frame.
  void SetOverhead(size_t overhead) { overhead_ = overhead; }

  // Sets whether the replica takes compact frames; at first none does.
  void SetCompact(size_t replica, bool compact);

  PeerPath& operator[](size_t replica) { return paths_[replica]; }
  const PeerPath& operator[](size_t replica) const { return paths_[replica]; }

  // Chooses how `job` goes to each of its targets: group or unicast, the largest datagram, and
  // whether its frames may be compact: those of first transmissions of several records. Notes a first transmission for each. `connected`: the replicas with an open session.
  void Choose(SendJob& job, ReplicaMask connected);

 private:
  std::vector<PeerPath> paths_;
  size_t overhead_ = 0;
  uint8_t compact_ = 0;  // bit i: replica i takes compact frames
};

}  // namespace salius
