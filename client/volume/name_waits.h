// When an operation on names returns: at once, or when it is durable and applied.
//
// With names=async it returns at once unless one of these holds:
// - the mount, or one of its directories, is synchronous (dirsync; `chattr +D` or `+S`);
// - the disk may refuse the name although all checks pass, or refuses the operation itself;
// - the overlay of names that are not applied (PendingNames) has reached its bounds;
// - the disk is nearly full, or on XFS the quota of a directory's owner.
//
// Threads: any; the callers hold the `names` of the directories.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <initializer_list>
#include <optional>

#include "client/volume/node.h"
#include "client/volume/pending_names.h"
#include "common/metrics.h"
#include "storage/backing.h"
#include "storage/space.h"

namespace salius {

class NameWaits {
 public:
  // `early`: operations return at once where they can (names=async).
  NameWaits(Backing& backing, PendingNames& pending, SpaceGuard& space, bool early);
  NameWaits(const NameWaits&) = delete;
  NameWaits& operator=(const NameWaits&) = delete;

  // Makes every operation from now on wait, or no longer (the mount's dirsync).
  void SetDirsync(bool dirsync) { dirsync_.store(dirsync); }

  // Returns whether an operation on names of these directories returns before it is applied.
  // `possible`: the operation itself permits it. `adds`: it makes a name in them. Counts an
  // operation that waits, by its reason.
  bool ReturnsEarly(std::initializer_list<Node*> dirs, bool possible, bool adds = true);
  // Counts an operation that waits after all, because its attributes cannot be predicted.
  void CountUnpredicted() { counters_[kOperation]->Increment(); }

 private:
  enum Reason : size_t { kDirsync, kOperation, kDirectory, kOverlay, kSpace, kReasons };

  std::optional<Reason> WhyWait(std::initializer_list<Node*> dirs, bool possible, bool adds);
  // Returns why the names of one directory wait.
  std::optional<Reason> WhyDirWaits(Node& dir, bool adds);
  // Returns whether the directory's index surely has room for one name more, which was counted.
  bool IndexHasRoom(Node& dir);
  // Returns false when a name in the directory may be refused for the quota of its owner.
  bool IsFarFromQuota(Node& dir);

  Backing& backing_;
  PendingNames& pending_;
  SpaceGuard& space_;
  const bool early_;
  std::atomic<bool> dirsync_{false};
  std::array<Counter*, kReasons> counters_;
};

}  // namespace salius
