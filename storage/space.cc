#include "storage/space.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <time.h>

#include <algorithm>
#include <utility>

#include "common/check.h"
#include "common/file.h"

namespace salius {
namespace {

// Returns the time of a monotonic clock that advances in steps of a tick.
int64_t CoarseMillis() {
  timespec now{};
  SALIUS_CHECK(clock_gettime(CLOCK_MONOTONIC_COARSE, &now) == 0);
  return int64_t{now.tv_sec} * 1000 + now.tv_nsec / 1'000'000;
}

}  // namespace

uint64_t SpaceCharge(Op op, uint64_t body_bytes) {
  constexpr uint64_t kBlock = 4096;
  switch (op) {
    case Op::kWrite:
      // The blocks, one more when it is not aligned, and one for the extent tree.
      return (body_bytes + kBlock - 1) / kBlock * kBlock + 2 * kBlock;
    case Op::kCancel:
    case Op::kOnDisk:
      return 0;
    case Op::kSetXattr:
      return (body_bytes + kBlock - 1) / kBlock * kBlock + kBlock;
    default:  // an inode, a directory block, an xattr block or a split extent
      return 4 * kBlock;
  }
}

uint64_t SpaceCharge(const RecordHeader& header) {
  return SpaceCharge(header.op, header.body_bytes);
}

SpaceGuard::SpaceGuard(Backing& backing, int root_fd, std::function<absl::Status()> drain,
                       QuotaLookup quota)
    : backing_(backing),
      root_fd_(root_fd),
      margin_(backing.CopiesOnWrite(root_fd) ? kCowMargin : 0),
      quota_binds_root_(backing.QuotaBindsRoot(root_fd)),
      drain_(std::move(drain)),
      quota_(std::move(quota), [this] { return unapplied_.load(); }) {}

void SpaceGuard::Issued(uint64_t charge) {
  unapplied_.fetch_add(charge);
  budget_.fetch_sub(static_cast<int64_t>(charge));
}

absl::StatusOr<FsSpace> SpaceGuard::Free() {
  if (margin_ > 0) SALIUS_RETURN_IF_ERROR(backing_.SyncFs(root_fd_));
  return backing_.FreeSpace(root_fd_);
}

bool SpaceGuard::LookIsOld() const {
  // btrfs would have to be synced for it.
  return margin_ == 0 && CoarseMillis() - looked_ms_.load() > kLookEveryMs;
}

bool SpaceGuard::BudgetHas(uint64_t bytes) {
  const int64_t need = static_cast<int64_t>(bytes);
  if (budget_.load() >= need && !LookIsOld()) return true;
  absl::MutexLock lock(&refresh_);
  if (budget_.load() >= need && !LookIsOld()) return true;
  return Look() && budget_.load() >= need;
}

bool SpaceGuard::Look() {
  // In this order, and by adding the difference, bytes issued or applied in between count twice and
  // are never left out.
  const int64_t before = budget_.load();
  const uint64_t unapplied = unapplied_.load();
  const absl::StatusOr<FsSpace> space = Free();
  if (!space.ok()) return false;  // the exact path will say why
  quota_.Refresh();
  const int64_t fresh =
      static_cast<int64_t>(space->bytes_avail) - static_cast<int64_t>(unapplied) - kSpaceMargin;
  budget_.fetch_add(fresh - before);
  looked_ms_.store(CoarseMillis());
  return true;
}

absl::StatusOr<SpaceGuard::Hold> SpaceGuard::Reserve(int fd, uid_t uid, gid_t gid, uint64_t offset,
                                                     uint64_t length,
                                                     absl::FunctionRef<absl::Status()> settle) {
  if (length == 0) return Hold();
  SALIUS_RETURN_IF_ERROR(CheckQuota(fd, uid, gid, offset, length));
  // Room for several records of the largest body each.
  const uint64_t need = SpaceCharge(Op::kWrite, length) + length / 4;
  if (BudgetHas(need)) {
    // Held before the deciding look: a thread that allocates takes from the budget first, and then
    // looks at the held bytes.
    Hold hold(&held_, need);
    if (budget_.load() >= static_cast<int64_t>(need)) return hold;
  }
  // Blocks that an unapplied truncate frees do not count for this write.
  SALIUS_RETURN_IF_ERROR(settle());
  return MakeRoom(fd, offset, length);
}

absl::Status SpaceGuard::Allocate(int fd, uid_t uid, gid_t gid, uint64_t offset, uint64_t length) {
  SALIUS_RETURN_IF_ERROR(CheckQuota(fd, uid, gid, offset, length));
  return MakeRoom(fd, offset, length).status();
}

absl::StatusOr<SpaceGuard::Hold> SpaceGuard::MakeRoom(int fd, uint64_t offset, uint64_t length) {
  // Counted before the lock, whose holder may wait for the disk.
  const uint64_t missing = backing_.UnallocatedBytes(fd, offset, length);
  if (missing == 0) {
    SALIUS_ASSIGN_OR_RETURN(const struct stat st, backing_.Stat(fd));
    const bool inside = offset + length <= static_cast<uint64_t>(st.st_size);
    if (inside || !backing_.MayTakeBlocksBack(fd)) return Hold();
    SALIUS_RETURN_IF_ERROR(backing_.Fallocate(fd, FALLOC_FL_KEEP_SIZE, offset, length));
    return Hold();
  }
  absl::MutexLock lock(&tight_);
  SALIUS_ASSIGN_OR_RETURN(const FsSpace all, backing_.FreeSpace(root_fd_));
  if (missing > all.bytes_total) return ErrnoStatus(ENOSPC, "write");
  const uint64_t charge = SpaceCharge(Op::kWrite, missing);
  Issued(charge);  // no write counts on it any more
  absl::StatusOr<Hold> claimed = Claim(fd, offset, length, missing, charge);
  Applied(charge);
  return claimed;
}

absl::StatusOr<SpaceGuard::Hold> SpaceGuard::Claim(int fd, uint64_t offset, uint64_t length,
                                                   uint64_t missing, uint64_t charge) {
  // In this order bytes issued or applied in between count twice and are never left out.
  uint64_t keep = held_.load() + margin_;
  const uint64_t unapplied = unapplied_.load() - charge;
  SALIUS_ASSIGN_OR_RETURN(FsSpace space, Free());
  if (space.bytes_avail < unapplied + missing + keep + kTightMargin) {
    SALIUS_RETURN_IF_ERROR(drain_());
    SALIUS_ASSIGN_OR_RETURN(space, Free());
    if (space.bytes_avail < missing + keep && reclaim_) {
      // Bytes that are no longer held were issued, and the checkpoint has applied them.
      keep = held_.load() + margin_;
      SALIUS_RETURN_IF_ERROR(reclaim_());
      SALIUS_ASSIGN_OR_RETURN(space, Free());
    }
    // bytes_avail: this process runs as root and would otherwise use root's reserve.
    if (space.bytes_avail < missing + keep) return ErrnoStatus(ENOSPC, "write");
  }
  const absl::Status allocated = backing_.Fallocate(fd, FALLOC_FL_KEEP_SIZE, offset, length);
  if (!allocated.ok() && StatusErrno(allocated) != EOPNOTSUPP) return allocated;
  uint64_t left = allocated.ok() ? backing_.UnallocatedBytes(fd, offset, length) : missing;
  if (left > 0 && allocated.ok() && margin_ == 0) {
    // Blocks that another file shares are written elsewhere.
    const absl::Status own =
        backing_.Fallocate(fd, FALLOC_FL_UNSHARE_RANGE | FALLOC_FL_KEEP_SIZE, offset, length);
    if (StatusErrno(own) == ENOSPC || StatusErrno(own) == EDQUOT) return own;
    if (own.ok()) left = backing_.UnallocatedBytes(fd, offset, length);
  }
  if (left == 0) return Hold();
  // Blocks that cannot be allocated ahead get a margin, and are held.
  const uint64_t beside = margin_ > 0 ? 0 : kTightMargin;
  if (space.bytes_avail < left + keep + beside) return ErrnoStatus(ENOSPC, "write");
  return Hold(&held_, SpaceCharge(Op::kWrite, length));
}

absl::Status SpaceGuard::CheckQuota(int fd, uid_t uid, gid_t gid, uint64_t offset,
                                    uint64_t length) {
  if (!quota_.on()) return absl::OkStatus();
  // Small writes count as the blocks that they may take.
  if (quota_.HasBytes(uid, gid, SpaceCharge(Op::kWrite, length))) return absl::OkStatus();
  // An overwrite needs nothing, and does not wait for the disk.
  if (backing_.UnallocatedBytes(fd, offset, length) == 0) return absl::OkStatus();
  // Near the limit: let the quota see unapplied bytes, then count exactly.
  absl::MutexLock lock(&tight_);
  SALIUS_RETURN_IF_ERROR(drain_());
  const uint64_t missing = backing_.UnallocatedBytes(fd, offset, length);
  if (quota_.HasBytes(uid, gid, missing)) return absl::OkStatus();
  return ErrnoStatus(EDQUOT, "write");
}

absl::Status SpaceGuard::CheckNew(uid_t uid, gid_t gid, uint64_t bytes) {
  if (!quota_.on()) return absl::OkStatus();
  const auto has = [&] { return quota_.HasInode(uid, gid) && quota_.HasBytes(uid, gid, bytes); };
  if (has()) return absl::OkStatus();
  // A removal may have returned that the file system does not know yet.
  SALIUS_RETURN_IF_ERROR(drain_());
  if (has()) return absl::OkStatus();
  if (reclaim_) SALIUS_RETURN_IF_ERROR(reclaim_());
  return has() ? absl::OkStatus() : ErrnoStatus(EDQUOT, "create");
}

absl::Status SpaceGuard::FreeRemoved() {
  SALIUS_RETURN_IF_ERROR(drain_());
  return reclaim_ ? reclaim_() : absl::OkStatus();
}

absl::Status SpaceGuard::CheckGroup(gid_t gid, uint64_t bytes) {
  if (!quota_.on() || quota_.GroupHas(gid, bytes)) return absl::OkStatus();
  return ErrnoStatus(EDQUOT, "change of group");
}

}  // namespace salius
