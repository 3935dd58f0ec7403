// Replay: brings the backing directory to the state of a plan (docs/recovery.md).
//
//   1. locate every object, and refuse if one is missing for good
//   2. rebuild the objects that the disk lost
//   3. run the records of every file
//   4. bring the names to their state at T
//
// Where there is no room for that, objects that T does not have are removed first, and replay
// begins again. Where the file system refuses a record for good, replay begins again without it.
// Nothing is synced here; the caller does that.
//
// Invariants
// - No object that T leaves bound ever loses its last name. Files get a hidden link in .salius/tmp
//   before any name changes; directories are moved, never removed and made again.
// - An object that no record knows (no id, or an id that the log does not mention) is never deleted
//   unless a record removed it (Binding::remove_unknown). In the way, it moves to .salius/lost/.
// - Cut off anywhere and run again with the same plan, it ends in the same tree.
//
// Threads: not thread safe; the caller holds the volume lock.
#pragma once

#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/ext4_watch.h"
#include "common/file.h"
#include "recovery/replay/objects.h"
#include "recovery/replay/replay_plan.h"
#include "recovery/replay/replay_result.h"
#include "recovery/report.h"
#include "storage/backing.h"

namespace salius::recovery {

// The environment of every part of replay. Descriptors and pointers are borrowed.
struct ReplayContext {
  Backing* backing = &LinuxBacking();  // of the descriptors; never null
  int root_fd = -1;
  int salius_fd = -1;
  bool force = false;
  std::function<absl::Status(RecoveryStep)> step;         // never null
  std::function<void(const RecoveryProgress&)> progress;  // never null
  RecoveryReport* report = nullptr;
  // When not null, CheckReplay() stores here the present or future path of each object of the plan.
  ObjectPaths* paths = nullptr;
  Ext4Watch* ext4 = nullptr;  // of the backing file system; null: it is not watched
};

// Plans `records` and calls `attempt` with the plan, once more without each record that it wants to
// leave out. Returns the plan that was carried out. The report has the records left out, and counts
// each change once. Errors: those of PlanReplay() and of `attempt`.
absl::StatusOr<ReplayPlan> ReplayRecords(
    absl::Span<const RecordView* const> records, RecoveryReport* report,
    const std::function<ReplayResult(const ReplayPlan&)>& attempt);

// Carries out the plan. Errors: DATA_LOSS when the disk lacks an object that T needs and the log
// cannot rebuild (only adopted ids were changed then); RESOURCE_EXHAUSTED when the disk is full
// even without the ballast and without the bytes that T removed and cut off; INTERNAL when the
// names do not end as planned; the file system's own.
ReplayResult Replay(const ReplayContext& context, const ReplayPlan& plan);

// Finds out whether Replay can be done at all; changes nothing. Errors: DATA_LOSS as above.
absl::Status CheckReplay(const ReplayContext& context, const ReplayPlan& plan);

// Runs `work`; when the disk is full, frees the ballast and runs it once more.
absl::Status WithSpace(const ReplayContext& context, const std::function<absl::Status()>& work);

// Opens a directory below .salius, making it when it is not there.
absl::StatusOr<BackingFd> OpenSaliusDir(Backing& backing, int salius_fd, const std::string& name);

// Moves `name` of `dirfd` to .salius/lost/ under a free name made of `label`, and reports it.
absl::Status MoveToLost(const ReplayContext& context, int dirfd, const std::string& name,
                        const std::string& label);

// Removes the remains of sessions and recoveries from .salius/open and .salius/tmp of a clean
// volume. Directories that are not empty go to .salius/lost/.
absl::Status CleanSaliusDir(const ReplayContext& context);

}  // namespace salius::recovery
