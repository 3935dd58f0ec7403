#include "client/volume/pending_names.h"

#include <algorithm>
#include <utility>

#include "absl/synchronization/notification.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/check.h"

namespace salius {
namespace {

// File systems limit the links of a file, some of them to a hundred in one directory.
constexpr nlink_t kManyLinks = 100;
// They limit the directories in one: ext2 to 32,000, and an ext4 that was an ext3 to 65,000.
constexpr nlink_t kManyDirectories = 30'000;

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
  if (IsEmptyNow()) return std::nullopt;
  absl::MutexLock lock(&mu_);
  const std::optional<Bindings::Binding> found = bindings_.Find({dir.generation, name});
  if (!found.has_value()) return std::nullopt;
  if (!found->object.has_value()) return PinnedNode();
  return PinnedAt(found->object->key);
}

bool PendingNames::Touches(const Node& dir) {
  if (IsEmptyNow()) return false;
  absl::MutexLock lock(&mu_);
  return bindings_.Touches(dir.generation);
}

PinnedNode PendingNames::ParentOf(const Node& dir) {
  if (IsEmptyNow()) return PinnedNode();
  absl::MutexLock lock(&mu_);
  const std::optional<Bindings::Key> parent = bindings_.ParentOf(dir.generation);
  return parent.has_value() ? PinnedAt(*parent) : PinnedNode();
}

std::shared_ptr<const Bindings::Snapshot> PendingNames::SnapshotOf(const Node& dir) {
  if (IsEmptyNow()) return nullptr;
  absl::MutexLock lock(&mu_);
  if (!bindings_.Touches(dir.generation)) return nullptr;
  auto snapshot = std::make_unique<const Bindings::Snapshot>(bindings_.SnapshotOf(dir.generation));
  const size_t bytes = snapshot->bytes();
  listed_->fetch_add(bytes);
  return {snapshot.release(), [bytes, listed = listed_](const Bindings::Snapshot* ended) {
            delete ended;
            listed->fetch_sub(bytes);
          }};
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
  return bindings_.entries() >= bounds_.entries || bindings_.bytes() >= bounds_.bytes;
}

PendingNames::Size PendingNames::size() {
  absl::MutexLock lock(&mu_);
  return {.entries = bindings_.entries(), .bytes = bindings_.bytes()};
}

absl::Status PendingNames::NoteApplied(Seq seq) {
  std::vector<PinnedNode> freed;  // destroyed without the lock
  {
    absl::MutexLock lock(&mu_);
    applied_ = std::max(applied_, seq);
    bindings_.NoteApplied(seq);
    CountEntries();
    while (!held_.empty() && held_.begin()->first <= seq) {
      for (PinnedNode& node : held_.begin()->second) {
        {
          absl::MutexLock state(&node->state);
          --node->records().unapplied_names;
          ++node->records().applies;
        }
        const auto found = nodes_.find(node->generation);
        if (--found->second.second == 0) nodes_.erase(found);
        freed.push_back(std::move(node));
      }
      held_.erase(held_.begin());
    }
  }
  absl::Status settled;
  // An orphan's last descriptor may go with its node.
  std::vector<PinnedNode> orphans;
  for (PinnedNode& node : freed) {
    settled.Update(predictions_.Settle(*node, seq));
    absl::ReleasableMutexLock state(&node->state);
    const bool orphan = node->orphan;
    state.Release();
    if (orphan) orphans.push_back(std::move(node));
  }
  const size_t most = table_.path_fds().limit() / kFreeingPart;
  if (orphans.empty() || freeing_.load() + orphans.size() > most) return settled;
  auto chore = std::make_shared<std::vector<PinnedNode>>(std::move(orphans));
  absl::MutexLock lock(&mu_);
  if (chores_ == nullptr) return settled;
  freeing_.fetch_add(chore->size());
  chores_->Do([this, chore = std::move(chore)] {
    const size_t freed = chore->size();
    chore->clear();
    freeing_.fetch_sub(freed);
  });
  return settled;
}

void PendingNames::AwaitFreed(int64_t timeout_ms) {
  auto done = std::make_shared<absl::Notification>();  // the chore may come after the time-out
  {
    absl::MutexLock lock(&mu_);
    if (chores_ == nullptr) return;
    chores_->Do([done] { done->Notify(); });
  }
  done->WaitForNotificationWithTimeout(absl::Milliseconds(timeout_ms));
}

void PendingNames::EndChores() {
  std::unique_ptr<Chores> ended;
  absl::MutexLock lock(&mu_);
  ended = std::move(chores_);
}

NameChange::~NameChange() {
  if (counted_) TakeBack(nodes_.size());
}

void NameChange::TakeBack(size_t counted) {
  counted_ = false;
  for (const Touched& touched : absl::MakeSpan(nodes_).first(counted)) {
    Node& node = *touched.node;
    Seq applied = 0;
    {
      absl::MutexLock state(&node.state);
      --node.records().unapplied_names;
      applied = node.seen_records().applied_seq;
    }
    // It may be the last one. An error comes again with the next apply.
    static_cast<void>(pending_.predictions_.Settle(node, applied));
  }
}

absl::StatusOr<bool> NameChange::BeginEarly() {
  size_t counted = 0;
  for (const Touched& touched : nodes_) {
    Node& node = *touched.node;
    bool can = false;
    {
      absl::MutexLock state(&node.state);
      can = Predictions::CanBegin(node);
      if (can) ++node.records().unapplied_names;
    }
    absl::Status begun;
    if (can) {
      ++counted;
      begun = pending_.predictions_.Begin(node);
      can = begun.ok() && HasRoom(touched);
    }
    if (!can) {
      TakeBack(counted);
      if (!begun.ok()) return begun;
      return false;
    }
  }
  counted_ = true;
  return true;
}

bool NameChange::HasRoom(const Touched& touched) {
  if (touched.links <= 0) return true;
  absl::MutexLock state(&touched.node->state);
  const nlink_t links = touched.node->seen_records().prediction->attributes().st_nlink;
  return links < (touched.node->is_dir() ? kManyDirectories : kManyLinks);
}

// Some file systems do not count the names of directories: each has one link.
nlink_t NameChange::LinksAfter(const Touched& touched, nlink_t links) {
  const bool uncounted = touched.node->is_dir() && links == 1;
  if (uncounted) return touched.links == -2 ? 0 : 1;
  return links + touched.links;
}

void NameChange::Issued(const RecordHeader& header, absl::FunctionRef<void(Bindings&)> enter) {
  SALIUS_CHECK(counted_);
  counted_ = false;
  const Seq seq = header.seq;
  const timespec now = RecordTime(header);
  {
    absl::MutexLock lock(&pending_.mu_);
    for (const Touched& touched : nodes_) {
      absl::MutexLock state(&touched.node->state);
      NodeChanges::Records& records = touched.node->records();
      records.name_seq = std::max(records.name_seq, seq);
      Prediction& prediction = *records.prediction;
      const nlink_t links = LinksAfter(touched, prediction.attributes().st_nlink);
      if (touched.dir) {
        prediction.ChangeNames(seq, links, now);
      } else {
        prediction.SetLinks(seq, links, now);
      }
    }
    if (seq > pending_.applied_) {
      if (removed_ != nullptr) {
        absl::MutexLock state(&removed_->state);
        removed_->records().removal_seq = seq;
      }
      enter(pending_.bindings_);
      pending_.CountEntries();
      std::vector<PinnedNode>& held = pending_.held_[seq];
      for (const Touched& touched : nodes_) {
        Node& node = *touched.node;
        pending_.table_.Pin(node);
        held.emplace_back(pending_.table_, &node);
        auto& [place, records] = pending_.nodes_[node.generation];
        place = &node;
        ++records;
      }
      return;
    }
  }
  // It is applied already.
  TakeBack(nodes_.size());
}

absl::Status NameChange::NoteApplied(Seq seq) {
  if (!pending_.predictions_.on()) return absl::OkStatus();
  for (const Touched& touched : nodes_) {
    Node& node = *touched.node;
    {
      absl::MutexLock state(&node.state);
      if (node.seen_records().prediction == nullptr) continue;
    }
    // The locks that the caller holds keep other changes of the link count off, where it changes. A
    // directory that is only moved may get further subdirectories meanwhile.
    SALIUS_ASSIGN_OR_RETURN(const struct stat st, pending_.backing_.Stat(node.path_fd.get()));
    absl::MutexLock state(&node.state);
    Prediction* const prediction = node.records().prediction.get();
    if (prediction == nullptr) continue;
    const nlink_t links = touched.links == 0 ? prediction->attributes().st_nlink : st.st_nlink;
    if (touched.dir) {
      prediction->ChangeNames(seq, links, st.st_mtim);
    } else {
      prediction->SetLinks(seq, links, st.st_ctim);
    }
  }
  return absl::OkStatus();
}

void NameChange::Bind(const RecordHeader& header, const Node& dir, std::string_view name,
                      const Node& object) {
  Issued(header, [&](Bindings& bindings) {
    bindings.Bind(header.seq, {dir.generation, name}, ObjectOf(object));
  });
}

void NameChange::MakeNameless(const RecordHeader& header) {
  Issued(header, [](Bindings&) {});
}

void NameChange::Remove(const RecordHeader& header, const Node& dir, std::string_view name) {
  Issued(header, [&](Bindings& bindings) { bindings.Remove(header.seq, {dir.generation, name}); });
}

void NameChange::Rename(const RecordHeader& header, const Node& from_dir, std::string_view from,
                        const Node& to_dir, std::string_view to, const Node& moved,
                        const Node* left) {
  std::optional<Bindings::Object> stays;
  if (left != nullptr) stays = ObjectOf(*left);
  Issued(header, [&](Bindings& bindings) {
    bindings.Rename(header.seq, {from_dir.generation, from}, {to_dir.generation, to},
                    ObjectOf(moved), stays);
  });
}

}  // namespace salius
