// The names of a volume whose records are issued but not applied (Bindings), with the nodes that
// these records need. A name operation that returns before its record is durable leaves its result
// here; look-ups, listings and checks ask here before they ask the disk.
//
// Each name operation is one NameChange. It counts the operation on its nodes before the record is
// issued, and keeps the nodes alive until the record is applied. Their link counts and times are
// predicted meanwhile (Predictions).
//
// Threads: any. Under the lock only a node's `state` is taken.
#pragma once

#include <sys/stat.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "client/volume/bindings.h"
#include "client/volume/chores.h"
#include "client/volume/node.h"
#include "client/volume/predictions.h"
#include "common/ids.h"
#include "log/record.h"
#include "storage/backing.h"

namespace salius {

class PendingNames {
 public:
  // Bounds of the overlay. At them an operation waits until its record is applied.
  struct Bounds {
    size_t entries = 100'000;
    size_t bytes = size_t{32} << 20;  // of memory, estimated
    // Bytes of the entries that listings keep. Beyond it a listing waits before it begins. Without a
    // bound any program that opens directories could use up the memory.
    size_t listed_bytes = size_t{64} << 20;
  };
  // The part of the nodes' descriptors that files may hold whose blocks another thread is to free:
  // they may be removed faster than that.
  static constexpr size_t kFreeingPart = 8;

  PendingNames(Backing& backing, NodeTable& table, Predictions& predictions, const Bounds& bounds)
      : backing_(backing), table_(table), predictions_(predictions), bounds_(bounds) {}
  PendingNames(const PendingNames&) = delete;
  PendingNames& operator=(const PendingNames&) = delete;

  // Returns the object of a name, empty when the name is removed; nothing when the disk is right.
  std::optional<PinnedNode> Find(const Node& dir, std::string_view name);
  // Returns whether a name of the directory is pending.
  bool Touches(const Node& dir);
  // Returns the directory in which a directory is; empty when the disk is right.
  PinnedNode ParentOf(const Node& dir);
  // Returns the entries of a directory for a listing that begins; null when it has none.
  std::shared_ptr<const Bindings::Snapshot> SnapshotOf(const Node& dir);
  // Returns whether another listing must wait for its directory: others keep too many entries.
  bool ListingsAreFull() const { return listed_->load() >= bounds_.listed_bytes; }
  // Returns whether a directory is empty. The caller holds its `names`.
  absl::StatusOr<bool> IsEmpty(const Node& dir);
  // Returns whether the bounds are reached.
  bool IsFull();
  // The size of the overlay.
  struct Size {
    size_t entries = 0;
    size_t bytes = 0;  // of memory, estimated
  };
  Size size();

  // Notes that the name record `seq` is applied, and all before it. An error is the disk's.
  absl::Status NoteApplied(Seq seq);
  // Waits until the files are freed that applied records removed, for `timeout_ms` at most.
  void AwaitFreed(int64_t timeout_ms);
  // Ends the thread that frees removed files; after that the caller of NoteApplied frees them.
  void EndChores();

 private:
  friend class NameChange;

  // Returns whether no name is pending, without the lock. A thread sees its own entries, and after
  // an entry has gone, what the disk got in its place.
  bool IsEmptyNow() const { return entries_.load(std::memory_order_acquire) == 0; }
  // Puts the number of entries where IsEmptyNow finds it. Called at each change of `bindings_`.
  void CountEntries() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    entries_.store(bindings_.entries(), std::memory_order_release);
  }
  PinnedNode PinnedAt(Bindings::Key key) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  Backing& backing_;
  NodeTable& table_;
  Predictions& predictions_;
  const Bounds bounds_;
  absl::Mutex mu_;
  Bindings bindings_ ABSL_GUARDED_BY(mu_);
  std::atomic<size_t> entries_{0};        // of `bindings_`
  // Bytes of the snapshots that are kept, estimated. They may outlive this.
  const std::shared_ptr<std::atomic<size_t>> listed_ = std::make_shared<std::atomic<size_t>>(0);
  Seq applied_ ABSL_GUARDED_BY(mu_) = 0;  // the last name record that was
  std::map<Seq, std::vector<PinnedNode>> held_ ABSL_GUARDED_BY(mu_);  // of each record
  // The nodes in `held_`, with the number of records that hold each.
  absl::flat_hash_map<Bindings::Key, std::pair<Node*, size_t>> nodes_ ABSL_GUARDED_BY(mu_);
  std::atomic<size_t> freeing_{0};  // the files that `chores_` is to free
  // Frees files whose last name is gone: for a large one the file system takes seconds.
  std::unique_ptr<Chores> chores_ ABSL_GUARDED_BY(mu_) = std::make_unique<Chores>();
};

// One name operation, from its checks until its record is issued, or else applied. The caller holds
// the locks of the directories, and `stream` of every file whose link count changes.
class NameChange {
 public:
  explicit NameChange(PendingNames& pending) : pending_(pending) {}
  // Takes the counts back unless the record was issued.
  ~NameChange();
  NameChange(const NameChange&) = delete;
  NameChange& operator=(const NameChange&) = delete;

  // Add a node that the record names: a directory whose names it changes, or an object a name of
  // which it changes. `links`: the change of its link count. A node may be added once as each.
  void AddDir(Node& node, int links) { nodes_.push_back({&node, links, true}); }
  void AddObject(Node& node, int links) { nodes_.push_back({&node, links, false}); }
  // Notes that the record takes the last name of a node.
  void SetRemoved(Node& node) { removed_ = &node; }

  // Counts the operation on its nodes: its record will not be waited for. Returns false, without
  // effect, when the record must be waited for: a node's attributes cannot be predicted, or it may
  // have too many links.
  absl::StatusOr<bool> BeginEarly();
  // Enter what the issued record does to names (Bindings), once, after BeginEarly.
  void Bind(const RecordHeader& header, const Node& dir, std::string_view name, const Node& object);
  void Remove(const RecordHeader& header, const Node& dir, std::string_view name);
  void MakeNameless(const RecordHeader& header);
  // `left`: what `from` leads to afterwards; null: nothing.
  void Rename(const RecordHeader& header, const Node& from_dir, std::string_view from,
              const Node& to_dir, std::string_view to, const Node& moved, const Node* left);
  // Without BeginEarly: brings predictions up to date after the record was applied.
  absl::Status NoteApplied(Seq seq);

 private:
  struct Touched {
    Node* node;
    int links;
    bool dir;  // its names change
  };

  void Issued(const RecordHeader& header, absl::FunctionRef<void(Bindings&)> enter);
  void TakeBack(size_t counted);
  // Returns whether every file system permits the change of the node's link count.
  static bool HasRoom(const Touched& touched);
  static nlink_t LinksAfter(const Touched& touched, nlink_t links);

  PendingNames& pending_;
  std::vector<Touched> nodes_;
  Node* removed_ = nullptr;
  bool counted_ = false;
};

}  // namespace salius
