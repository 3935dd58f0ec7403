#include "client/volume/node.h"

#include <fcntl.h>
#include <malloc.h>

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

const NodeChanges& Node::kUnchanged = *new NodeChanges;  // outlives every thread

NodeChanges& Node::MakeChanges() {
  auto* const made = new NodeChanges;
  NodeChanges* other = nullptr;
  if (changes_.compare_exchange_strong(other, made, std::memory_order_acq_rel)) return *made;
  delete made;  // another thread was faster
  return *other;
}

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

template <typename Make>
absl::StatusOr<PinnedNode> NodeTable::Enter(const struct stat& st, const Make& make) {
  absl::MutexLock lock(&mu_);
  // A subvolume of btrfs: no rename or link crosses its border, and recovery would not look there.
  if (made_ > 0 && st.st_dev != dev_) return ErrnoStatus(EXDEV, "another file system or subvolume");
  dev_ = st.st_dev;
  Node*& node = by_inode_[st.st_ino];
  node = make(node);
  Pin(*node);
  return PinnedNode(*this, node);
}

absl::StatusOr<PinnedNode> NodeTable::Intern(BackingFd path_fd) {
  SALIUS_ASSIGN_OR_RETURN(const struct stat st, backing_.Stat(path_fd.get()));
  return Enter(st, [&](Node* old) {
    mu_.AssertHeld();
    if (old != nullptr) {
      old->path_fd.Offer(std::move(path_fd));
      return old;
    }
    return new Node(std::move(path_fd), st, issued_(), made_++, path_fds_);
  });
}

absl::StatusOr<NodeTable::Listed> NodeTable::InternListed(BackingFd path_fd, Seq issued_before) {
  Listed listed;
  SALIUS_ASSIGN_OR_RETURN(listed.attr, backing_.Stat(path_fd.get()));
  FileHandle handle;  // of a node that is to be made without a descriptor
  if (!S_ISDIR(listed.attr.st_mode) && path_fds_.CanReopen(listed.attr.st_dev)) {
    absl::StatusOr<FileHandle> found = backing_.HandleOf(path_fd.get());
    if (found.ok() && CompactHandle::Holds(*found)) handle = *std::move(found);
  }
  SALIUS_ASSIGN_OR_RETURN(listed.node, Enter(listed.attr, [&](Node* old) {
    mu_.AssertHeld();
    if (old != nullptr) return old;
    const Seq issued = issued_();
    listed.current = issued == issued_before;
    if (handle.bytes.empty()) {
      return new Node(std::move(path_fd), listed.attr, issued, made_++, path_fds_);
    }
    return new Node(handle, listed.attr, issued, made_++, path_fds_);
  }));
  return listed;
}

PinnedNode NodeTable::FindInode(ino_t ino) {
  absl::MutexLock lock(&mu_);
  const auto found = by_inode_.find(ino);
  if (found == by_inode_.end()) return PinnedNode();
  Pin(*found->second);
  return PinnedNode(*this, found->second);
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
  if (left != left_.end() && left->second.file != std::pair{node.dev(), node.ino}) return false;
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
    by_inode_.erase(node.ino);
    if (const FileId id = node.id.load(); id != kNoFileId) {
      by_id_.erase(id);
      left_[id] = {{node.dev(), node.ino}, issued_()};
    }
    ++deleting_;
  }
  delete &node;  // the last descriptor of a removed file: the file system frees its blocks in here
  memory_.NoteFreed();
  absl::MutexLock lock(&mu_);
  if (--deleting_ == 0) deleted_.SignalAll();
}

void NodeTable::GiveMemoryBack() {
  {
    absl::MutexLock lock(&mu_);
    // A table never shrinks alone.
    if (by_inode_.size() < by_inode_.capacity() / 8) by_inode_.rehash(0);
    if (by_id_.size() < by_id_.capacity() / 8) by_id_.rehash(0);
  }
  ::malloc_trim(0);
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
