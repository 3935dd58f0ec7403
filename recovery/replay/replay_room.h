// Makes room on a full disk. The session may have counted on the room of files that it removed and
// cut off, and a disk that is behind still has them. Only bytes that are certainly not there at T
// are removed.
//
// Threads: not thread safe.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "recovery/replay/objects.h"
#include "recovery/replay/replay.h"
#include "recovery/replay/replay_plan.h"

namespace salius::recovery {

struct MadeRoom {
  uint64_t names = 0;  // names of files, removed from the tree
  uint64_t files = 0;  // files cut off, or removed from .salius/open and .salius/tmp
};

// Removes names of files that T does not have, or that T gives to another file. Removes hidden
// links of files that T does not know or does not have. Cuts off, and makes holes, as records of
// the log do. A later replay ends as it would have ended without this. `objects`: all of the plan's
// were looked for, and none is missing (or --force overrode that). Errors: the file system's own,
// except that there is no room.
absl::StatusOr<MadeRoom> MakeRoom(const ReplayContext& context, const ReplayPlan& plan,
                                  const Objects& objects);

}  // namespace salius::recovery
