#include "client/volume/node.h"

#include <fcntl.h>

#include <chrono>

#include "common/check.h"
#include "common/clock.h"
#include "common/deadline.h"
#include "common/file.h"
#include "common/log.h"

namespace salius {
namespace {

// Freeing a very large file takes a file system seconds.
constexpr std::chrono::seconds kDeleteTimeout{10};

}  // namespace

Contract Handle::contract() const {
  return (flags & (O_SYNC | O_DSYNC)) != 0 ? Contract::kDurable : Contract::kPlain;
}
bool Handle::writable() const { return (flags & O_ACCMODE) != O_RDONLY; }

PinnedNode& PinnedNode::operator=(PinnedNode&& other) noexcept {
  if (this != &other) {
    Reset();
    table_ = other.table_;
    node_ = std::exchange(other.node_, nullptr);
  }
  return *this;
}

void PinnedNode::Reset() {
  if (Node* const node = Release(); node != nullptr) table_->Unpin(*node);
}

NodeTable::~NodeTable() {
  absl::MutexLock lock(&mu_);
  for (const auto& [key, node] : by_inode_) delete node;
}

absl::Status NodeTable::MakeRoot(BackingFd path_fd) {
  SALIUS_ASSIGN_OR_RETURN(PinnedNode node, Intern(std::move(path_fd)));
  root_ = node.Release();
  SALIUS_CHECK(SetId(*root_, kRootFileId));
  root_->identified.store(true);
  root_->path_fd.Keep(root_->path_fd.get());
  return absl::OkStatus();
}

absl::StatusOr<PinnedNode> NodeTable::Intern(BackingFd path_fd) {
  SALIUS_ASSIGN_OR_RETURN(const struct stat st, backing_.Stat(path_fd.get()));
  absl::MutexLock lock(&mu_);
  // A subvolume of btrfs: no rename or link crosses its border, and recovery would not look there.
  if (made_ > 0 && st.st_dev != dev_) return ErrnoStatus(EXDEV, "another file system or subvolume");
  dev_ = st.st_dev;
  Node*& node = by_inode_[{st.st_dev, st.st_ino}];
  if (node == nullptr) {
    node = new Node(std::move(path_fd), st, issued_(), made_++, path_fds_);
  } else {
    node->path_fd.Offer(std::move(path_fd));
  }
  Pin(*node);
  return PinnedNode(*this, node);
}

PinnedNode NodeTable::Find(FileId id) {
  absl::MutexLock lock(&mu_);
  const auto found = by_id_.find(id);
  if (found == by_id_.end()) return PinnedNode();
  Pin(*found->second);
  return PinnedNode(*this, found->second);
}

bool NodeTable::SetId(Node& node, FileId id) {
  absl::MutexLock lock(&mu_);
  const auto left = left_.find(id);
  if (left != left_.end() && left->second.file != std::pair{node.dev, node.ino}) return false;
  const auto [place, fresh] = by_id_.try_emplace(id, &node);
  if (!fresh && place->second != &node) return false;
  node.id.store(id);
  return true;
}

void NodeTable::ClearId(Node& node) {
  absl::MutexLock lock(&mu_);
  by_id_.erase(node.id.exchange(kNoFileId));
}

void NodeTable::Unpin(Node& node, uint64_t count) {
  uint64_t pins = node.pins_.load();
  while (pins > count) {
    if (node.pins_.compare_exchange_weak(pins, pins - count)) return;
  }
  {
    absl::MutexLock lock(&mu_);
    const uint64_t before = node.pins_.fetch_sub(count);
    SALIUS_CHECK(before >= count, "a node lost more pins than it had");
    if (before > count) return;
    by_inode_.erase({node.dev, node.ino});
    if (const FileId id = node.id.load(); id != kNoFileId) {
      by_id_.erase(id);
      left_[id] = {{node.dev, node.ino}, issued_()};
    }
    ++deleting_;
  }
  delete &node;  // the last descriptor of a removed file: the file system frees its blocks in here
  absl::MutexLock lock(&mu_);
  if (--deleting_ == 0) deleted_.SignalAll();
}

void NodeTable::DropCoveredIds(Seq checkpoint) {
  absl::MutexLock lock(&mu_);
  absl::erase_if(left_, [&](const auto& entry) { return entry.second.seq <= checkpoint; });
}

void NodeTable::AwaitDeleted() {
  const Deadline until = Deadline::After(SystemClock(), kDeleteTimeout);
  absl::MutexLock lock(&mu_);
  while (deleting_ > 0) {
    const int64_t left_ns = until.RemainingNs(SystemClock());
    if (left_ns == 0) {
      SLOG_WARN("{} removed files are still being freed", deleting_);
      return;
    }
    deleted_.WaitFor(&mu_, left_ns);
  }
}

}  // namespace salius
