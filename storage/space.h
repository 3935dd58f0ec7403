// Space on the backing file system: what can fail for want of room or quota must fail before a
// record is stamped (I8), because after the acknowledgement it has to be
// applied.
//
// Two regimes. With more than kSpaceMargin free beyond all that unapplied records may need, a write
// is let through by a look at a cached budget (writers that look at the same moment may overdraw it
// by one write each, which the margin covers), and what it needs is held until its records are
// issued. The budget is looked up again when it is used up, and after kLookEveryMs, since others
// use the disk as well. Nearer to the end the range is allocated in the backing file (fallocate,
// size kept) before the record is stamped, after waiting for unapplied records where they could
// claim the same blocks, or give back those that the write counts on: then the file system itself
// has decided. What is allocated so, for a write or for fallocate(2), leaves the budget before it
// leaves the disk. Overwrites of allocated blocks need nothing and succeed on a full disk; on
// btrfs, which writes them elsewhere, everything needs room, and the last kCowMargin is left to it.
// Disk quotas of the file's owner are checked with it (quota.h).
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
#include "storage/quota.h"

namespace salius {

// Below this the file system is "nearly full": room for the metadata of everything in flight, since
// the pipeline's window (64 MiB by default) bounds what is unapplied.
inline constexpr int64_t kSpaceMargin = int64_t{64} << 20;
// What even the near-full path leaves to metadata before it drains: extents, directories, inodes.
inline constexpr uint64_t kTightMargin = uint64_t{1} << 20;

// How old the budget may be when a write counts on it.
inline constexpr int64_t kLookEveryMs = 100;

// What btrfs is left for itself: what it overwrites becomes free only when its next transaction
// commits, and its metadata is copied as well.
inline constexpr uint64_t kCowMargin = uint64_t{16} << 20;

// Bytes a record may need on the backing file system: body, rounding and metadata.
uint64_t SpaceCharge(const RecordHeader& header);
uint64_t SpaceCharge(Op op, uint64_t body_bytes);

class SpaceGuard {
 public:
  // What a write was let through with, and nobody else is allocated: until its records are issued,
  // or what it writes without one is written. Empty when its blocks are allocated.
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

  // `root_fd` lies on the file system and outlives this. `drain` returns when nothing issued is
  // unapplied any more.
  SpaceGuard(int root_fd, std::function<absl::Status()> drain)
      : SpaceGuard(root_fd, std::move(drain), KernelQuota(root_fd)) {}
  SpaceGuard(int root_fd, std::function<absl::Status()> drain, QuotaLookup quota);
  // Called when there is too little room even after `drain`, once before a refusal: returns when
  // everything is on the disk (a checkpoint). What was removed just now is only then free for sure,
  // and by then the kernel's RELEASE and FORGET, which nobody waits for, have come. Before the
  // first use.
  void set_reclaim(std::function<absl::Status()> reclaim) { reclaim_ = std::move(reclaim); }

  // Makes sure that writing [offset, offset + length) of the file open read-write as `fd` and owned
  // by (uid, gid) cannot fail for want of space or quota, if it is issued while the Hold lives.
  // ENOSPC, EDQUOT otherwise. `settle` returns when no unapplied record takes blocks of the range
  // away, and the caller lets none be issued before its own.
  absl::StatusOr<Hold> Reserve(int fd, uid_t uid, gid_t gid, uint64_t offset, uint64_t length,
                               absl::FunctionRef<absl::Status()> settle);
  // The same for fallocate: the blocks are allocated when it returns OK.
  absl::Status Allocate(int fd, uid_t uid, gid_t gid, uint64_t offset, uint64_t length);
  // EDQUOT when the owner may not have one more inode.
  absl::Status CheckInode(uid_t uid, gid_t gid);
  // EDQUOT when the group may not take over a file that has so many bytes.
  absl::Status CheckGroup(gid_t gid, uint64_t bytes);

  // False: Reserve and Allocate do not look at the owner.
  bool needs_owner() const { return quota_.on(); }

  // Every record counts from before it is issued until it was applied (or was not issued after
  // all).
  void Issued(uint64_t charge);
  void Applied(uint64_t charge) { unapplied_.fetch_sub(charge); }
  // `bytes` went to a file without a record.
  void Direct(uint64_t bytes) {
    if (bytes > 0) budget_.fetch_sub(static_cast<int64_t>(SpaceCharge(Op::kWrite, bytes)));
  }
  uint64_t unapplied() const { return unapplied_.load(); }
  // Free bytes that no write is given.
  uint64_t held_back() const { return margin_; }

 private:
  // True when the budget, looked up not long ago, has `bytes`, of which nothing is taken.
  bool BudgetHas(uint64_t bytes);
  bool LookIsOld() const;
  // Looks the budget up. False when that is not possible.
  bool Look() ABSL_EXCLUSIVE_LOCKS_REQUIRED(refresh_);
  // What is free. btrfs does not count what is not written back yet, so there it is written first.
  absl::StatusOr<FsSpace> Free();
  // Allocates what of the range is not; the Hold is for what cannot be allocated ahead.
  absl::StatusOr<Hold> MakeRoom(int fd, uint64_t offset, uint64_t length);
  // The same once `missing` bytes of it have left the budget as `charge`.
  absl::StatusOr<Hold> Claim(int fd, uint64_t offset, uint64_t length, uint64_t missing,
                             uint64_t charge) ABSL_EXCLUSIVE_LOCKS_REQUIRED(tight_);
  absl::Status CheckQuota(int fd, uid_t uid, gid_t gid, uint64_t offset, uint64_t length);

  const int root_fd_;
  const uint64_t margin_;  // that nobody is given
  const std::function<absl::Status()> drain_;
  std::function<absl::Status()> reclaim_;  // may be empty
  std::atomic<uint64_t> unapplied_{0};
  QuotaGuard quota_;  // reads it
  std::atomic<int64_t> budget_{
      0};  // free bytes less unapplied less kSpaceMargin, as last looked up
  std::atomic<int64_t> looked_ms_{0};  // when that was
  std::atomic<uint64_t> held_{0};  // by writes on their way from Reserve to their records
  absl::Mutex refresh_;            // one look-up at a time
  // Held over the near-full path's system calls and its drain, so that two writers cannot count on
  // the same blocks. Nothing that applies records takes it, nor a write of blocks that are there.
  absl::Mutex tight_ ABSL_ACQUIRED_BEFORE(refresh_);
};

}  // namespace salius
