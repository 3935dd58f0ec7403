#include "recovery/replay/replay_names.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <deque>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_format.h"
#include "common/check.h"
#include "common/file.h"
#include "common/file_system.h"
#include "recovery/replay/refusal.h"
#include "storage/apply.h"
#include "storage/fs_calls.h"
#include "storage/volume_config.h"

namespace salius::recovery {
namespace {

class NameReplay {
 public:
  NameReplay(const ReplayContext& context, const ReplayPlan& plan, const Objects& objects,
             BackingFd tmp)
      : context_(context),
        backing_(*context.backing),
        plan_(plan),
        objects_(objects),
        tmp_(std::move(tmp)) {
    for (const auto& [name, binding] : plan.bindings) targets_.insert(binding.target);
  }

  ReplayResult Run() {
    SALIUS_RETURN_UNLESS_DONE(
        ForEachName([this](int dirfd, const Entry& entry) { return Displace(dirfd, entry); }));
    SALIUS_RETURN_UNLESS_DONE(
        ForEachName([this](int dirfd, const Entry& entry) { return Hide(dirfd, entry); },
                    /*as_session=*/true));
    SALIUS_RETURN_IF_ERROR(HideOrphans());
    SALIUS_RETURN_UNLESS_DONE(AttachAll());
    SALIUS_RETURN_UNLESS_DONE(
        ForEachName([this](int dirfd, const Entry& entry) { return Remove(dirfd, entry); }));
    SALIUS_RETURN_IF_ERROR(RemoveDeadDirectories());
    SALIUS_RETURN_IF_ERROR(KeepOrphans());
    SALIUS_RETURN_UNLESS_DONE(
        ForEachName([this](int dirfd, const Entry& entry) { return Verify(dirfd, entry); }));
    return SetTimes();
  }

 private:
  using Entry = std::pair<const DirName, Binding>;

  // Calls `work` for every touched name whose directory is there, with the directory open.
  // `as_session`: the file system can refuse this work for the reasons for which it refused the
  // session's.
  template <typename Work>
  ReplayResult ForEachName(const Work& work, bool as_session = false) {
    auto at = plan_.bindings.begin();
    while (at != plan_.bindings.end()) {
      const FileId dir = at->first.dir;
      absl::StatusOr<BackingFd> fd = OpenDirectory(dir);
      if (!fd.ok() && !absl::IsNotFound(fd.status())) return fd.status();
      for (; at != plan_.bindings.end() && at->first.dir == dir; ++at) {
        if (!fd.ok()) continue;
        SALIUS_RETURN_UNLESS_DONE(Judge(work(fd->get(), *at), fd->get(), *at, as_session));
      }
    }
    return absl::OkStatus();
  }

  // Decides about work on a name: done, stop (R61), make room (R63), or leave the record out (R60).
  ReplayResult Judge(const absl::Status& error, int dirfd, const Entry& entry,
                     bool as_session) const {
    if (error.ok()) return error;
    const absl::Status explained = Explain(
        backing_, error,
        absl::StrFormat("name \"%s\" in directory %d", entry.first.name, entry.first.dir), dirfd);
    const Seq seq = entry.second.seq;
    const auto object = plan_.objects.find(entry.second.target);
    const bool made = object != plan_.objects.end() && object->second.create.has_value() &&
                      object->second.create_seq == seq;
    bool last = made ? plan_.MayLeaveOutCreate(object->second) : plan_.last_names.contains(seq);
    // The file may have too many links. Only a link can have been refused for that, and it was not
    // if the session made another change of the file afterwards.
    if (!made && StatusErrno(error) == EMLINK && objects_.Has(entry.second.target) &&
        !IsDirectory(entry.second.target)) {
      last = last && object != plan_.objects.end() && object->second.last_seq == seq;
    }
    return as_session && last &&
                   RefusedForGood(backing_, error, dirfd, made ? Change::kNewName : Change::kName)
               ? ReplayResult::LeaveOut(explained, seq)
               : explained;
  }

  absl::StatusOr<BackingFd> OpenDirectory(FileId dir) const {
    return objects_.Open(dir, O_RDONLY | O_DIRECTORY);
  }

  // Whether the name can be enforced: a missing target (overridden by --force) leaves it unchanged.
  bool Enforceable(const Binding& binding) const {
    return binding.target == kNoFileId || objects_.Has(binding.target);
  }
  bool IsDirectory(FileId id) const { return objects_.TypeOf(id) == S_IFDIR; }

