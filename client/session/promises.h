// The replicas that may have forgotten a promise to a recovery (docs/protocol.md, "A promise that
// was forgotten"; I4). A replica keeps its promises in a store (a file), which has an identity. A
// replica that comes back with another store is *in doubt* and does not count, until f members that
// kept their stores prove that no recovery had fenced it: these are the *witnesses*.
//
// pure: no thread, lock, socket or clock. Times are the primary's monotonic clock, in ns.
#pragma once

#include <array>
#include <cstdint>

#include "client/session/configurations.h"
#include "client/session/window.h"
#include "common/ids.h"
#include "common/limits.h"

namespace salius {

class Promises {
 public:
  // `configurations`: outlives this object. `acks`: f.
  Promises(const Configurations& configurations, int acks)
      : configurations_(configurations), acks_(acks) {}

  // Takes the replica as opened with this store; 0: it keeps no promises over a reboot. Returns
  // whether it came into doubt.
  bool Opened(int64_t now, int replica, StoreId store);
  // Takes a good answer of the replica to a frame that was sent at `sent_ns`.
  void Answered(int replica, int64_t sent_ns);
  // Ends each doubt for which there are enough witnesses. Returns these replicas.
  ReplicaMask EndDoubts();

  ReplicaMask in_doubt() const { return in_doubt_; }
  // Returns the store that the replica was last opened with.
  StoreId store(int replica) const { return replicas_[replica].store; }

 private:
  struct Replica {
    StoreId store = 0;
    bool opened = false;
    int64_t asked_ns = -1;   // the latest send time that a good answer echoed
    int64_t forgot_ns = -1;  // when it was opened without its promises; -1: nothing is in doubt
  };

  // Returns whether the store is a noted member's, at any index: two hosts may have exchanged their
  // addresses.
  bool IsOfMember(StoreId store) const;
  // Returns whether f members of `config` that remember their promises have answered frames that
  // were sent at `since` or later, and were not fenced.
  bool Witnessed(const Configuration& config, int64_t since) const;

  const Configurations& configurations_;
  const int acks_;
  std::array<Replica, kMaxReplicas> replicas_{};
  ReplicaMask in_doubt_ = 0;
};

}  // namespace salius
