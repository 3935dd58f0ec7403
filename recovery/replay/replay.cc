#include "recovery/replay/replay.h"

#include <stdio.h>
#include <fcntl.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/check.h"
#include "common/file_system.h"
#include "common/log.h"
#include "recovery/replay/refusal.h"
#include "recovery/replay/replay_data.h"
#include "recovery/replay/replay_names.h"
#include "recovery/replay/replay_room.h"
#include "storage/apply.h"
#include "storage/fs_calls.h"
#include "storage/volume_config.h"

namespace salius::recovery {
namespace {

// Frees the ballast's blocks and its inode. The sync makes them usable at once: a journaling file
// system frees blocks with the commit of the transaction.
absl::Status FreeBallast(Backing& backing, int salius_fd) {
  SALIUS_RETURN_IF_ERROR(backing.Unlink(salius_fd, kBallastFileName, 0));
  return backing.Fsync(salius_fd);
}

absl::Status LocateAll(const ReplayContext& context, const ReplayPlan& plan, bool give_ids,
                       Objects* objects) {
  context.progress({"locate", 0, 0, "objects"});
  const absl::Status located = objects->Locate(plan, give_ids, [&](uint64_t seen) {
    context.progress({"locate", seen, 0, "objects"});
  });
  context.report->tree_scanned = objects->scanned();
  return located;
}

// Makes room. It keeps no descriptor, which would keep the removed files' blocks.
absl::StatusOr<MadeRoom> MakeRoomFor(const ReplayContext& context, const ReplayPlan& plan) {
  // The failure may have come before all objects were found.
  Objects objects(*context.backing, context.root_fd, context.salius_fd);
  SALIUS_RETURN_IF_ERROR(LocateAll(context, plan, /*give_ids=*/false, &objects));
  if (!context.force) SALIUS_RETURN_IF_ERROR(CheckMissing(context, plan, objects));
  return MakeRoom(context, plan, objects);
}

ReplayResult ReplayAll(const ReplayContext& context, const ReplayPlan& plan) {
  Objects objects(*context.backing, context.root_fd, context.salius_fd);
  SALIUS_RETURN_IF_ERROR(
      WithSpace(context, [&] { return LocateAll(context, plan, /*give_ids=*/true, &objects); }));
  SALIUS_RETURN_IF_ERROR(CheckMissing(context, plan, objects));
  SALIUS_RETURN_UNLESS_DONE(RebuildMissing(context, plan, &objects));
  SALIUS_RETURN_UNLESS_DONE(ReplayData(context, plan, objects));
  return ReplayNames(context, plan, objects);
}

// Sets the report back to `before` an attempt, so that the next attempt counts each change once.
// Objects that the attempt moved, the ballast that it used and records left out stay reported.
void CountAgain(const RecoveryReport& before, RecoveryReport* report) {
  RecoveryReport again = before;
  again.lost_and_found = std::move(report->lost_and_found);
  again.ballast_used = report->ballast_used;
  again.refused = std::move(report->refused);
  *report = std::move(again);
}

// Returns the path of an object on the disk; "" when no name leads to it.
std::string PathNow(Backing& backing, const Objects& objects, FileId id, const std::string& root) {
  const absl::StatusOr<BackingFd> fd = objects.Open(id, O_PATH | O_NOFOLLOW);
  const absl::StatusOr<std::string> path =
      fd.ok() ? backing.PathOf(fd->get()) : absl::StatusOr<std::string>(fd.status());
  if (!path.ok() || !absl::StartsWith(*path, root + "/")) return "";
  std::string below = path->substr(root.size() + 1);
  // Ignore a hidden link, or one that the kernel marks "(deleted)".
  const bool hidden = absl::StartsWith(below, absl::StrCat(kSaliusDir, "/"));
  return hidden || absl::EndsWith(below, " (deleted)") ? "" : below;
}

// Fills context.paths: a present object's present path, the future path of a missing one.
void FindPaths(const ReplayContext& context, const ReplayPlan& plan, const Objects& objects) {
  const absl::StatusOr<std::string> root = context.backing->PathOf(context.root_fd);
  if (!root.ok()) return;
  ObjectPaths& paths = *context.paths;
  for (const auto& [id, object] : plan.objects) {
    if (id == kRootFileId || !objects.Has(id)) continue;
    if (std::string path = PathNow(*context.backing, objects, id, *root); !path.empty())
      paths[id] = std::move(path);
  }
  // An object may be made in a directory that is itself made: repeat until no path is added.
  for (bool found = true; found;) {
    found = false;
    for (const auto& [id, object] : plan.objects) {
      if (paths.contains(id) || object.names.empty()) continue;
      const DirName& name = object.names.front();
      const auto dir = paths.find(name.dir);
      if (name.dir != kRootFileId && dir == paths.end()) continue;
      paths[id] = name.dir == kRootFileId ? name.name : absl::StrCat(dir->second, "/", name.name);
      found = true;
    }
  }
}

// Returns whether a caller waited for the result of record `seq`. Without that it has its success.
bool HasAwaited(absl::Span<const RecordView* const> records, Seq seq) {
  const auto record = std::lower_bound(
      records.begin(), records.end(), seq,
      [](const RecordView* at, Seq wanted) { return at->seq() < wanted; });
  SALIUS_CHECK(record != records.end() && (*record)->seq() == seq);
  // No allocation that may be refused returns early.
  const RecordHeader& header = (*record)->header;
  return IsDataOp(header.op) || header.arg2 == kAwaited;
}

}  // namespace

absl::Status WithSpace(const ReplayContext& context, const std::function<absl::Status()>& work) {
  absl::Status status = work();
  // R63
  if (!absl::IsResourceExhausted(status) || context.report->ballast_used) return status;
  const absl::Status freed = FreeBallast(*context.backing, context.salius_fd);
  if (absl::IsNotFound(freed)) return status;
  SALIUS_RETURN_IF_ERROR(freed);
  context.report->ballast_used = true;
  return work();
}

absl::StatusOr<BackingFd> OpenSaliusDir(Backing& backing, int salius_fd, const std::string& name) {
  const absl::Status made = backing.MkdirAt(salius_fd, name, 0700);
  if (!made.ok() && !absl::IsAlreadyExists(made)) return made;
  return backing.OpenAt(salius_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
}

absl::Status MoveToLost(const ReplayContext& context, int dirfd, const std::string& name,
                        const std::string& label) {
  SALIUS_ASSIGN_OR_RETURN(const BackingFd lost,
                          OpenSaliusDir(*context.backing, context.salius_fd, kLostDirName));
  // Leave room for the number within NAME_MAX.
  const std::string stem = label.substr(0, 240);
  for (int number = 0; number < 1'000'000; ++number) {
    const std::string free_name = number == 0 ? stem : absl::StrFormat("%s.%d", stem, number);
    const absl::Status moved =
        context.backing->Rename(dirfd, name, lost.get(), free_name, RENAME_NOREPLACE);
    if (absl::IsAlreadyExists(moved)) continue;
    SALIUS_RETURN_IF_ERROR(moved);
    context.report->lost_and_found.push_back(free_name);
    return absl::OkStatus();
  }
  return absl::ResourceExhaustedError("no free name in .salius/lost for " + label);
}

absl::Status CleanSaliusDir(const ReplayContext& context) {  // R72, R82
  for (const char* place : {kTmpDirName, kOpenDirName}) {
    SALIUS_ASSIGN_OR_RETURN(const BackingFd dir,
                            OpenSaliusDir(*context.backing, context.salius_fd, place));
    SALIUS_ASSIGN_OR_RETURN(const std::vector<std::string> names,
                            context.backing->ListDir(dir.get()));
    for (const std::string& name : names) {
      SALIUS_ASSIGN_OR_RETURN(const Occupant there, OccupantAt(*context.backing, dir.get(), name));
      absl::Status removed =
          context.backing->Unlink(dir.get(), name, there.directory ? AT_REMOVEDIR : 0);
      if (there.directory && fs::IsNotEmpty(removed)) {
        removed = MoveToLost(context, dir.get(), name, absl::StrFormat("%s-%s", place, name));
      }
      SALIUS_RETURN_IF_ERROR(removed);
    }
  }
  return absl::OkStatus();
}

absl::Status CheckReplay(const ReplayContext& context, const ReplayPlan& plan) {
  Objects objects(*context.backing, context.root_fd, context.salius_fd);
  SALIUS_RETURN_IF_ERROR(LocateAll(context, plan, /*give_ids=*/false, &objects));
  if (context.paths != nullptr) FindPaths(context, plan, objects);
  return CheckMissing(context, plan, objects);
}

ReplayResult Replay(const ReplayContext& context, const ReplayPlan& plan) {
  const RecoveryReport before = *context.report;
  const ReplayResult replayed = ReplayAll(context, plan);
  if (replayed.kind() != ReplayResult::Kind::kNoRoom) return replayed;  // R63 follows
  // The session may have counted on the room of files that it had removed and cut off, which this
  // disk still has.
  SALIUS_ASSIGN_OR_RETURN(const MadeRoom made, MakeRoomFor(context, plan));
  if (made.names + made.files == 0) return replayed;
  SALIUS_RETURN_IF_ERROR(context.backing->Fsync(context.salius_fd));  // as FreeBallast
  CountAgain(before, context.report);
  context.report->names_removed += made.names;
  return ReplayAll(context, plan);
}

absl::StatusOr<ReplayPlan> ReplayRecords(
    absl::Span<const RecordView* const> records, RecoveryReport* report,
    const std::function<ReplayResult(const ReplayPlan&)>& attempt) {
  absl::flat_hash_set<Seq> left_out;
  const RecoveryReport before = *report;
  while (true) {
    SALIUS_ASSIGN_OR_RETURN(ReplayPlan plan, PlanReplay(records, left_out));
    const ReplayResult result = attempt(plan);
    // R60
    if (result.kind() != ReplayResult::Kind::kLeaveOut || !HasAwaited(records, result.seq()) ||
        !left_out.insert(result.seq()).second) {
      SALIUS_RETURN_IF_ERROR(result.status());
      return plan;
    }
    CountAgain(before, report);
    report->refused.push_back(LeftOutText(result.seq(), result.status()));
    SLOG_WARN("left out, as it was refused to its caller: {}", report->refused.back());
  }
}

}  // namespace salius::recovery
