#include "client/volume/pending_names.h"

#include <algorithm>
#include <utility>

#include "common/check.h"

namespace salius {
namespace {

Bindings::Object ObjectOf(const Node& node) { return {node.generation, node.ino, node.type}; }

}  // namespace

PinnedNode PendingNames::PinnedAt(Bindings::Key key) {
  const auto found = nodes_.find(key);
  SALIUS_CHECK(found != nodes_.end(), "a pending name leads to a node that no record holds");
  Node& node = *found->second.first;
  table_.Pin(node);
  return PinnedNode(table_, &node);
}

std::optional<PinnedNode> PendingNames::Find(const Node& dir, std::string_view name) {
  absl::MutexLock lock(&mu_);
  const std::optional<Bindings::Binding> found = bindings_.Find({dir.generation, name});
  if (!found.has_value()) return std::nullopt;
  if (!found->object.has_value()) return PinnedNode();
  return PinnedAt(found->object->key);
}

bool PendingNames::Touches(const Node& dir) {
  absl::MutexLock lock(&mu_);
  return bindings_.Touches(dir.generation);
}

PinnedNode PendingNames::ParentOf(const Node& dir) {
  absl::MutexLock lock(&mu_);
  const std::optional<Bindings::Key> parent = bindings_.ParentOf(dir.generation);
  return parent.has_value() ? PinnedAt(*parent) : PinnedNode();
}

std::shared_ptr<const Bindings::Snapshot> PendingNames::SnapshotOf(const Node& dir) {
  absl::MutexLock lock(&mu_);
  if (!bindings_.Touches(dir.generation)) return nullptr;
  return std::make_shared<const Bindings::Snapshot>(bindings_.SnapshotOf(dir.generation));
}

absl::StatusOr<bool> PendingNames::IsEmpty(const Node& dir) {
  const std::shared_ptr<const Bindings::Snapshot> pending = SnapshotOf(dir);
  if (pending == nullptr) return backing_.IsEmptyDir(dir.path_fd.get());
  if (!pending->added.empty()) return false;
  // Nothing is added meanwhile, so an entry that was not removed before stays.
  SALIUS_ASSIGN_OR_RETURN(const std::vector<std::string> names,
                          backing_.ListDir(dir.path_fd.get()));
  return std::all_of(names.begin(), names.end(),
                     [&](const std::string& name) { return pending->Covers(name); });
}

bool PendingNames::IsFull() {
  absl::MutexLock lock(&mu_);
  return bindings_.entries() >= kMaxEntries || bindings_.bytes() >= kMaxBytes;
}

void PendingNames::NoteApplied(Seq seq) {
  std::vector<PinnedNode> freed;  // destroyed without the lock
  {
    absl::MutexLock lock(&mu_);
    applied_ = std::max(applied_, seq);
    bindings_.NoteApplied(seq);
    while (!held_.empty() && held_.begin()->first <= seq) {
      Held& held = held_.begin()->second;
      for (Node* const node : held.counted) {
        absl::MutexLock state(&node->state);
        --node->records().unapplied_names;
      }
      for (PinnedNode& node : held.nodes) {
        const auto found = nodes_.find(node->generation);
        if (--found->second.second == 0) nodes_.erase(found);
        freed.push_back(std::move(node));
      }
      held_.erase(held_.begin());
    }
  }
  // An orphan's last descriptor may go with its node.
  std::vector<PinnedNode> orphans;
  for (PinnedNode& node : freed) {
    absl::ReleasableMutexLock state(&node->state);
    const bool orphan = node->orphan;
    state.Release();
    if (orphan) orphans.push_back(std::move(node));
  }
  if (orphans.empty()) return;
  auto chore = std::make_shared<std::vector<PinnedNode>>(std::move(orphans));
  absl::MutexLock lock(&mu_);
  if (chores_ != nullptr) chores_->Do([chore = std::move(chore)] { chore->clear(); });
}

void PendingNames::EndChores() {
  std::unique_ptr<Chores> ended;
  absl::MutexLock lock(&mu_);
  ended = std::move(chores_);
}

NameChange::~NameChange() {
  if (issued_) return;
  for (const auto& [node, links] : counted_) {
    absl::MutexLock state(&node->state);
    --node->records().unapplied_names;
    node->records().links -= links;
  }
}

absl::Status NameChange::AddLinks(Node& node, int links) {
  bool known = false;
  {
    absl::MutexLock state(&node.state);
    known = node.seen_records().unapplied_names > 0;
  }
  nlink_t on_disk = 0;
  if (!known) {
    // Only records of names change it, and the locks that the caller holds keep them off.
    SALIUS_ASSIGN_OR_RETURN(const struct stat st, pending_.backing_.Stat(node.path_fd.get()));
    on_disk = st.st_nlink;
  }
  absl::MutexLock state(&node.state);
  NodeChanges::Records& records = node.records();
  // When the last record was applied meanwhile, `links` is what the disk says now.
  if (!known) records.links = on_disk;
  // Some file systems do not count the names of directories: each has one link.
  if (node.is_dir() && records.links == 1) links = links == -2 ? -1 : 0;
  records.links += links;
  ++records.unapplied_names;
  counted_.emplace_back(&node, links);
  nodes_.push_back(&node);
  return absl::OkStatus();
}

void NameChange::Issued(Seq seq, absl::FunctionRef<void(Bindings&)> enter) {
  issued_ = true;
  absl::MutexLock lock(&pending_.mu_);
  for (Node* const node : nodes_) {
    absl::MutexLock state(&node->state);
    NodeChanges::Records& records = node->records();
    records.name_seq = std::max(records.name_seq, seq);
  }
  if (seq <= pending_.applied_) {
    for (const auto& [node, links] : counted_) {
      absl::MutexLock state(&node->state);
      --node->records().unapplied_names;
    }
    return;
  }
  if (removed_ != nullptr) {
    absl::MutexLock state(&removed_->state);
    removed_->records().removal_seq = seq;
  }
  enter(pending_.bindings_);
  PendingNames::Held& held = pending_.held_[seq];
  for (Node* const node : nodes_) {
    pending_.table_.Pin(*node);
    held.nodes.emplace_back(pending_.table_, node);
    auto& [place, records] = pending_.nodes_[node->generation];
    place = node;
    ++records;
  }
  for (const auto& [node, links] : counted_) held.counted.push_back(node);
}

void NameChange::Bind(Seq seq, const Node& dir, std::string_view name, const Node& object) {
  Issued(seq, [&](Bindings& bindings) {
    bindings.Bind(seq, {dir.generation, name}, ObjectOf(object));
  });
}

void NameChange::Remove(Seq seq, const Node& dir, std::string_view name) {
  Issued(seq, [&](Bindings& bindings) { bindings.Remove(seq, {dir.generation, name}); });
}

void NameChange::Rename(Seq seq, const Node& from_dir, std::string_view from, const Node& to_dir,
                        std::string_view to, const Node& moved, const Node* left) {
  std::optional<Bindings::Object> stays;
  if (left != nullptr) stays = ObjectOf(*left);
  Issued(seq, [&](Bindings& bindings) {
    bindings.Rename(seq, {from_dir.generation, from}, {to_dir.generation, to}, ObjectOf(moved),
                    stays);
  });
}

}  // namespace salius
