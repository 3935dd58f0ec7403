// Extended attributes in replay. As with names, only what they are at T counts: what a record set
// and a later one took back needs no room beside what the disk has already. A file system keeps an
// inode's in little room (ext4: what the inode leaves, and one block), and what fits depends on the
// order in which they came; so what is right already stays where it is.
//
// Threads: not thread safe.
#pragma once

#include "absl/status/status.h"
#include "recovery/replay.h"
#include "recovery/replay_plan.h"

namespace salius::recovery {

// Takes away those of `object`, open as `fd`, that it does not have at T.
absl::Status RemoveXattrs(const ObjectPlan& object, int fd);

// Sets those that it has, and the permission bits that follow from an ACL. To be called behind its
// other records: a write takes file capabilities away. When one is refused `*refused` is its seq,
// else 0; when that is the object's last record, the value before it is still there or in the records, and
// the others are set.
absl::Status SetXattrs(const ReplayContext& context, const ObjectPlan& object, int fd,
                       Seq* refused);

}  // namespace salius::recovery