  // Whether T keeps the object, but under none of the touched names. It came to the present name by
  // hand, or by a record that T leaves out.
  bool IsMisplaced(FileId id) const {
    const auto object = plan_.objects.find(id);
    return object != plan_.objects.end() && object->second.fate == Fate::kBound &&
           !targets_.contains(id);
  }

  static std::string Label(const DirName& name) {
    return absl::StrFormat("%s-%s", IdName(name.dir), name.name);
  }

  // Counts the names of the file that are removed at the end of the recovery.
  absl::StatusOr<nlink_t> HiddenLinks(FileId id, ino_t inode) const {
    nlink_t links = 0;
    for (const char* place : {kTmpDirName, kOpenDirName}) {
      SALIUS_ASSIGN_OR_RETURN(const BackingFd dir,
                              OpenSaliusDir(backing_, context_.salius_fd, place));
      const absl::StatusOr<struct stat> there = backing_.StatAt(dir.get(), IdName(id));
      if (!there.ok() && !absl::IsNotFound(there.status())) return there.status();
      links += there.ok() && there->st_ino == inode;
    }
    return links;
  }

  absl::Status Displace(int dirfd, const Entry& entry) {
    const auto& [name, binding] = entry;
    if (!Enforceable(binding)) return absl::OkStatus();
    SALIUS_ASSIGN_OR_RETURN(const Occupant there, OccupantAt(backing_, dirfd, name.name));
    if (!there.exists || (there.id != kNoFileId && there.id == binding.target)) {
      return absl::OkStatus();  // R73
    }
    const bool known = there.id != kNoFileId && objects_.Has(there.id);
    const bool misplaced = known && IsMisplaced(there.id);
    if (known && !there.directory && !misplaced) {
      return absl::OkStatus();  // a file's link: replaced or removed later
    }
    if (misplaced && !there.directory) {  // R79
      SALIUS_ASSIGN_OR_RETURN(const struct stat st, backing_.StatAt(dirfd, name.name));
      SALIUS_ASSIGN_OR_RETURN(const nlink_t hidden, HiddenLinks(there.id, st.st_ino));
      if (st.st_nlink > 1 + hidden) return backing_.Unlink(dirfd, name.name, 0);
    }
    if (known && !misplaced) {  // R74
      SALIUS_RETURN_IF_ERROR(WithSpace(context_, [&] {
        return backing_.Rename(dirfd, entry.first.name, tmp_.get(), IdName(there.id), 0);
      }));
      return context_.step(RecoveryStep::kReplayDisplaced);
    }
    const bool cut_off = binding.whiteout && there.whiteout && there.id == kNoFileId;
    if ((binding.remove_unknown || cut_off) && !misplaced) {
      const absl::Status removed =
          backing_.Unlink(dirfd, name.name, there.directory ? AT_REMOVEDIR : 0);
      if (removed.ok() || !fs::IsNotEmpty(removed)) return removed;
    }
    SALIUS_RETURN_IF_ERROR(WithSpace(context_, [&] {  // R78, R79
      return MoveToLost(context_, dirfd, entry.first.name, Label(entry.first));
    }));
    return context_.step(RecoveryStep::kReplayDisplaced);
  }

  // Makes .salius/tmp/<id> a link of the file.
  absl::Status MakeHiddenLink(FileId id) {
    SALIUS_ASSIGN_OR_RETURN(const BackingFd fd, objects_.Open(id, O_PATH));
    SALIUS_ASSIGN_OR_RETURN(const struct stat self, backing_.StatAt(fd.get(), ""));
    const absl::StatusOr<struct stat> there = backing_.StatAt(tmp_.get(), IdName(id));
    if (there.ok()) {
      if (there->st_ino == self.st_ino) return absl::OkStatus();
      SALIUS_RETURN_IF_ERROR(
          backing_.Unlink(tmp_.get(), IdName(id), S_ISDIR(there->st_mode) ? AT_REMOVEDIR : 0));
    } else if (!absl::IsNotFound(there.status())) {
      return there.status();
    }
    const absl::Status linked =
        WithSpace(context_, [&] { return backing_.LinkFd(fd.get(), tmp_.get(), IdName(id)); });
    return StatusErrno(linked) == EMLINK ? TakeSpareName(id, linked) : linked;
  }

