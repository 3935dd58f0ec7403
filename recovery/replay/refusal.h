// Changes that the file system refuses for good.
//
// A session that waits for the result of a change holds the lock of its object until it knows the
// outcome; for a name, the locks of its directories. After a refusal it holds the lock until the
// cancel is durable; only then does the caller get the error. So a refused change without a cancel
// is the last one of its object or directories, and no caller can have received success for it.
// Recovery may leave it out (ReplayResult::LeaveOut), and begins again without it.
//
// A record says whether its caller waits (kAwaited). Where it does not, the caller has its success
// already: such a record is never left out, and its refusal ends the recovery (ReplayRecords).
//
// It does so only for refusals that are permanent (too many links, no room among an inode's
// attributes). An obstacle that a user may remove (chattr +i, a quota, a full disk) stops recovery,
// which runs again later.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "common/ids.h"
#include "storage/backing.h"

namespace salius::recovery {

// Whether this error of a change, on the file system of `fd`, is one that the session must have met
// too. Replay makes the same call as the session did, and such a refusal is permanent.
enum class Change {
  kAttribute,  // an attribute record
  kXattr,      // one that sets an extended attribute
  kObject,     // an object is made, in .salius/tmp
  kNewName,    // a new object gets its name
  kName,       // any other name; a file goes through .salius/tmp, where the session never had it
};
bool RefusedForGood(Backing& backing, const absl::Status& error, int fd, Change change);

// Returns the error with `what`, the path of `fd` (negative: none), and the remedy.
absl::Status Explain(Backing& backing, const absl::Status& error, const std::string& what, int fd);

// Returns the report's line about record `seq`, which was left out because of `error`.
std::string LeftOutText(Seq seq, const absl::Status& error);

}  // namespace salius::recovery
