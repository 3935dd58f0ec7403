// Room on a full disk: the session may have counted on the room of what it removed and cut off, and
// a disk that is behind has that again. Only what is certainly not there at T goes.
//
// Threads: not thread safe.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "recovery/objects.h"
#include "recovery/replay.h"
#include "recovery/replay_plan.h"

namespace salius::recovery {

struct MadeRoom {
  uint64_t names = 0;  // of files, removed from the tree
  uint64_t files = 0;  // cut off, or removed from .salius/open and .salius/tmp
};

// Removes files' names that T does not have, or has of another file, and hidden links of files that
// T does not know or does not have; cuts off, and makes holes, as records of the log do. Replay,
// begun again behind it, ends as it would have. `objects`: all of the plan's were looked for, and
// none is missing (or was forced past). Errors: the file system's own, but for want of room.
absl::StatusOr<MadeRoom> MakeRoom(const ReplayContext& context, const ReplayPlan& plan,
                                  const Objects& objects);

}  // namespace salius::recovery
