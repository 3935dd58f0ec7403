// What a new object inherits from its directory: mode bits, group, POSIX ACLs. The kernel does this
// for a local file system; here it must be decided before the record is stamped, because a record
// says how the object ends up.
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

// The directory that an object is made in.
struct ParentFacts {
  mode_t mode = 0;
  gid_t gid = 0;
  std::string default_acl;  // value of kDefaultAclXattr; empty when there is none
};

struct Inherited {
  mode_t mode = 0;  // type and permission bits as they end up
  gid_t gid = 0;
  std::vector<std::pair<std::string, std::string>> xattrs;
};

// `mode` holds type and wanted permissions, umask not applied. `in_group`: says whether the caller
// is privileged or in a group (needed to keep S_ISGID). INVALID_ARGUMENT for an ACL that cannot be
// read.
struct CallerFacts {
  gid_t gid = 0;
  mode_t umask = 0;
  bool privileged = false;
  std::vector<gid_t> groups;
};
absl::StatusOr<Inherited> Inherit(const ParentFacts& parent, mode_t mode,
                                  const CallerFacts& caller);

}  // namespace salius
