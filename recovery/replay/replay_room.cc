#include "recovery/replay/replay_room.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <string>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_format.h"
#include "common/check.h"
#include "common/file.h"
#include "common/file_system.h"
#include "recovery/replay/refusal.h"
#include "recovery/replay/replay_data.h"
#include "storage/apply.h"
#include "storage/fs_calls.h"
#include "storage/volume_config.h"

namespace salius::recovery {
namespace {

// R63.
class RoomMaker {
 public:
  RoomMaker(const ReplayContext& context, const ReplayPlan& plan, const Objects& objects)
      : context_(context), backing_(*context.backing), plan_(plan), objects_(objects) {}

  absl::StatusOr<MadeRoom> Run() {
    SALIUS_RETURN_IF_ERROR(FindRemoved());
    SALIUS_RETURN_IF_ERROR(RemoveNames());
    SALIUS_RETURN_IF_ERROR(RemoveHidden());
    SALIUS_RETURN_IF_ERROR(CutOff());
    return made_;
  }

 private:
  // Finds the files to remove, by inode. Leaves out inodes that two ids lead to: a copy may have
  // the id of its first file until it is given its own.
  absl::Status FindRemoved() {
    for (const auto& [id, object] : plan_.objects) {
      if (!objects_.Has(id) || objects_.TypeOf(id) == S_IFDIR) continue;
      const absl::StatusOr<BackingFd> fd = objects_.Open(id, O_PATH);
      if (absl::IsNotFound(fd.status())) continue;
      SALIUS_RETURN_IF_ERROR(fd.status());
      SALIUS_ASSIGN_OR_RETURN(const struct stat st, backing_.StatAt(fd->get(), ""));
      if (!found_.insert(st.st_ino).second) ambiguous_.insert(st.st_ino);
      if (LostItsNames(object)) removed_.insert(st.st_ino);
    }
    for (const ino_t inode : ambiguous_) removed_.erase(inode);
    return absl::OkStatus();
  }

  // Whether the file has lost, for good, every name that a record gave it or took from it. A record
  // that may still be left out (a new object, a link, a directory's rename) removes no file's name.
  bool LostItsNames(const ObjectPlan& object) const {
    return object.fate != Fate::kBound && !plan_.left_out.contains(object.id) &&
           std::all_of(object.names.begin(), object.names.end(),
                       [this](const DirName& name) { return plan_.bindings.contains(name); });
  }

  absl::Status RemoveNames() {
    FileId dir = kNoFileId;
    absl::StatusOr<BackingFd> dirfd = BackingFd();
    for (const auto& [name, binding] : plan_.bindings) {
      if (name.dir != dir) {
        dirfd = objects_.Open(name.dir, O_RDONLY | O_DIRECTORY);
        dir = name.dir;
      }
      if (absl::IsNotFound(dirfd.status())) continue;
      SALIUS_RETURN_IF_ERROR(dirfd.status());
      // A missing target (overridden by --force) leaves its name unchanged.
      const bool lost = binding.target != kNoFileId && !objects_.Has(binding.target);
      if (lost && context_.force) continue;
      const absl::StatusOr<struct stat> there = backing_.StatAt(dirfd->get(), name.name);
      if (absl::IsNotFound(there.status())) continue;
      SALIUS_RETURN_IF_ERROR(there.status());
      if (!removed_.contains(there->st_ino)) continue;
      const absl::Status removed = backing_.Unlink(dirfd->get(), name.name, 0);
      SALIUS_RETURN_IF_ERROR(
          Done(removed, &made_.names, dirfd->get(),
               absl::StrFormat("name \"%s\" in directory %d", name.name, name.dir)));
    }
    return absl::OkStatus();
  }

