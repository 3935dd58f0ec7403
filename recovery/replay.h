// Replay: makes the backing directory what a plan says (docs/recovery.md). Order: locate
// everything, refuse if something is missing for good, rebuild what the disk lost, run the records
// of every file, then the names. Where there is no room for that, what T does not have goes first.
// Nothing is synced here; the caller does that.
//
// Invariants
// - No object that T leaves bound ever loses its last name: files get a hidden link in .salius/tmp
// before
//   any name changes, directories are moved, never removed and made again.
// - What no record knows (no id, or an id that the log does not mention) is never deleted: when it
// stands
//   in the way it is moved to .salius/lost/.
// - Cut off anywhere and run again with the same plan, it ends in the same tree.
//
// Threads: not thread safe; the caller holds the volume lock.
#pragma once

#include <functional>
#include <string>

#include "absl/status/status.h"
#include "common/file.h"
#include "recovery/objects.h"
#include "recovery/recovery.h"
#include "recovery/replay_plan.h"

namespace salius::recovery {

// What every part of replay works with. Descriptors and pointers are borrowed.
struct ReplayContext {
  int root_fd = -1;
  int salius_fd = -1;
  bool force = false;
  std::function<absl::Status(RecoveryStep)> step;         // never null
  std::function<void(const RecoveryProgress&)> progress;  // never null
  RecoveryReport* report = nullptr;
  // When not null, CheckReplay() puts there where each object of the plan is, or will be.
  ObjectPaths* paths = nullptr;
  Ext4Watch* ext4 = nullptr;  // of the backing file system; null: it is not watched
};

// Errors: DATA_LOSS when the disk lacks something that T needs and the log cannot rebuild (nothing
// was changed then but adopted ids); RESOURCE_EXHAUSTED when the disk is full even without the
// ballast and what T removed and cut off; INTERNAL when the names do not end as planned; the file
// system's own.
absl::Status Replay(const ReplayContext& context, const ReplayPlan& plan);

// The part of Replay that finds out whether it can be done at all; changes nothing. Errors:
// DATA_LOSS as above.
absl::Status CheckReplay(const ReplayContext& context, const ReplayPlan& plan);

// Runs `work`; when it fails for want of space, frees the ballast and runs it once more.
absl::Status WithSpace(const ReplayContext& context, const std::function<absl::Status()>& work);

// Opens a directory below .salius, making it when it is not there.
absl::StatusOr<UniqueFd> OpenSaliusDir(int salius_fd, const std::string& name);

// Moves `name` of `dirfd` to .salius/lost/ under a free name made of `label`, and reports it.
absl::Status MoveToLost(const ReplayContext& context, int dirfd, const std::string& name,
                        const std::string& label);

// Removes what sessions and recoveries leave in .salius/open and .salius/tmp of a clean volume.
// Directories that are not empty go to .salius/lost/.
absl::Status CleanSaliusDir(const ReplayContext& context);

}  // namespace salius::recovery