  // Makes .salius/tmp/<id> from a name that T does not give the file, which has the most links
  // possible.
  absl::Status TakeSpareName(FileId id, const absl::Status& otherwise) {
    for (const auto& [name, binding] : plan_.bindings) {
      if (binding.target == id || !Enforceable(binding) || !objects_.Has(name.dir)) continue;
      SALIUS_ASSIGN_OR_RETURN(const BackingFd dirfd, OpenDirectory(name.dir));
      SALIUS_ASSIGN_OR_RETURN(const Occupant there, OccupantAt(backing_, dirfd.get(), name.name));
      if (there.exists && there.id == id) {
        return backing_.Rename(dirfd.get(), name.name, tmp_.get(), IdName(id), 0);
      }
    }
    return otherwise;
  }

  absl::Status Hide(int dirfd, const Entry& entry) {
    const auto& [name, binding] = entry;
    if (binding.target == kNoFileId || !Enforceable(binding) || IsDirectory(binding.target)) {
      return absl::OkStatus();
    }
    SALIUS_ASSIGN_OR_RETURN(const Occupant there, OccupantAt(backing_, dirfd, name.name));
    if (there.exists && there.id == binding.target) return absl::OkStatus();
    if (!hidden_.insert(binding.target).second) return absl::OkStatus();
    SALIUS_RETURN_IF_ERROR(MakeHiddenLink(binding.target));  // R75
    return context_.step(RecoveryStep::kReplayHiddenLink);
  }

  // Calls `work` for every name of an orphan: the name's directory is missing (overridden by
  // --force), and its file or directory is there.
  template <typename Work>
  absl::Status ForEachOrphan(const Work& work) {
    for (const auto& entry : plan_.bindings) {
      const auto& [name, binding] = entry;
      if (binding.target == kNoFileId || objects_.Has(name.dir) || !objects_.Has(binding.target)) {
        continue;
      }
      SALIUS_RETURN_IF_ERROR(work(entry));
    }
    return absl::OkStatus();
  }

  absl::Status HideOrphans() {
    return ForEachOrphan([this](const Entry& entry) {
      const FileId id = entry.second.target;
      return IsDirectory(id) ? absl::OkStatus() : MakeHiddenLink(id);
    });
  }

  // R70: moves objects to .salius/lost/ that have no other name at T.
  absl::Status KeepOrphans() {
    absl::flat_hash_set<FileId> placed;
    for (const auto& [name, binding] : plan_.bindings) {
      if (objects_.Has(name.dir)) placed.insert(binding.target);
    }
    return ForEachOrphan([&](const Entry& entry) -> absl::Status {
      const FileId id = entry.second.target;
      if (placed.contains(id)) return absl::OkStatus();
      SALIUS_ASSIGN_OR_RETURN(const Occupant there, OccupantAt(backing_, tmp_.get(), IdName(id)));
      if (!there.exists || there.id != id) return absl::OkStatus();
      return WithSpace(context_, [&] {
        return MoveToLost(context_, tmp_.get(), IdName(id), Label(entry.first));
      });
    });
  }

  // R74, R75: attaches directories, each after its parent at T, and then files.
  ReplayResult AttachAll() {
    absl::flat_hash_set<FileId> attached;  // by a touched name
    for (const auto& [name, binding] : plan_.bindings) {
      if (objects_.Has(name.dir) && Enforceable(binding) && binding.target != kNoFileId &&
          IsDirectory(binding.target)) {
        attached.insert(binding.target);
      }
    }
    std::deque<FileId> ready;
    size_t waiting = 0;
    for (auto at = plan_.bindings.begin(); at != plan_.bindings.end();
         at = plan_.bindings.upper_bound({at->first.dir, std::string(256, '\xff')})) {
      if (!objects_.Has(at->first.dir)) continue;
      if (attached.contains(at->first.dir)) {
        ++waiting;
      } else {
        ready.push_back(at->first.dir);
      }
    }
    while (!ready.empty()) {
      const FileId dir = ready.front();
      ready.pop_front();
      if (attached.contains(dir)) --waiting;
      SALIUS_RETURN_UNLESS_DONE(AttachDirectoriesIn(dir, &ready));
    }
    if (waiting != 0) {
      return absl::InternalError("replay: directories that are inside each other");
    }
    return AttachFiles();
  }

