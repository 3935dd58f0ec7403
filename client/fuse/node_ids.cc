#include "client/fuse/node_ids.h"

#include <algorithm>

#include "client/volume/node.h"
#include "common/check.h"

namespace salius {

NodeIds::NodeIds(Node& root) : root_(&root) {
  SALIUS_CHECK(table_.Insert(root) == kRoot, "the first number of a table is 1");
}

uint64_t NodeIds::AddLookup(Node& node) {
  if (&node == root_) return kRoot;
  const absl::MutexLock lock(&mutex_);
  if (node.front_lookups++ == 0) node.front_id = table_.Insert(node);
  return node.front_id;
}

NodeIds::Forgotten NodeIds::Forget(uint64_t id, uint64_t lookups) {
  const absl::MutexLock lock(&mutex_);
  Node* const node = table_.Find(id);
  if (node == nullptr || node == root_) return {};
  const uint64_t taken = std::min(lookups, node->front_lookups);
  node->front_lookups -= taken;
  if (node->front_lookups == 0) table_.Erase(id);
  return {node, taken};
}

}  // namespace salius
