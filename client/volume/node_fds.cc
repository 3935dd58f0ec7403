#include "client/volume/node_fds.h"

#include <fcntl.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "common/check.h"

namespace salius {

absl::StatusOr<SharedFd> NodeFds::ForWriting(Node& node, uid_t opener) {
  {
    absl::MutexLock lock(&node.state);
    if (node.seen_records().rw_fd != nullptr) return node.seen_records().rw_fd;
  }
  const int atime = fds_.AtimeFlag(FileFds::Kind::kFile);
  SALIUS_ASSIGN_OR_RETURN(BackingFd fd, backing_.Reopen(node.path_fd.get(), O_RDWR | atime));
  SharedFd shared = fds_.Share(std::move(fd), FileFds::Kind::kFile, opener);
  absl::MutexLock lock(&node.state);
  NodeChanges::Records& records = node.records();
  if (records.rw_fd == nullptr) {
    records.rw_fd = std::move(shared);
    records.unwatched_seq = std::max({records.last_seq, records.applying_seq, node.born_seq});
    records.unwatched_writes = node.bulk_writes().load();
  }
  return records.rw_fd;
}

absl::StatusOr<SharedFd> NodeFds::ForApply(Node& node) {
  {
    absl::MutexLock lock(&node.state);
    if (node.seen_records().rw_fd != nullptr) return node.seen_records().rw_fd;
  }
  SALIUS_ASSIGN_OR_RETURN(BackingFd fd, backing_.Reopen(node.path_fd.get(), O_RDWR));
  return std::make_shared<const BackingFd>(std::move(fd));
}

void NodeFds::CloseIdle(Node& node) {
  SharedFd idle;  // closed after the lock
  absl::MutexLock lock(&node.state);
  if (!node.was_changed()) return;
  if (node.handles == 0) idle.swap(node.records().rw_fd);
}

}  // namespace salius