  // Attaches the directories in `dir`, in the order of their records. AttachFiles uses that order
  // too: where not all have room, the last one was refused.
  ReplayResult AttachDirectoriesIn(FileId dir, std::deque<FileId>* ready) {
    std::vector<const Entry*> entries;
    for (auto at = plan_.bindings.lower_bound({dir, ""});
         at != plan_.bindings.end() && at->first.dir == dir; ++at) {
      const FileId target = at->second.target;
      if (target == kNoFileId || !Enforceable(at->second) || !IsDirectory(target)) continue;
      entries.push_back(&*at);
      const auto names = plan_.bindings.lower_bound({target, ""});
      if (names != plan_.bindings.end() && names->first.dir == target) ready->push_back(target);
    }
    return AttachInOrder(std::move(entries));
  }

  ReplayResult AttachFiles() {
    std::vector<const Entry*> entries;
    for (const Entry& entry : plan_.bindings) {
      const FileId target = entry.second.target;
      if (target == kNoFileId || !Enforceable(entry.second) || IsDirectory(target)) continue;
      if (objects_.Has(entry.first.dir)) entries.push_back(&entry);
    }
    return AttachInOrder(std::move(entries));
  }

  ReplayResult AttachInOrder(std::vector<const Entry*> entries) {
    std::stable_sort(entries.begin(), entries.end(),
                     [](const Entry* a, const Entry* b) { return a->second.seq < b->second.seq; });
    FileId dir = kNoFileId;
    BackingFd dirfd;
    for (const Entry* entry : entries) {
      const auto& [name, binding] = *entry;
      if (name.dir != dir) {
        SALIUS_ASSIGN_OR_RETURN(dirfd, OpenDirectory(name.dir));
        dir = name.dir;
      }
      SALIUS_RETURN_UNLESS_DONE(Judge(Attach(dirfd.get(), name.name, binding.target), dirfd.get(),
                                      *entry, /*as_session=*/true));
    }
    return absl::OkStatus();
  }

  absl::Status Attach(int dirfd, const std::string& name, FileId target) {
    SALIUS_ASSIGN_OR_RETURN(const Occupant there, OccupantAt(backing_, dirfd, name));
    if (there.exists && there.id == target) return absl::OkStatus();
    if (IsDirectory(target)) {
      if (there.exists) SALIUS_RETURN_IF_ERROR(backing_.Unlink(dirfd, name, 0));
      const auto object = plan_.objects.find(target);
      if (object != plan_.objects.end() && object->second.create.has_value()) {
        // It may have been made again, and lack what it had from its directory.
        SALIUS_ASSIGN_OR_RETURN(const BackingFd made, OpenDirectory(target));
        SALIUS_RETURN_IF_ERROR(backing_.InheritSync(dirfd, made.get()));
      }
      SALIUS_RETURN_IF_ERROR(AttachDirectory(dirfd, name, target));
    } else {
      SALIUS_RETURN_IF_ERROR(MakeHiddenLink(target));
      SALIUS_RETURN_IF_ERROR(WithSpace(
          context_, [&] { return backing_.Rename(tmp_.get(), IdName(target), dirfd, name, 0); }));
    }
    ++context_.report->names_bound;
    return context_.step(RecoveryStep::kReplayAttached);
  }

  absl::Status AttachDirectory(int dirfd, const std::string& name, FileId target) {
    SALIUS_ASSIGN_OR_RETURN(const Occupant in_tmp,
                            OccupantAt(backing_, tmp_.get(), IdName(target)));
    if (in_tmp.exists && in_tmp.id == target) {
      return WithSpace(context_,
                       [&] { return backing_.Rename(tmp_.get(), IdName(target), dirfd, name, 0); });
    }
    // It is under a name that no record touched: a user moved it, or T was forced back.
    SALIUS_ASSIGN_OR_RETURN(const BackingFd self, OpenDirectory(target));
    SALIUS_ASSIGN_OR_RETURN(const struct stat self_stat, backing_.StatAt(self.get(), ""));
    SALIUS_ASSIGN_OR_RETURN(const BackingFd parent,
                            backing_.OpenAt(self.get(), "..", O_RDONLY | O_DIRECTORY));
    SALIUS_ASSIGN_OR_RETURN(const std::vector<std::string> names, backing_.ListDir(parent.get()));
    for (const std::string& candidate : names) {
      SALIUS_ASSIGN_OR_RETURN(const struct stat st, backing_.StatAt(parent.get(), candidate));
      if (st.st_ino != self_stat.st_ino || st.st_dev != self_stat.st_dev) continue;
      return WithSpace(context_,
                       [&] { return backing_.Rename(parent.get(), candidate, dirfd, name, 0); });
    }
    return absl::InternalError(absl::StrFormat("replay: directory %d has no name", target));
  }

