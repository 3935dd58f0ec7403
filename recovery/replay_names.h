// The name half of replay: makes every touched name what T says, by file id, from any starting
// point.
//
//   displace   a directory that stands under a wrong touched name moves to .salius/tmp/<id>; what
//   no record
//              knows moves to .salius/lost/. Now every directory edge left on the disk is one of
//              T's.
//   hidden     every file that lacks one of its names gets a link .salius/tmp/<id>: from here on no
//              file can lose its last name.
//   attach     top-down from the root: directories move from .salius/tmp to their place, files are
//   linked
//              over whatever file stands there.
//   remove     names that T does not have, then the directories that T does not have.
//   verify     every touched name is read again.
//
// No cycle can arise in attach: after displace the disk's directory edges are a subset of T's,
// which is a tree, and only edges of T are added.
//
// Threads: not thread safe.
#pragma once

#include "absl/status/status.h"
#include "recovery/objects.h"
#include "recovery/replay.h"
#include "recovery/replay_plan.h"

namespace salius::recovery {

// Errors: INTERNAL when a name did not end as planned; RESOURCE_EXHAUSTED; the file system's own.
absl::Status ReplayNames(const ReplayContext& context, const ReplayPlan& plan,
                         const Objects& objects);

}  // namespace salius::recovery
