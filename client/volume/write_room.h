// Whether a change of a file's data fits: into the file system's largest file (EFBIG), its free
// space (ENOSPC) and the owner's quota (EDQUOT). It is found out before the record is stamped.
//
// Threads: any; the callers hold the node's `stream`.
#pragma once

#include <cstdint>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/volume/issuer.h"
#include "client/volume/node.h"
#include "storage/backing.h"
#include "storage/space.h"

namespace salius {

class WriteRoom {
 public:
  // `root_fd` lies on the file system of the files, in `backing`.
  WriteRoom(Backing& backing, SpaceGuard& space, Issuer& issuer, int root_fd);

  // `fd` is the file's, open for writing, in all of these.

  // Returns how many of the `length` bytes at `offset` the file system can address; EFBIG when
  // none.
  absl::StatusOr<uint64_t> FitLength(Node& node, int fd, uint64_t offset, uint64_t length)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(node.stream);
  // Reserves room for a write there, until its records are issued.
  absl::StatusOr<SpaceGuard::Hold> Reserve(Node& node, int fd, uint64_t offset, uint64_t length)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(node.stream);
  // Reserves room for a side effect of a new end of the file at `upto`, or (kStays) of a write
  // there, behind its end. The file system then zeroes the rest of the block where the file ends,
  // which needs another block if another file shares that one.
  enum class End { kMoves, kStays };
  absl::StatusOr<SpaceGuard::Hold> ReserveEnd(Node& node, int fd, uint64_t upto, End end)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(node.stream);
  // Allocates the blocks of the range. Every record of the node is applied.
  absl::Status Allocate(int fd, uint64_t offset, uint64_t length);

 private:
  Backing& backing_;
  SpaceGuard& space_;
  Issuer& issuer_;
  const uint64_t shared_block_bytes_;  // Backing::SharedBlockBytes
};

}  // namespace salius
