// The descriptors through which the backing files of nodes are changed. A node keeps one from its
// first use until no handle and no record needs it.
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
  // Closes it when no record or handle needs it.
  static void CloseIdle(Node& node);

 private:
  Backing& backing_;
  FileFds& fds_;
};

}  // namespace salius
