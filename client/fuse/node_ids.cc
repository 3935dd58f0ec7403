#include "client/fuse/node_ids.h"

#include <algorithm>

#include "common/check.h"

namespace salius {

NodeIds::NodeIds(Node& root) : root_(&root) {
  SALIUS_CHECK(table_.Insert(root) == kRoot, "the first number of a table is 1");
}

uint64_t NodeIds::AddLookup(Node& node) {
  if (&node == root_) return kRoot;
  const absl::MutexLock lock(&mutex_);
  Known& known = known_[&node];
  if (known.lookups++ == 0) known.id = table_.Insert(node);
  return known.id;
}

NodeIds::Forgotten NodeIds::Forget(uint64_t id, uint64_t lookups) {
  const absl::MutexLock lock(&mutex_);
  Node* const node = table_.Find(id);
  if (node == nullptr || node == root_) return {};
  const auto known = known_.find(node);
  const uint64_t taken = std::min(lookups, known->second.lookups);
  known->second.lookups -= taken;
  if (known->second.lookups == 0) {
    table_.Erase(id);
    known_.erase(known);
  }
  return {node, taken};
}

}  // namespace salius
