#include "client/volume/node_fds.h"

#include <fcntl.h>

#include <algorithm>
#include <utility>

#include "common/check.h"

namespace salius {

absl::StatusOr<SharedFd> NodeFds::ForWriting(Node& node, uid_t opener) {
  {
    absl::MutexLock lock(&node.state);
    if (node.rw_fd != nullptr) return node.rw_fd;
  }
  const int atime = fds_.AtimeFlag(FileFds::Kind::kFile);
  SALIUS_ASSIGN_OR_RETURN(BackingFd fd, backing_.Reopen(node.path_fd.get(), O_RDWR | atime));
  SharedFd shared = fds_.Share(std::move(fd), FileFds::Kind::kFile, opener);
  absl::MutexLock lock(&node.state);
  if (node.rw_fd == nullptr) {
    node.rw_fd = std::move(shared);
    node.unwatched_seq = std::max(node.last_seq, node.born_seq);
    node.unwatched_writes = node.bulk_writes.load();
  }
  return node.rw_fd;
}

void NodeFds::CloseIdle(Node& node) {
  SharedFd idle;  // closed after the lock
  absl::MutexLock lock(&node.state);
  if (node.unapplied == 0 && node.handles == 0) idle.swap(node.rw_fd);
}

}  // namespace salius
