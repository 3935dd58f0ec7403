// Keeps the acceptor's promises on a disk (I4). A promise is in force in memory first, then
// written, then answered. So an answered promise outlives a reboot, and a promise that was not
// answered costs nothing.
//
// A file that is missing or damaged means that promises may be forgotten. Then there is a new store
// identity, by which a primary knows that this replica is no witness any more (docs/protocol.md,
// "A promise that was forgotten").
//
// The file also notes the arena's incarnation and how many processes had attached to it: an arena
// that counts fewer under the same incarnation is an older one that was put back (I5).
//
// Threads: Keep() comes from any thread. `mutex_` is held over the write, since the newest content
// must be written last. It is never taken while the acceptor's lock is held.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "common/ids.h"
#include "replica/promise.h"
#include "replica/promise_store.h"

namespace salius {

class PromiseKeeper {
 public:
  struct Loaded {
    PromiseFile file;     // of a new store: without promises, incarnation 0
    std::string problem;  // why the store is new; empty when it is not
    bool damaged = false;  // the file existed, and could not be read
  };
  // Reads the file, or makes the identity of a new one. Errors: the store's, and
  // FAILED_PRECONDITION for a file of another version.
  static absl::StatusOr<Loaded> Load(PromiseStore& store,
                                     const std::function<uint64_t()>& random);
  // Whether the arena comes from an earlier moment than `file` knows. `process_starts` counts this
  // process too.
  static bool IsRolledBack(const PromiseFile& file, Incarnation incarnation,
                           uint64_t process_starts);

  // Returns the promises, left out when `known` is still their version. Takes the acceptor's lock.
  using Source = std::function<PromiseSnapshot(uint64_t known)>;
  // The store must outlive the keeper.
  PromiseKeeper(PromiseStore& store, StoreId id, Source source);

  // Writes all promises, and the arena that they belong to. Call it once, before anything is
  // served.
  absl::Status Begin(Incarnation incarnation, uint64_t process_starts);
  // Brings the promises to the disk: on OK all that were made before the call are there. Writes
  // nothing when they already are.
  absl::Status Keep();

  StoreId id() const { return id_; }

 private:
  absl::Status WriteLocked(bool always) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  PromiseStore& store_;
  const StoreId id_;
  const Source source_;
  absl::Mutex mutex_;
  Incarnation incarnation_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t process_starts_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t written_ ABSL_GUARDED_BY(mutex_) = 0;  // the version on the disk
};

}  // namespace salius
