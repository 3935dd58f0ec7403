// Extended attributes in replay. As with names, only their values at T count: a value that a later
// record replaced or removed needs no room beside the disk's present ones. A file system keeps an
// inode's attributes in little room (ext4: the rest of the inode, and one block). Whether they fit
// depends on the order in which they came. So correct attributes stay where they are.
//
// Threads: not thread safe.
#pragma once

#include "absl/status/status.h"
#include "recovery/replay/replay.h"
#include "recovery/replay/replay_plan.h"
#include "storage/backing.h"

namespace salius::recovery {

// Removes the attributes of `object`, open as `fd`, that it does not have at T.
absl::Status RemoveXattrs(Backing& backing, const ObjectPlan& object, int fd);

// Sets the attributes that it has, and the permission bits that follow from an ACL. Call it after
// the object's other records: a write removes file capabilities. `*refused` is the seq of a refused
// attribute, else 0. When that is the object's last record, the others are set, and the value
// before it is still there or in the records.
absl::Status SetXattrs(const ReplayContext& context, const ObjectPlan& object, int fd,
                       Seq* refused);

}  // namespace salius::recovery
