// Computes the mode bits, group and POSIX ACLs that a new object inherits from its directory. The
// kernel does this for a local file system. Here it must be decided before the record is stamped,
// because a record has the object's final attributes.
//
// pure: no thread, lock, socket or clock.
#pragma once

#include <sys/types.h>

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace salius {

// The directory in which an object is made.
struct ParentFacts {
  mode_t mode = 0;
  gid_t gid = 0;
  std::string default_acl;  // value of kDefaultAclXattr; empty when there is none
};

struct Inherited {
  mode_t mode = 0;  // final type and permission bits
  gid_t gid = 0;
  std::vector<std::pair<std::string, std::string>> xattrs;
};

// The caller that makes the object. To keep S_ISGID on a group-executable file it must be
// privileged or in the file's group.
struct CallerFacts {
  gid_t gid = 0;
  mode_t umask = 0;
  bool privileged = false;
  std::vector<gid_t> groups;  // supplementary
};
// Returns the attributes of the new object. `mode`: type and wanted permissions, umask not applied.
// INVALID_ARGUMENT for a default ACL that cannot be read.
absl::StatusOr<Inherited> Inherit(const ParentFacts& parent, mode_t mode,
                                  const CallerFacts& caller);

}  // namespace salius
