// The node ids that the kernel has, and how many lookups of each it owns.
//
// Each answer that names a node gives the kernel one lookup of it, which a FORGET gives back. The
// node has an id as long as the kernel owns a lookup. A node that is looked up again after its last
// FORGET gets another id; with the node's generation the pair is unique.
//
// Every lookup counted here is a pin of the node (client/volume/node.h), so a node that has an id
// lives. AddLookup and Forget of one node may run at the same time, because the kernel may forget a
// node while another answer names it: if Forget comes first, AddLookup makes a new id.
//
// Threads: any. Find takes no lock; the lock of the others is held before that of IdTable.
#pragma once

#include <cstdint>

#include "absl/synchronization/mutex.h"
#include "client/fuse/id_table.h"

namespace salius {

class Node;

class NodeIds {
 public:
  // The kernel's name for the root (FUSE_ROOT_ID).
  static constexpr uint64_t kRoot = 1;

  // Enters the root, whose id stays.
  explicit NodeIds(Node& root);

  // Counts one lookup of a node that the caller has pinned for it. Returns the node's id.
  uint64_t AddLookup(Node& node);

  // Returns the node with this id; null when the kernel does not own it.
  Node* Find(uint64_t id) const { return table_.Find(id); }

  // A node, and how many lookups Forget took off it: the caller must take as many pins off.
  struct Forgotten {
    Node* node = nullptr;
    uint64_t lookups = 0;
  };
  // Takes `lookups` off the node's count, but never more than it has. Takes the id back when none
  // is left. Returns no node for an unknown id, and for the root, whose lookups are not counted.
  Forgotten Forget(uint64_t id, uint64_t lookups);

 private:
  const Node* const root_;
  IdTable<Node> table_;
  // Guards the id and the count of each node, which lie in the node (Node::front_id,
  // front_lookups); the root's stay 0.
  absl::Mutex mutex_;
};

}  // namespace salius
