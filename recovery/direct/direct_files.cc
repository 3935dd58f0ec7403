#include "recovery/direct/direct_files.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "common/check.h"
#include "common/file.h"
#include "common/strings.h"
#include "storage/direct_id.h"
#include "storage/volume_config.h"

namespace salius::recovery {
namespace {

constexpr int kLook = O_PATH | O_NOFOLLOW;
constexpr uint64_t kReportEach = 4096;

// Opens a path relative to `root_fd`, "" for the root itself, without following symbolic links.
absl::StatusOr<BackingFd> Walk(Backing& backing, int root_fd, const std::string& path) {
  SALIUS_ASSIGN_OR_RETURN(BackingFd at, backing.OpenAt(root_fd, ".", kLook));
  for (const std::string& part : std::vector<std::string>(absl::StrSplit(path, '/'))) {
    if (part.empty()) continue;
    SALIUS_ASSIGN_OR_RETURN(at, backing.OpenChild(at.get(), part));
  }
  return at;
}

bool IsHidden(const absl::Status& status) { return absl::IsPermissionDenied(status); }

}  // namespace

absl::Status DirectFiles::Scan(const DirectPlan& plan, bool force,
                               const std::function<void(uint64_t)>& on_seen) {
  plan_ = &plan;
  SALIUS_ASSIGN_OR_RETURN(const struct stat root, backing_.StatAt(root_fd_, ""));
  device_ = root.st_dev;
  std::vector<std::string> todo = {""};
  uint64_t reported = 0;
  while (!todo.empty()) {
    const std::string path = std::move(todo.back());
    todo.pop_back();
    SALIUS_RETURN_IF_ERROR(ScanDir(path, &todo));
    if (seen_ - reported < kReportEach) continue;
    reported = seen_;
    on_seen(seen_);
  }
  SALIUS_RETURN_IF_ERROR(CheckIds(force));
  return CheckUnread(plan, force);
}

absl::Status DirectFiles::ScanDir(const std::string& path, std::vector<std::string>* more) {
  absl::StatusOr<BackingFd> dir = Walk(backing_, root_fd_, path);
  if (dir.ok()) dir = backing_.Reopen(dir->get(), O_RDONLY | O_DIRECTORY);
  if (absl::IsNotFound(dir.status())) return absl::OkStatus();  // removed since it was listed
  if (IsHidden(dir.status())) {
    unread_.push_back(path);
    return absl::OkStatus();
  }
  SALIUS_RETURN_IF_ERROR(dir.status());
  SALIUS_ASSIGN_OR_RETURN(const std::vector<std::string> names, backing_.ListDir(dir->get()));
  for (const std::string& name : names) {
    if (path.empty() && name == kSaliusDir) continue;
    const std::string below = path.empty() ? name : path + "/" + name;
    const absl::StatusOr<BackingFd> fd = backing_.OpenChild(dir->get(), name);
    // Removed since it was listed, or something is mounted there.
    if (absl::IsNotFound(fd.status()) || StatusErrno(fd.status()) == EXDEV) continue;
    if (IsHidden(fd.status())) {
      unread_.push_back(below);
      continue;
    }
    SALIUS_RETURN_IF_ERROR(fd.status());
    SALIUS_ASSIGN_OR_RETURN(const struct stat st, backing_.StatAt(fd->get(), ""));
    ++seen_;
    if (st.st_dev != device_) continue;  // a subvolume, such as a snapshot
    if (S_ISDIR(st.st_mode)) more->push_back(below);
    if (S_ISREG(st.st_mode)) SALIUS_RETURN_IF_ERROR(Look(below, fd->get(), st.st_ino));
  }
  return absl::OkStatus();
}

absl::Status DirectFiles::Look(const std::string& path, int fd, ino_t inode) {
  const absl::StatusOr<std::string> value = backing_.XattrValue(fd, kDirectIdXattr);
  if (StatusErrno(value.status()) == ENODATA) return absl::OkStatus();
  if (IsHidden(value.status())) {
    unread_.push_back(path);
    return absl::OkStatus();
  }
  SALIUS_RETURN_IF_ERROR(value.status());
  DirectId id;
  if (!DecodeDirectId(value->data(), value->size(), &id)) return absl::OkStatus();
  if (!DirectIdIsOf(id, inode, volume_.bytes.data())) return absl::OkStatus();  // R91
  if (!plan_->files.contains(id.file_id)) return absl::OkStatus();
  const auto [place, first] = found_.try_emplace(id.file_id, Place{path, inode});
  if (!first && place->second.inode != inode) twice_.try_emplace(id.file_id, path);
  return absl::OkStatus();
}

absl::Status DirectFiles::CheckIds(bool force) {  // R92
  for (const auto& [id, path] : twice_) {
    std::string why = absl::StrFormat(
        "\"%s\" and \"%s\" both have the id %d; take it from the one that is not the file "
        "(setfattr "
        "-x %s) and run this again",
        Printable(found_.at(id).path, NewLines::kReplace), Printable(path, NewLines::kReplace), id,
        kDirectIdXattr);
    if (!force) return absl::DataLossError(why);
    problems_.push_back(std::move(why));
    found_.erase(id);
  }
  return absl::OkStatus();
}

absl::Status DirectFiles::CheckUnread(const DirectPlan& plan, bool force) {  // R93
  if (unread_.empty()) return absl::OkStatus();
  const auto gone = std::find_if(plan.files.begin(), plan.files.end(),
                                 [this](const auto& file) { return !Has(file.first); });
  if (gone == plan.files.end()) return absl::OkStatus();
  std::string why = absl::StrFormat(
      "file %d was not found, and \"%s\"%s cannot be read: nothing is lost; make it readable "
      "(chmod "
      "u+rwx) and run this again",
      gone->first, Printable(unread_.front(), NewLines::kReplace),
      unread_.size() > 1 ? absl::StrFormat(" (and %d others)", unread_.size() - 1) : "");
  if (!force) return absl::PermissionDeniedError(why);
  problems_.push_back(std::move(why));
  return absl::OkStatus();
}

absl::StatusOr<BackingFd> DirectFiles::Open(FileId id, int flags) const {
  const Place& place = found_.at(id);
  const absl::StatusOr<BackingFd> at = Walk(backing_, root_fd_, place.path);
  if (!at.ok() && !absl::IsNotFound(at.status())) return at.status();
  bool same = false;
  if (at.ok()) {
    SALIUS_ASSIGN_OR_RETURN(const struct stat st, backing_.StatAt(at->get(), ""));
    same = st.st_ino == place.inode;
  }
  if (!same) {
    return absl::AbortedError(absl::StrFormat(
        "\"%s\" was moved during the recovery: end the program that moves files there, and run "
        "this again",
        Printable(place.path, NewLines::kReplace)));
  }
  return backing_.Reopen(at->get(), flags);
}

}  // namespace salius::recovery
