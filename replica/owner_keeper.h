// Keeps the owners of volumes on a disk, and answers which caller may do what (replica/owner_book.h
// has the rules). An owner is on the disk before its call is answered, as a promise is.
//
// Threads: any. The lock is held over the write, since the newest content must be written last. It
// is taken neither while the acceptor's lock is held, nor the other way round.
#pragma once

#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "common/ids.h"
#include "common/keys/identity.h"
#include "replica/owner_book.h"
#include "replica/promise_store.h"

namespace salius {

class OwnerKeeper {
 public:
  // Reads the owners; none when nothing was ever written. The store must outlive the keeper.
  // Errors: the store's; DATA_LOSS and FAILED_PRECONDITION as OwnerBook::Decode, with the remedy. A
  // damaged file is not put aside: then each client could take each volume.
  static absl::StatusOr<std::unique_ptr<OwnerKeeper>> Load(PromiseStore& store,
                                                           uint32_t share_percent);

  // Returns OK if the caller may act on the volume. `used`: this replica has a log or a promise of
  // it. Errors: OwnerBook::Check.
  absl::Status MayUse(const keys::Identity& caller, const VolumeId& volume, bool used) const;

  // Checks the same for a call that makes the caller the owner of a volume without one, then runs
  // the call. The owner is on the disk before the call begins. After an error of the call the
  // caller owns the volume only if it did so before, or if `used` returns true then. UNAVAILABLE:
  // the owner cannot be kept.
  absl::Status Claim(const keys::Identity& caller, const VolumeId& volume,
                     absl::FunctionRef<bool()> used, absl::FunctionRef<absl::Status()> call);
  // Forgets the owner. UNAVAILABLE as above: another process of this replica may know it again.
  absl::Status Forget(const VolumeId& volume);

  bool MaySee(const keys::Identity& caller, const VolumeId& volume) const;
  std::string OwnerOf(const VolumeId& volume) const;

 private:
  OwnerKeeper(PromiseStore& store, uint32_t share_percent)
      : store_(store), book_(kMaxOwners, share_percent) {}
  absl::Status Write() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  PromiseStore& store_;
  absl::Mutex claiming_;  // Held over a call that may claim: two callers take turns.
  mutable absl::Mutex mutex_;
  OwnerBook book_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace salius
