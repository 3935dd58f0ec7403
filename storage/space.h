// Space on the backing file system. An operation that lacks room or quota must fail before its
// record is stamped (I8), because after the acknowledgement the record has to be applied.
//
// There are two regimes:
// - Plenty: more than kSpaceMargin is free beyond the need of all unapplied records. A look at a
//   cached budget lets a write through. (Writers that look at the same moment may overdraw it by
//   one write each, which the margin covers.) The write's need is held until its records are
//   issued. The budget is looked up again when it is used up, and after kLookEveryMs, because other
//   programs use the disk as well.
// - Nearly full: the range is allocated in the backing file (fallocate, size kept) before the
//   record is stamped. So the file system itself decides. It first waits for unapplied records
//   where they could claim the same blocks, or free blocks on which the write counts.
//
// Blocks allocated for a write or for fallocate(2) leave the budget before they leave the disk.
// Overwrites of allocated blocks need nothing and succeed on a full disk. On btrfs, which writes
// them elsewhere, everything needs room, and the last kCowMargin is left to it. Disk quotas of the
// file's owner are checked as well (quota.h).
//
// Threads: all methods from any thread; the near-full path takes turns.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "common/file.h"
#include "log/record.h"
#include "storage/backing.h"
#include "storage/quota.h"

namespace salius {

// Below this the file system is "nearly full". It is room for the metadata of all unapplied
// records, which the session's log (64 MiB by default) bounds.
inline constexpr int64_t kSpaceMargin = int64_t{64} << 20;
// Space that even the near-full path leaves to metadata before it drains: extents, directories,
// inodes.
inline constexpr uint64_t kTightMargin = uint64_t{1} << 20;

// The greatest age of the budget when a write uses it.
inline constexpr int64_t kLookEveryMs = 100;

// Space left to btrfs for itself: overwritten blocks become free only when its next transaction
// commits, and its metadata is copied as well.
inline constexpr uint64_t kCowMargin = uint64_t{16} << 20;

// Returns the bytes that a record may need on the backing file system: body, rounding, metadata.
uint64_t SpaceCharge(const RecordHeader& header);
uint64_t SpaceCharge(Op op, uint64_t body_bytes);

class SpaceGuard {
 public:
  // The bytes with which a write was let through. No other write gets them until its records are
  // issued, or its data is written without a record. Empty when its blocks are allocated.
  class Hold {
   public:
    Hold() = default;
    Hold(std::atomic<uint64_t>* held, uint64_t bytes) : held_(held), bytes_(bytes) {
      held->fetch_add(bytes);
    }
    Hold(Hold&& other) noexcept
        : held_(std::exchange(other.held_, nullptr)), bytes_(other.bytes_) {}
    Hold& operator=(Hold&&) = delete;
    ~Hold() { Release(); }
    void Release() {
      if (held_ != nullptr) std::exchange(held_, nullptr)->fetch_sub(bytes_);
    }

   private:
    std::atomic<uint64_t>* held_ = nullptr;
    uint64_t bytes_ = 0;
  };

  // Makes a guard. `root_fd` lies on the file system of `backing`; both outlive this. `drain`
  // returns when every issued record is applied.
  SpaceGuard(Backing& backing, int root_fd, std::function<absl::Status()> drain)
      : SpaceGuard(backing, root_fd, std::move(drain), QuotaOfBacking(backing, root_fd)) {}
  SpaceGuard(Backing& backing, int root_fd, std::function<absl::Status()> drain,
             QuotaLookup quota);
  // Sets a function that is called when there is too little room even after `drain`, once before a
  // refusal. It returns when everything is on the disk (a checkpoint). Only then space of files
  // that were just removed is certainly free, and the kernel's RELEASE and FORGET have come, for
  // which no caller waits. To be called before the first use.
  void set_reclaim(std::function<absl::Status()> reclaim) { reclaim_ = std::move(reclaim); }

