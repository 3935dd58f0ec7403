#include "client/engine/space.h"

#include <errno.h>
#include <fcntl.h>

#include <algorithm>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "client/engine/volume_calls.h"
#include "common/check.h"
#include "common/file.h"
#include "log/fs_calls.h"

namespace salius {

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

SpaceGuard::SpaceGuard(int root_fd, std::function<absl::Status()> drain, QuotaLookup quota)
    : root_fd_(root_fd),
      margin_(fs::CopiesOnWrite(root_fd) ? kCowMargin : 0),
      drain_(std::move(drain)),
      quota_(std::move(quota)) {}

void SpaceGuard::Issued(uint64_t charge) {
  unapplied_.fetch_add(charge);
  budget_.fetch_sub(static_cast<int64_t>(charge));
}

absl::StatusOr<FsSpace> SpaceGuard::Free() {
  if (margin_ > 0) SALIUS_RETURN_IF_ERROR(SyncFs(root_fd_));
  return StatfsFree(root_fd_);
}

bool SpaceGuard::BudgetHas(uint64_t bytes) {
  const int64_t need = static_cast<int64_t>(bytes);
  if (budget_.load() >= need) return true;
  absl::MutexLock lock(&refresh_);
  if (budget_.load() >= need) return true;
  // In this order, and by adding the difference, what is issued or applied in between counts twice,
  // never not at all.
  const int64_t before = budget_.load();
  const uint64_t unapplied = unapplied_.load();
  const absl::StatusOr<FsSpace> space = Free();
  if (!space.ok()) return false;  // the exact path will say why
  quota_.Refresh();
  const int64_t fresh =
      static_cast<int64_t>(space->bytes_avail) - static_cast<int64_t>(unapplied) - kSpaceMargin;
  budget_.fetch_add(fresh - before);
  return budget_.load() >= need;
}

absl::StatusOr<SpaceGuard::Hold> SpaceGuard::Reserve(int fd, uid_t uid, gid_t gid, uint64_t offset,
                                                     uint64_t length,
                                                     absl::FunctionRef<absl::Status()> settle) {
  if (length == 0) return Hold();
  SALIUS_RETURN_IF_ERROR(CheckQuota(fd, uid, gid, offset, length));
  // Room for several records of the largest body each.
  const uint64_t need = SpaceCharge(Op::kWrite, length) + length / 4;
  {
    // Before the look: who allocates takes from the budget first and looks here then.
    Hold hold(&held_, need);
    if (BudgetHas(need)) return hold;
  }
  // Blocks that an unapplied truncate frees are not there for this write.
  SALIUS_RETURN_IF_ERROR(settle());
  SALIUS_RETURN_IF_ERROR(MakeRoom(fd, offset, length));
  return Hold();
}

absl::Status SpaceGuard::Allocate(int fd, uid_t uid, gid_t gid, uint64_t offset, uint64_t length) {
  SALIUS_RETURN_IF_ERROR(CheckQuota(fd, uid, gid, offset, length));
  return MakeRoom(fd, offset, length);
}

absl::Status SpaceGuard::MakeRoom(int fd, uint64_t offset, uint64_t length) {
  absl::MutexLock lock(&tight_);
  const uint64_t missing = fs::UnallocatedBytes(fd, offset, length);
  if (missing == 0) return absl::OkStatus();
  Issued(missing);  // no write counts on it any more
  const absl::Cleanup taken = [this, missing] { Applied(missing); };
  // In this order what is issued or applied in between counts twice, never not at all.
  const uint64_t keep = held_.load() + margin_;
  const uint64_t unapplied = unapplied_.load() - missing;
  SALIUS_ASSIGN_OR_RETURN(FsSpace space, Free());
  if (space.bytes_avail < unapplied + missing + keep + kTightMargin) {
    SALIUS_RETURN_IF_ERROR(drain_());
    SALIUS_ASSIGN_OR_RETURN(space, Free());
    if (space.bytes_avail < missing + keep && reclaim_) {
      SALIUS_RETURN_IF_ERROR(reclaim_());
      SALIUS_ASSIGN_OR_RETURN(space, Free());
    }
    // bytes_avail, since we run as root and would be given root's reserve.
    if (space.bytes_avail < missing + keep) return ErrnoStatus(ENOSPC, "write");
  }
  const absl::Status allocated = fs::Fallocate(fd, FALLOC_FL_KEEP_SIZE, offset, length);
  if (StatusErrno(allocated) != EOPNOTSUPP) return allocated;
  // A file system that cannot allocate ahead: leave it a margin.
  if (space.bytes_avail < missing + keep + kTightMargin) return ErrnoStatus(ENOSPC, "write");
  return absl::OkStatus();
}

absl::Status SpaceGuard::CheckQuota(int fd, uid_t uid, gid_t gid, uint64_t offset,
                                    uint64_t length) {
  if (!quota_.on()) return absl::OkStatus();
  if (quota_.HasBytes(uid, gid, unapplied_.load() + length)) return absl::OkStatus();
  // Near the limit: let what is unapplied become visible to the quota, then count exactly.
  absl::MutexLock lock(&tight_);
  SALIUS_RETURN_IF_ERROR(drain_());
  if (quota_.HasBytes(uid, gid, fs::UnallocatedBytes(fd, offset, length))) return absl::OkStatus();
  return ErrnoStatus(EDQUOT, "write");
}

absl::Status SpaceGuard::CheckInode(uid_t uid, gid_t gid) {
  if (!quota_.on() || quota_.HasInode(uid, gid)) return absl::OkStatus();
  return ErrnoStatus(EDQUOT, "create");
}

}  // namespace salius
