// Disk quotas of file owners. The volume applies records as root, whom most file systems let past
// every limit, so the owner's limits are checked here, before a record is stamped. XFS keeps root
// within them too: there a change that may need a block is refused when it is applied
// (Backing::QuotaBindsRoot), so near a limit its caller waits.
//
// User and group quotas; project quotas are not looked at. Root's own files are exempt, as in the
// kernel.
//
// quotactl(2) may wait for the disk, and for a thaw while the file system is frozen. So one thread
// makes every look, and a caller waits for it kLookWaitMs at most:
//
//   figures                                    | answer
//   -------------------------------------------+---------------------------------------------------
//   fresh, and plainly below both limits       | from them, without a look
//   old, or near a limit                       | after a new look
//   old, and the look does not end in time     | from the last ones
//   none, and the look does not end in time    | yes
//
// Figures of a look are those of its begin: bytes that were unapplied then, and bytes that were let
// through since, count as used.
//
// Threads: all methods from any thread.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "storage/backing.h"

namespace salius {

// Returns the file system's figures of an owner; nullopt when quotas of the type are not on.
using QuotaLookup = std::function<std::optional<fs::QuotaUse>(fs::QuotaType, uint32_t id)>;
// Returns a look-up in the file system of `fd`. It and `backing` outlive the look-up.
QuotaLookup QuotaOfBacking(Backing& backing, int fd);

class QuotaGuard {
 public:
  // How long a caller waits for a look.
  static constexpr int64_t kLookWaitMs = 30;
  // The age up to which figures far from a limit are used.
  static constexpr int64_t kFreshMs = 100;

  // Looks whether quotas are on at all. `unapplied`: bytes that may still be applied, of all
  // owners; does not wait.
  QuotaGuard(QuotaLookup lookup, std::function<uint64_t()> unapplied);
  // Waits for a look under way.
  ~QuotaGuard();
  QuotaGuard(const QuotaGuard&) = delete;
  QuotaGuard& operator=(const QuotaGuard&) = delete;

  // Has a look made whether quotas are on (they may be switched on at any time). Does not wait.
  void Refresh();
  bool on() const { return user_.load() || group_.load(); }

  // Returns whether files of (uid, gid) may take `bytes` more, or one more inode.
  bool HasBytes(uid_t uid, gid_t gid, uint64_t bytes) const;
  bool HasInode(uid_t uid, gid_t gid) const;
  // Returns whether files of (uid, gid) are so far below the limits that a change of a name or an
  // attribute needs no look at them. Counts a block for it. False when the looks do not end in time.
  bool IsFar(uid_t uid, gid_t gid) const;
  // Returns whether the group may take over a file of `bytes`.
  bool GroupHas(gid_t gid, uint64_t bytes) const;

 private:
  using Owner = std::pair<fs::QuotaType, uint32_t>;
  struct Figures {
    std::optional<fs::QuotaUse> use;
    int64_t looked_ms = 0;
    // Bytes that `use` may not include: unapplied when the look began, and let through since.
    uint64_t beside = 0;
    uint64_t next_beside = 0;  // the same of the look under way
    uint64_t begun = 0, done = 0;  // looks
    bool queued = false;
  };

  bool OwnerHasBytes(const Owner& owner, uint64_t bytes) const;
  bool OwnerIsFar(const Owner& owner) const;
  // Returns the figures after a new look, or the last ones.
  Figures LookAt(const Owner& owner) const;
  void Queue(const Owner& owner, Figures& figures) const;  // mutex_ is held
  void Work();

  const QuotaLookup lookup_;
  const std::function<uint64_t()> unapplied_;
  std::atomic<bool> user_{false};
  std::atomic<bool> group_{false};

  mutable std::mutex mutex_;  // guards what follows; never held over a look
  mutable std::condition_variable asked_, answered_;
  mutable std::map<Owner, Figures> owners_;
  mutable std::deque<Owner> queue_;
  int64_t busy_since_ms_ = 0;  // the look under way; 0: none
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace salius
