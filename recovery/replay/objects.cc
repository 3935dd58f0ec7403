#include "recovery/replay/objects.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>

#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "common/check.h"
#include "common/file_system.h"
#include "common/strings.h"
#include "recovery/replay/refusal.h"
#include "storage/apply.h"
#include "storage/fs_calls.h"
#include "storage/volume_config.h"

namespace salius::recovery {
namespace {

constexpr int kLook = O_PATH | O_NOFOLLOW;

// Whether the object is absent: NOT_FOUND is an answer here, everything else an error.
template <typename T>
bool Absent(const absl::StatusOr<T>& status_or) {
  return absl::IsNotFound(status_or.status());
}

// Walks a relative path without following symbolic links. NOT_FOUND when any part is missing or is
// not a directory.
absl::StatusOr<BackingFd> Walk(Backing& backing, int root_fd, const std::string& path) {
  SALIUS_ASSIGN_OR_RETURN(BackingFd at, backing.OpenAt(root_fd, ".", kLook));
  for (const std::string& part : std::vector<std::string>(absl::StrSplit(path, '/'))) {
    if (part.empty() || part == ".") continue;
    if (part == "..") return absl::NotFoundError("a path with ..");
    absl::StatusOr<BackingFd> next = backing.OpenAt(at.get(), part, kLook);
    if (absl::IsInvalidArgument(next.status())) return absl::NotFoundError(path);  // ENOTDIR
    SALIUS_RETURN_IF_ERROR(next.status());
    at = *std::move(next);
  }
  return at;
}

}  // namespace

absl::StatusOr<Occupant> OccupantAt(Backing& backing, int dirfd, const std::string& name) {
  const absl::StatusOr<BackingFd> fd = backing.OpenAt(dirfd, name, kLook);
  if (Absent(fd)) return Occupant{};
  SALIUS_RETURN_IF_ERROR(fd.status());
  Occupant occupant;
  occupant.exists = true;
  SALIUS_ASSIGN_OR_RETURN(const struct stat st, backing.StatAt(fd->get(), ""));
  occupant.directory = S_ISDIR(st.st_mode);
  occupant.whiteout = S_ISCHR(st.st_mode) && st.st_rdev == 0;
  SALIUS_ASSIGN_OR_RETURN(occupant.id, ReadFileId(backing, fd->get()));
  return occupant;
}

uint32_t Objects::TypeOf(FileId id) const {
  if (id == kRootFileId) return S_IFDIR;
  const auto found = found_.find(id);
  SALIUS_CHECK(found != found_.end());
  return found->second.type;
}

absl::StatusOr<BackingFd> Objects::Open(FileId id, int flags) const {
  if (id == kRootFileId) return backing_.OpenAt(root_fd_, ".", flags);
  const auto found = found_.find(id);
  if (found == found_.end()) return absl::NotFoundError("object not located");
  return OpenRef(found->second, flags);
}

absl::StatusOr<ObjectRef> Objects::RefOf(int fd) const {
  ObjectRef ref;
  SALIUS_ASSIGN_OR_RETURN(const struct stat st, backing_.StatAt(fd, ""));
  ref.type = st.st_mode & S_IFMT;
  absl::StatusOr<FileHandle> handle = backing_.HandleOf(fd);
  if (handle.ok()) {
    ref.handle = *std::move(handle);
  } else if (absl::IsUnimplemented(handle.status())) {
    SALIUS_ASSIGN_OR_RETURN(ref.fd, backing_.Reopen(fd, O_PATH));
  } else {
    return handle.status();
  }
  return ref;
}

absl::StatusOr<BackingFd> Objects::OpenRef(const ObjectRef& ref, int flags) const {
  if (!ref.fd.valid()) return backing_.OpenByHandle(root_fd_, ref.handle, flags);
  if ((flags & O_PATH) != 0) return backing_.Reopen(ref.fd.get(), O_PATH);
  SALIUS_ASSIGN_OR_RETURN(const struct stat st, backing_.StatAt(ref.fd.get(), ""));
  if (st.st_nlink == 0) return absl::NotFoundError("object removed");
  return backing_.Reopen(ref.fd.get(), flags);
}

absl::Status Objects::Put(FileId id, int fd) {
  SALIUS_ASSIGN_OR_RETURN(ObjectRef ref, RefOf(fd));
  if (ref.type == S_IFDIR) new_dirs_.push_back(id);
  found_[id] = std::move(ref);
  return absl::OkStatus();
}

absl::flat_hash_set<FileId> Objects::Missing(const ReplayPlan& plan) const {
  absl::flat_hash_set<FileId> missing;
  for (const auto& [id, object] : plan.objects) {
    // A created object has only touched names, so a scan could not find it.
    if (object.needed && !object.create.has_value() && !Has(id)) missing.insert(id);
  }
  return missing;
}

absl::Status Objects::Locate(const ReplayPlan& plan, bool give_ids,
                             const std::function<void(uint64_t)>& on_scanned) {
  new_dirs_.push_back(kRootFileId);
  SALIUS_RETURN_IF_ERROR(LocateAdopted(plan, give_ids));
  SALIUS_RETURN_IF_ERROR(LocateByNames(plan));
  // Look there after the names: a name in the tree is the object itself, a hidden one may be a
  // leftover.
  SALIUS_RETURN_IF_ERROR(LocateHidden(plan));
  SALIUS_RETURN_IF_ERROR(LocateByNames(plan));
  if (Missing(plan).empty()) return absl::OkStatus();
  scanned_ = true;
  SALIUS_RETURN_IF_ERROR(Scan(plan, on_scanned));
  return LocateByNames(plan);
}

absl::StatusOr<BackingFd> Objects::OpenAdopted(const ObjectPlan& object,
                                               const AdoptBody& adopt) const {
  if (!adopt.handle.empty()) {
    // It is the very file, whatever its id: an id that was copied along with another file's gives
    // way.
    absl::StatusOr<BackingFd> fd =
        backing_.OpenByHandle(root_fd_, FileHandle{adopt.handle_type, adopt.handle}, O_PATH);
    // An unusable handle (another file system's, after a restore) is no better than a stale one.
    if (!Absent(fd) && !absl::IsInvalidArgument(fd.status()) &&
        !absl::IsUnimplemented(fd.status())) {
      return fd;
    }
  }
  // An object that T removed may be gone already, and its old path may belong to another by now.
  if (object.fate != Fate::kBound || adopt.path.empty()) {
    return absl::NotFoundError("adopted object");
  }
  SALIUS_ASSIGN_OR_RETURN(BackingFd fd, Walk(backing_, root_fd_, adopt.path));
  SALIUS_ASSIGN_OR_RETURN(const FileId has, ReadFileId(backing_, fd.get()));
  if (has != object.id && has != kNoFileId) return absl::NotFoundError("adopted object");
  return fd;
}

absl::Status Objects::LocateAdopted(const ReplayPlan& plan, bool give_ids) {
  for (const auto& [id, object] : plan.objects) {
    if (id == kRootFileId) continue;
    for (const AdoptBody& adopt : object.adopts) {
      const absl::StatusOr<BackingFd> fd = OpenAdopted(object, adopt);
      if (Absent(fd)) continue;
      SALIUS_RETURN_IF_ERROR(fd.status());
      const absl::StatusOr<FileId> has =
          ReadFileId(backing_, fd->get());  // a damaged id is replaced
      const bool give = give_ids && !(has.ok() && *has == id);
      const absl::Status written = give ? WriteFileId(backing_, fd->get(), id) : absl::OkStatus();
      // The session was refused this as well: it died before it had cancelled the record, and no
      // other record depends on it.
      if (!written.ok() && !object.needed) break;
      if (!written.ok()) {
        return Explain(backing_, written, absl::StrFormat("file %d: it cannot be given its id", id),
                       fd->get());
      }
      SALIUS_RETURN_IF_ERROR(Put(id, fd->get()));
      break;
    }
  }
  return absl::OkStatus();
}

absl::Status Objects::LocateHidden(const ReplayPlan& plan) {  // R71
  for (const char* place : {kOpenDirName, kTmpDirName}) {
    const absl::StatusOr<BackingFd> dir =
        backing_.OpenAt(salius_fd_, place, O_RDONLY | O_DIRECTORY);
    if (Absent(dir)) continue;
    SALIUS_RETURN_IF_ERROR(dir.status());
    SALIUS_ASSIGN_OR_RETURN(const std::vector<std::string> names, backing_.ListDir(dir->get()));
    for (const std::string& name : names) {
      const absl::StatusOr<BackingFd> fd = backing_.OpenAt(dir->get(), name, kLook);
      SALIUS_RETURN_IF_ERROR(fd.status());
      SALIUS_ASSIGN_OR_RETURN(const FileId id, ReadFileId(backing_, fd->get()));
      if (id == kNoFileId || name != IdName(id)) continue;
      if (plan.objects.contains(id) && !Has(id)) SALIUS_RETURN_IF_ERROR(Put(id, fd->get()));
    }
  }
  return absl::OkStatus();
}

absl::Status Objects::LocateByNames(const ReplayPlan& plan) {
  while (!new_dirs_.empty()) {
    const FileId dir = new_dirs_.back();
    new_dirs_.pop_back();
    SALIUS_RETURN_IF_ERROR(NamesOf(plan, dir));
  }
  return absl::OkStatus();
}

absl::Status Objects::NamesOf(const ReplayPlan& plan, FileId dir) {
  auto at = plan.bindings.lower_bound(DirName{dir, ""});
  if (at == plan.bindings.end() || at->first.dir != dir) return absl::OkStatus();
  SALIUS_ASSIGN_OR_RETURN(const BackingFd dirfd, Open(dir, O_RDONLY | O_DIRECTORY));
  for (; at != plan.bindings.end() && at->first.dir == dir; ++at) {
    const absl::StatusOr<BackingFd> fd = backing_.OpenAt(dirfd.get(), at->first.name, kLook);
    if (Absent(fd)) continue;
    SALIUS_RETURN_IF_ERROR(fd.status());
    SALIUS_ASSIGN_OR_RETURN(const FileId id, ReadFileId(backing_, fd->get()));
    if (id != kNoFileId && plan.objects.contains(id) && !Has(id)) {
      SALIUS_RETURN_IF_ERROR(Put(id, fd->get()));
    }
  }
  return absl::OkStatus();
}

absl::Status Objects::Scan(const ReplayPlan& plan,
                           const std::function<void(uint64_t)>& on_scanned) {
  absl::flat_hash_set<FileId> missing = Missing(plan);
  std::vector<ObjectRef> todo;
  SALIUS_ASSIGN_OR_RETURN(ObjectRef root, RefOf(root_fd_));
  // Displaced directories of an earlier run are in .salius, so it is part of the tree here.
  todo.push_back(std::move(root));
  uint64_t seen = 0;
  uint64_t reported = 0;
  while (!todo.empty() && !missing.empty()) {
    const ObjectRef dir = std::move(todo.back());
    todo.pop_back();
    SALIUS_RETURN_IF_ERROR(ScanDir(dir, &todo, &missing, &seen));
    if (seen - reported >= 4096) {
      reported = seen;
      on_scanned(seen);
    }
  }
  return absl::OkStatus();
}

absl::Status Objects::ScanDir(const ObjectRef& ref, std::vector<ObjectRef>* more,
                              absl::flat_hash_set<FileId>* missing, uint64_t* seen) {
  const absl::StatusOr<BackingFd> opened = OpenRef(ref, O_RDONLY | O_DIRECTORY);
  if (Absent(opened)) return absl::OkStatus();  // removed since it was listed
  SALIUS_RETURN_IF_ERROR(opened.status());
  const BackingFd& dir = *opened;
  SALIUS_ASSIGN_OR_RETURN(const struct stat dir_stat, backing_.StatAt(dir.get(), ""));
  SALIUS_ASSIGN_OR_RETURN(const std::vector<std::string> names, backing_.ListDir(dir.get()));
  for (const std::string& name : names) {
    const absl::StatusOr<BackingFd> fd = backing_.OpenChild(dir.get(), name);
    if (Absent(fd)) continue;
    if (StatusErrno(fd.status()) == EXDEV) continue;  // something is mounted there
    SALIUS_RETURN_IF_ERROR(fd.status());
    SALIUS_ASSIGN_OR_RETURN(const struct stat st, backing_.StatAt(fd->get(), ""));
    ++*seen;
    if (st.st_dev != dir_stat.st_dev) continue;  // a subvolume
    SALIUS_ASSIGN_OR_RETURN(const FileId id, ReadFileId(backing_, fd->get()));
    if (missing->erase(id) > 0) SALIUS_RETURN_IF_ERROR(Put(id, fd->get()));
    if (S_ISDIR(st.st_mode)) {
      SALIUS_ASSIGN_OR_RETURN(ObjectRef child, RefOf(fd->get()));
      more->push_back(std::move(child));
    }
  }
  return absl::OkStatus();
}

}  // namespace salius::recovery
