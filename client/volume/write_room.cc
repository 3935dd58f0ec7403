#include "client/volume/write_room.h"

#include <errno.h>

#include <algorithm>
#include <vector>

#include "common/check.h"
#include "common/file.h"
#include "log/record.h"

namespace salius {

WriteRoom::WriteRoom(Backing& backing, SpaceGuard& space, Issuer& issuer, int root_fd)
    : backing_(backing),
      space_(space),
      issuer_(issuer),
      shared_block_bytes_(backing.SharedBlockBytes(root_fd)) {}

absl::StatusOr<uint64_t> WriteRoom::FitLength(Node& node, int fd, uint64_t offset,
                                              uint64_t length) {
  constexpr uint64_t kMax = static_cast<uint64_t>(INT64_MAX);
  if (offset > kMax) return ErrnoStatus(EINVAL, "offset");
  uint64_t end = length > kMax - offset ? kMax : offset + length;
  if (end <= node.writing().checked_size) return end - offset;
  if (backing_.SizeFits(fd, end)) {
    node.writing().checked_size = end;
    return end - offset;
  }
  if (!backing_.SizeFits(fd, offset + 1)) return ErrnoStatus(EFBIG, "file too large");
  uint64_t fits = offset + 1;
  while (end - fits > 1) {
    const uint64_t middle = fits + (end - fits) / 2;
    (backing_.SizeFits(fd, middle) ? fits : end) = middle;
  }
  return fits - offset;
}

absl::StatusOr<SpaceGuard::Hold> WriteRoom::Reserve(Node& node, int fd, uint64_t offset,
                                                    uint64_t length) {
  struct stat st {};
  if (space_.needs_owner()) {
    SALIUS_ASSIGN_OR_RETURN(st, backing_.Stat(fd));
  }
  return space_.Reserve(fd, st.st_uid, st.st_gid, offset, length, [&]() -> absl::Status {
    std::vector<Extent> extents;
    {
      absl::MutexLock lock(&node.state);
      extents = node.seen_records().extents.In(offset, length);
    }
    // A write that lies over a truncation has reserved its room after that was applied.
    const bool only_writes = std::all_of(extents.begin(), extents.end(),
                                         [](const Extent& extent) { return extent.is_data(); });
    return only_writes ? absl::OkStatus() : issuer_.AwaitNode(node);
  });
}

absl::StatusOr<SpaceGuard::Hold> WriteRoom::ReserveEnd(Node& node, int fd, uint64_t upto, End end) {
  if (shared_block_bytes_ == 0) return SpaceGuard::Hold();
  SALIUS_ASSIGN_OR_RETURN(const uint64_t size, issuer_.LogicalSize(node));
  if (end == End::kStays && upto <= size) return SpaceGuard::Hold();
  const uint64_t at = std::min(size, upto);
  if (at % shared_block_bytes_ == 0 || !backing_.IsShared(fd, at)) return SpaceGuard::Hold();
  return Reserve(node, fd, at, 1);
}

absl::Status WriteRoom::Allocate(int fd, uint64_t offset, uint64_t length) {
  SALIUS_ASSIGN_OR_RETURN(const struct stat st, backing_.Stat(fd));
  return space_.Allocate(fd, st.st_uid, st.st_gid, offset, length);
}

}  // namespace salius
