// The name half of replay: brings every touched name to its state at T, by file id, from any
// starting point.
//
//   displace   A directory under a wrong touched name moves to .salius/tmp/<id>. An object that no
//              record knows moves to .salius/lost/ (or is removed, if a record removed it). Now
//              every directory edge left on the disk is one of T's.
//   hidden     Every file that lacks one of its names gets a link .salius/tmp/<id>. From here on no
//              file can lose its last name.
//   attach     Top-down from the root, directories move from .salius/tmp to their place. Then files
//              get their names, and replace any file there.
//   remove     Names that T does not have are removed, then the directories that T does not have.
//   keep       With --force the directory of a name may be missing. An object that has no other
//              name at T moves to .salius/lost/.
//   verify     Every touched name is read again.
//
// No cycle can arise in attach: after displace the disk's directory edges are a subset of T's,
// which is a tree, and only edges of T are added.
//
// Threads: not thread safe.
#pragma once

#include "recovery/replay/objects.h"
#include "recovery/replay/replay.h"
#include "recovery/replay/replay_plan.h"
#include "recovery/replay/replay_result.h"

namespace salius::recovery {

// Carries out the names. Errors: INTERNAL when a name did not end as planned; RESOURCE_EXHAUSTED;
// the file system's own.
ReplayResult ReplayNames(const ReplayContext& context, const ReplayPlan& plan,
                         const Objects& objects);

}  // namespace salius::recovery
