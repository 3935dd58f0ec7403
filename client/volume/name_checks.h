// The checks that a name operation makes before it is stamped: what the kernel would refuse must
// fail before there is a record.
//
// Threads: any; the callers hold the `names` of the directories, except for the syntax.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "client/volume/health.h"
#include "client/volume/node.h"
#include "client/volume/pending_names.h"
#include "storage/backing.h"

namespace salius {

class NameChecks {
 public:
  NameChecks(Backing& backing, NodeTable& table, PendingNames& pending, const Health& health)
      : backing_(backing), table_(table), pending_(pending), health_(health) {}

  // Returns whether the name is `.salius` in the root, which does not exist for callers.
  bool IsHidden(const Node& dir, std::string_view name) const;
  // Make the checks that need no look at the disk; `dots` is the errno for "." and "..".
  absl::Status NewNameSyntax(const Node& dir, std::string_view name) const;
  absl::Status OldNameSyntax(const Node& dir, std::string_view name, int dots) const;
  // Refuses a name that exists, and a directory that takes no new name.
  absl::Status NewName(Node& dir, const std::string& name) const;
  // Refuses to remove `victim` from `dir` if applying would refuse it.
  absl::Status Removable(const Node& dir, const Node& victim) const;
  // Refuses a rename of `moved` to a name of `to_dir` that is `other`'s (null: nothing has it).
  // `how`: 0, RENAME_NOREPLACE or RENAME_EXCHANGE.
  absl::Status Rename(Node& from_dir, Node& to_dir, Node& moved, Node* other, uint32_t how) const;

 private:
  // Returns whether the directory `below` is `node` or lies in it.
  absl::StatusOr<bool> Contains(const Node& node, const Node& below) const;
  // Refuses a directory that was removed.
  absl::Status NotRemoved(Node& dir) const;

  Backing& backing_;
  NodeTable& table_;
  PendingNames& pending_;
  const Health& health_;
};

}  // namespace salius
