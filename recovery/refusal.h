// What the file system refuses for good.
//
// A session that logs a change which may be refused holds the lock of its object (of its
// directories, for a name) until it knows the outcome, and when it was refused, until the cancel is
// durable; only then is the caller told. So a refused change without a cancel is the last one of
// its object or directories, and nobody can have been told that it succeeded: recovery may leave it
// out, and begins again without it. It does so only for what cannot pass by itself (too many links,
// no room among an inode's attributes). What somebody may take away (chattr +i, a quota, a full
// disk) stops recovery, which runs again later.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "log/record.h"
#include "recovery/recovery.h"
#include "recovery/replay_plan.h"

namespace salius::recovery {

// Whether this error of a change, on the file system of `fd`, is one that the session must have met
// too: replay makes the same call then as the session did, and what it refuses does not pass by
// itself.
enum class Change {
  kAttribute,  // an attribute record
  kXattr,      // one that sets an extended attribute
  kObject,     // an object is made, in .salius/tmp
  kNewName,    // what was made gets its name
  kName,  // any other name; a file on its way stands in .salius/tmp, where the session never had it
};
bool RefusedForGood(const absl::Status& error, int fd, Change change);

// The error, saying that record `seq` is to be left out; and whether one says so.
absl::Status LeaveOut(const absl::Status& error, Seq seq);
bool SaysLeaveOut(const absl::Status& error);

// The error with `what` in front of it, the path of `fd` (negative: none), and what to do about it.
absl::Status Explain(const absl::Status& error, const std::string& what, int fd);

// Plans `records` and calls `replay` with the plan, again without each record that it wants left
// out. Returns the plan that was carried out. Those left out are in the report.
absl::StatusOr<ReplayPlan> ReplayWhatIsAccepted(
    absl::Span<const RecordView* const> records, RecoveryReport* report,
    const std::function<absl::Status(const ReplayPlan&)>& replay);

}  // namespace salius::recovery
