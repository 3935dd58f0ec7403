// The descriptors through which the backing files of nodes are changed. A node keeps one as long as
// a handle is open. The records of a closed file are applied through descriptors of their own:
// files may be closed faster than the disk takes their records, and must not use up the
// descriptors.
//
// Threads: any.
#pragma once

#include <sys/types.h>

#include "absl/status/statusor.h"
#include "client/volume/node.h"
#include "storage/backing.h"
#include "storage/file_fds.h"

namespace salius {

class NodeFds {
 public:
  NodeFds(Backing& backing, FileFds& fds) : backing_(backing), fds_(fds) {}

  // Returns the descriptor for writing, opened when there is none. The caller needs a pin that
  // outlives the use. `opener`: the user to whom it counts.
  absl::StatusOr<SharedFd> ForWriting(Node& node, uid_t opener = FileFds::kRoot);
  // Returns that descriptor if the node has one, else one that the node does not keep: for the
  // apply of a record.
  absl::StatusOr<SharedFd> ForApply(Node& node);
  // Closes the descriptor for writing if no handle is open.
  static void CloseIdle(Node& node);

 private:
  Backing& backing_;
  FileFds& fds_;
};

}  // namespace salius
