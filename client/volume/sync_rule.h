// The rule of synchronous calls: whether one waits until its records are durable. It depends on the
// mount's contract, the handle's flags, and the handle's grant of early return. No other code
// decides this.
//
//   mount                        | O_SYNC write, fsync on such a handle | fsync on another handle
//   -----------------------------+--------------------------------------+------------------------
//   commit=sync                  | durable                              | durable
//   commit=external              | durable; with early return: nothing  | the same
//   commit=ordered, fsync=osync  | nothing                              | nothing
//     and osync-exempt=o_sync    | durable                              | nothing
//
// pure: no thread, lock, socket or clock. Under commit=sync a decision costs one branch more than
// the flags themselves.
#pragma once

#include "client/volume/contract.h"
#include "client/volume/node.h"

namespace salius {

class SyncRule {
 public:
  explicit SyncRule(const MountContract& mount) : mount_(mount), relaxed_(mount.relaxed()) {}

  // Returns whether a write through `handle` returns only when it is durable. `contract`: what the
  // write itself asks for (RWF_DSYNC).
  bool WriteWaits(const Handle& handle, Contract contract) const {
    if (contract != Contract::kDurable && handle.contract() != Contract::kDurable) return false;
    return !relaxed_ || StillWaits(handle, /*o_sync=*/true);
  }
  // Returns whether an fsync through `handle` returns only when its records are durable.
  bool FsyncWaits(const Handle& handle) const {
    return !relaxed_ || StillWaits(handle, handle.contract() == Contract::kDurable);
  }

 private:
  bool StillWaits(const Handle& handle, bool o_sync) const {
    if (mount_.commit == Commit::kExternal) return !handle.early.load(std::memory_order_relaxed);
    return o_sync && mount_.exempts_o_sync;
  }

  const MountContract mount_;
  const bool relaxed_;
};

}  // namespace salius
