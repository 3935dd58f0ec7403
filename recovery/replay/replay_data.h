// The data half of replay: rebuilds lost objects and runs every file's records in order. Adjacent
// writes become one pwritev; one file is open at a time.
//
// Threads: not thread safe.
#pragma once

#include "absl/status/status.h"
#include "recovery/replay/objects.h"
#include "recovery/replay/replay.h"
#include "recovery/replay/replay_plan.h"
#include "recovery/replay/replay_result.h"

namespace salius::recovery {

// Returns OK when `objects` has every object that T needs, except those that can be rebuilt.
// Otherwise returns DATA_LOSS with their names. With force they are put into the report instead.
absl::Status CheckMissing(const ReplayContext& context, const ReplayPlan& plan,
                          const Objects& objects);

// Makes in .salius/tmp every needed object of `plan` that `objects` lacks and whose create record
// is in the log, and puts it into `objects`.
ReplayResult RebuildMissing(const ReplayContext& context, const ReplayPlan& plan, Objects* objects);

// Whether a later truncate cuts off bytes that the object's records write or allocate.
bool LosesItsEnd(const ObjectPlan& object);

// Runs the records of every needed object that `objects` has.
ReplayResult ReplayData(const ReplayContext& context, const ReplayPlan& plan,
                        const Objects& objects);

}  // namespace salius::recovery