  absl::Status Remove(int dirfd, const Entry& entry) {
    const auto& [name, binding] = entry;
    if (binding.target != kNoFileId) return absl::OkStatus();
    SALIUS_ASSIGN_OR_RETURN(const Occupant there, OccupantAt(backing_, dirfd, name.name));
    if (!there.exists) return absl::OkStatus();  // R76 follows
    SALIUS_RETURN_IF_ERROR(backing_.Unlink(dirfd, name.name, there.directory ? AT_REMOVEDIR : 0));
    ++context_.report->names_removed;
    return context_.step(RecoveryStep::kReplayRemoved);
  }

  // R77: removes the directories that T removed. They are in .salius/tmp now, and empty of touched
  // names.
  absl::Status RemoveDeadDirectories() {
    for (const auto& [id, object] : plan_.objects) {
      if (object.fate != Fate::kUnbound || !objects_.Has(id) || !IsDirectory(id)) continue;
      SALIUS_ASSIGN_OR_RETURN(const Occupant there, OccupantAt(backing_, tmp_.get(), IdName(id)));
      if (!there.exists || there.id != id) continue;
      SALIUS_ASSIGN_OR_RETURN(const BackingFd dir, OpenDirectory(id));
      SALIUS_ASSIGN_OR_RETURN(const std::vector<std::string> names, backing_.ListDir(dir.get()));
      for (const std::string& name : names) {
        SALIUS_RETURN_IF_ERROR(WithSpace(context_, [&, id = id] {  // R78
          return MoveToLost(context_, dir.get(), name, Label({id, name}));
        }));
      }
      SALIUS_RETURN_IF_ERROR(backing_.Unlink(tmp_.get(), IdName(id), AT_REMOVEDIR));
      ++context_.report->names_removed;
      SALIUS_RETURN_IF_ERROR(context_.step(RecoveryStep::kReplayRemoved));
    }
    return absl::OkStatus();
  }

  absl::Status Verify(int dirfd, const Entry& entry) {  // R80
    const auto& [name, binding] = entry;
    if (!Enforceable(binding)) return absl::OkStatus();
    // A directory that T removed has been removed by now; its descriptor still lists nothing.
    SALIUS_ASSIGN_OR_RETURN(const Occupant there, OccupantAt(backing_, dirfd, name.name));
    const bool right =
        binding.target == kNoFileId ? !there.exists : there.exists && there.id == binding.target;
    if (right) return absl::OkStatus();
    return absl::InternalError(
        absl::StrFormat("replay: name \"%s\" in directory %d should be file %d and is %d",
                        name.name, name.dir, binding.target, there.id));
  }

  // R57. A mark against changes (chattr +a) does not stop the recovery: only a time is wrong then.
  absl::Status SetTimes() {
    for (const auto& [dir, mtime] : plan_.directory_times) {
      const absl::StatusOr<BackingFd> fd = OpenDirectory(dir);
      if (absl::IsNotFound(fd.status())) continue;
      SALIUS_RETURN_IF_ERROR(fd.status());
      const timespec times[2] = {{.tv_sec = 0, .tv_nsec = UTIME_OMIT}, mtime};
      const absl::Status set =
          WithSpace(context_, [&] { return backing_.SetTimes(fd->get(), times); });
      if (!set.ok() && StatusErrno(set) != EPERM) return set;
    }
    return absl::OkStatus();
  }

  const ReplayContext& context_;
  Backing& backing_;
  const ReplayPlan& plan_;
  const Objects& objects_;
  const BackingFd tmp_;
  absl::flat_hash_set<FileId> targets_;  // ids that T gives a touched name
  absl::flat_hash_set<FileId> hidden_;
};

}  // namespace

ReplayResult ReplayNames(const ReplayContext& context, const ReplayPlan& plan,
                         const Objects& objects) {
  if (plan.bindings.empty()) return absl::OkStatus();
  SALIUS_ASSIGN_OR_RETURN(BackingFd tmp,
                          OpenSaliusDir(*context.backing, context.salius_fd, kTmpDirName));
  return NameReplay(context, plan, objects, std::move(tmp)).Run();
}

}  // namespace salius::recovery