  // Makes sure that writing [offset, offset + length) of the file open read-write as `fd` and owned
  // by (uid, gid) cannot fail by lack of space or quota, if it is issued while the Hold lives.
  // ENOSPC, EDQUOT otherwise. `settle` returns when no unapplied record frees blocks of the range;
  // the caller lets no such record be issued before its own.
  absl::StatusOr<Hold> Reserve(int fd, uid_t uid, gid_t gid, uint64_t offset, uint64_t length,
                               absl::FunctionRef<absl::Status()> settle);
  // Does the same for fallocate: the blocks are allocated when it returns OK.
  absl::Status Allocate(int fd, uid_t uid, gid_t gid, uint64_t offset, uint64_t length);
  // Returns EDQUOT when the owner may not have one more inode with `bytes`, also after all unapplied
  // records are applied and removed files are freed.
  absl::Status CheckNew(uid_t uid, gid_t gid, uint64_t bytes);
  // Applies all unapplied records, and has files freed that were removed.
  absl::Status FreeRemoved();
  // Returns EDQUOT when the group may not take over a file of `bytes`.
  absl::Status CheckGroup(gid_t gid, uint64_t bytes);

  // Returns whether there is far more room than all unapplied records need, so that a name can be
  // entered in any directory.
  bool HasPlenty() { return BudgetHas(0); }
  // Returns whether a change of a name or an attribute may be refused for the quota of an owner,
  // although the daemon is root.
  bool quota_binds_root() const { return quota_binds_root_ && quota_.on(); }
  // Returns whether the owner is far from the limits, so that no such change is refused. Counts it.
  bool IsFarFromQuota(uid_t uid, gid_t gid) {
    return !quota_binds_root() || quota_.IsFar(uid, gid);
  }
  // Returns false when Reserve and Allocate do not look at the owner.
  bool needs_owner() const { return quota_.on(); }

  // Count every record from before it is issued until it is applied, or not issued after all.
  void Issued(uint64_t charge);
  void Applied(uint64_t charge) { unapplied_.fetch_sub(charge); }
  // Counts bytes that went to a file without a record.
  void Direct(uint64_t bytes) {
    if (bytes > 0) budget_.fetch_sub(static_cast<int64_t>(SpaceCharge(Op::kWrite, bytes)));
  }
  uint64_t unapplied() const { return unapplied_.load(); }
  // Returns the free bytes that no write gets.
  uint64_t held_back() const { return margin_; }

 private:
  // Returns whether the budget, if it is recent, has `bytes`. Takes nothing from it.
  bool BudgetHas(uint64_t bytes);
  bool LookIsOld() const;
  // Looks the budget up. Returns false when that is not possible.
  bool Look() ABSL_EXCLUSIVE_LOCKS_REQUIRED(refresh_);
  // Returns the free space. btrfs does not count data that is not written back yet, so there it is
  // written back first.
  absl::StatusOr<FsSpace> Free();
  // Allocates the missing blocks of the range; the Hold is for those that cannot be allocated
  // ahead.
  absl::StatusOr<Hold> MakeRoom(int fd, uint64_t offset, uint64_t length);
  // Does so after `missing` bytes of it have left the budget as `charge`.
  absl::StatusOr<Hold> Claim(int fd, uint64_t offset, uint64_t length, uint64_t missing,
                             uint64_t charge) ABSL_EXCLUSIVE_LOCKS_REQUIRED(tight_);
  absl::Status CheckQuota(int fd, uid_t uid, gid_t gid, uint64_t offset, uint64_t length);

  Backing& backing_;
  const int root_fd_;
  const uint64_t margin_;  // bytes that no write gets
  const bool quota_binds_root_;
  const std::function<absl::Status()> drain_;
  std::function<absl::Status()> reclaim_;  // may be empty
  std::atomic<uint64_t> unapplied_{0};
  QuotaGuard quota_;  // reads it
  std::atomic<int64_t> budget_{
      0};  // free bytes less unapplied less kSpaceMargin, as last looked up
  std::atomic<int64_t> looked_ms_{0};  // time of that look
  std::atomic<uint64_t> held_{0};  // by writes on their way from Reserve to their records
  absl::Mutex refresh_;            // one look-up at a time
  // Held over the near-full path's system calls and its drain, so that two writers cannot count on
  // the same blocks. Applying never takes it, nor does a write of blocks that are allocated.
  absl::Mutex tight_ ABSL_ACQUIRED_BEFORE(refresh_);
};

}  // namespace salius