  // Removes hidden links of files that no record knows, or that are certainly gone at T.
  absl::Status RemoveHidden() {
    for (const char* place : {kTmpDirName, kOpenDirName}) {
      SALIUS_ASSIGN_OR_RETURN(const BackingFd dir,
                              OpenSaliusDir(backing_, context_.salius_fd, place));
      SALIUS_ASSIGN_OR_RETURN(const std::vector<std::string> names, backing_.ListDir(dir.get()));
      for (const std::string& name : names) {
        SALIUS_ASSIGN_OR_RETURN(const Occupant there, OccupantAt(backing_, dir.get(), name));
        if (there.directory || there.id == kNoFileId || name != IdName(there.id)) continue;
        const auto object = plan_.objects.find(there.id);
        const bool unbound = object == plan_.objects.end() ? !plan_.left_out.contains(there.id)
                                                        : LostItsNames(object->second);
        if (!unbound) continue;
        const absl::Status removed = backing_.Unlink(dir.get(), name, 0);
        SALIUS_RETURN_IF_ERROR(Done(removed, &made_.files, dir.get(), "hidden file " + name));
      }
    }
    return absl::OkStatus();
  }

  absl::Status CutOff() {
    for (const auto& [id, object] : plan_.objects) {
      if (!object.needed || !objects_.Has(id)) continue;
      if (objects_.TypeOf(id) != S_IFREG) continue;  // replay reports it
      uint64_t end = UINT64_MAX;
      std::vector<const RecordView*> holes;
      for (const RecordView* record : object.ops) {
        const RecordHeader& header = record->header;
        if (header.op == Op::kTruncate) end = std::min(end, header.arg0);
        if (header.op == Op::kFallocate && (header.arg2 & FALLOC_FL_PUNCH_HOLE) != 0) {
          holes.push_back(record);
        }
      }
      if (end != UINT64_MAX || !holes.empty()) SALIUS_RETURN_IF_ERROR(CutOff(object, end, holes));
    }
    return absl::OkStatus();
  }

  // Cuts off the object behind `end`, and in holes that the session made. Replay does that again.
  absl::Status CutOff(const ObjectPlan& object, uint64_t end,
                      const std::vector<const RecordView*>& holes) {
    const absl::StatusOr<BackingFd> fd = objects_.Open(object.id, O_RDWR | O_NONBLOCK);
    if (absl::IsNotFound(fd.status())) return absl::OkStatus();  // it went with its last name
    SALIUS_RETURN_IF_ERROR(fd.status());
    SALIUS_ASSIGN_OR_RETURN(const struct stat before, backing_.StatAt(fd->get(), ""));
    if (ambiguous_.contains(before.st_ino)) return absl::OkStatus();
    const uint64_t size = static_cast<uint64_t>(before.st_size);
    // Blocks that were allocated behind its end are freed by a truncate to the present size.
    const bool behind = size == end || LosesItsEnd(object);
    absl::Status cut;
    if (size > end || (behind && end != UINT64_MAX)) {
      cut = backing_.Truncate(fd->get(), end);
      if (cut.ok() && behind) cut = backing_.Truncate(fd->get(), end);
    }
    for (const RecordView* hole : holes) {
      // Replay reports an error of a hole.
      static_cast<void>(ApplyData(backing_, fd->get(), hole->header, hole->body()));
    }
    SALIUS_ASSIGN_OR_RETURN(const struct stat after, backing_.StatAt(fd->get(), ""));
    if (cut.ok() && after.st_blocks >= before.st_blocks && size <= end) return absl::OkStatus();
    return Done(cut, &made_.files, fd->get(), absl::StrFormat("file %d", object.id));
  }

  // Judges a removal. One that finds no room itself may have it when the rest is done.
  absl::Status Done(const absl::Status& status, uint64_t* count, int fd, const std::string& what) {
    if (absl::IsResourceExhausted(status)) return absl::OkStatus();
    if (!status.ok()) return Explain(backing_, status, what, fd);
    ++*count;
    return context_.step(RecoveryStep::kReplayRemoved);
  }

  const ReplayContext& context_;
  Backing& backing_;
  const ReplayPlan& plan_;
  const Objects& objects_;
  absl::flat_hash_set<ino_t> found_;
  absl::flat_hash_set<ino_t> ambiguous_;  // found by two ids
  absl::flat_hash_set<ino_t> removed_;      // files that are there now and not at T
  MadeRoom made_;
};

}  // namespace

absl::StatusOr<MadeRoom> MakeRoom(const ReplayContext& context, const ReplayPlan& plan,
                                  const Objects& objects) {
  return RoomMaker(context, plan, objects).Run();
}

}  // namespace salius::recovery
