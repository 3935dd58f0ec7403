#include "storage/volume_tree.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>

#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "common/check.h"
#include "common/file.h"
#include "common/runbook.h"
#include "common/strings.h"
#include "storage/apply.h"
#include "storage/fs_calls.h"
#include "storage/posix_acl.h"
#include "storage/volume_config.h"

namespace salius {
namespace {

// Returns whether `.salius` in `dirfd` (may be O_PATH) belongs to a volume, whole or not.
absl::StatusOr<bool> HoldsVolume(Backing& backing, int dirfd) {
  const absl::StatusOr<BackingFd> own = backing.OpenAt(dirfd, kSaliusDir, O_PATH);
  // A directory that the caller may not search hides a volume too, but not from its user.
  if (absl::IsNotFound(own.status()) || absl::IsPermissionDenied(own.status())) return false;
  SALIUS_RETURN_IF_ERROR(own.status());
  for (const char* file : {kVolumeFileName, kStateFileName, kStableLogFileName}) {
    const absl::Status there = backing.StatAt(own->get(), file).status();
    if (there.ok() || absl::IsPermissionDenied(there)) return true;  // only its owner may search it
    if (!absl::IsNotFound(there) && !absl::IsInvalidArgument(there)) return there;
  }
  return false;
}

// Returns the path, relative to `dirfd`, of the first volume below it on the same file system; ""
// for none.
absl::StatusOr<std::string> VolumeBelow(Backing& backing, int dirfd, dev_t device,
                                        const std::string& path) {
  const absl::StatusOr<std::vector<std::string>> names = backing.ListDir(dirfd);
  if (absl::IsPermissionDenied(names.status())) return "";
  SALIUS_RETURN_IF_ERROR(names.status());
  for (const std::string& name : *names) {
    const absl::StatusOr<struct stat> st = backing.StatAt(dirfd, name);
    if (absl::IsPermissionDenied(st.status())) return "";
    SALIUS_RETURN_IF_ERROR(st.status());
    if (!S_ISDIR(st->st_mode) || st->st_dev != device) continue;
    const std::string below = path + name;
    SALIUS_ASSIGN_OR_RETURN(const BackingFd fd, backing.OpenAt(dirfd, name, O_PATH | O_NOFOLLOW));
    SALIUS_ASSIGN_OR_RETURN(const bool volume, HoldsVolume(backing, fd.get()));
    if (volume) return below;
    SALIUS_ASSIGN_OR_RETURN(std::string found, VolumeBelow(backing, fd.get(), device, below + "/"));
    if (!found.empty()) return found;
  }
  return "";
}

// Returns the way up, as "..", "../..", to the next volume whose tree the directory is a part of;
// "" for none. A directory on another file system is not part of it.
absl::StatusOr<std::string> VolumeAbove(Backing& backing, int dirfd, struct stat at) {
  BackingFd fd;
  for (std::string path = "..";; path += "/..") {
    absl::StatusOr<BackingFd> up = backing.OpenAt(fd.get() < 0 ? dirfd : fd.get(), "..", O_PATH);
    if (absl::IsPermissionDenied(up.status())) return "";
    SALIUS_RETURN_IF_ERROR(up.status());
    fd = *std::move(up);
    SALIUS_ASSIGN_OR_RETURN(const struct stat above, backing.StatAt(fd.get(), ""));
    if (above.st_dev != at.st_dev || above.st_ino == at.st_ino) return "";
    SALIUS_ASSIGN_OR_RETURN(const bool volume, HoldsVolume(backing, fd.get()));
    if (volume) return path;
    at = above;
  }
}

}  // namespace

absl::StatusOr<BackingFd> MakeOwnDir(Backing& backing, int dirfd, const std::string& name) {
  SALIUS_RETURN_IF_ERROR(backing.MkdirAt(dirfd, name, 0700));
  SALIUS_ASSIGN_OR_RETURN(BackingFd fd,
                          backing.OpenAt(dirfd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW));
  for (const char* acl : {kDefaultAclXattr, kAccessAclXattr}) {
    const absl::Status status = backing.RemoveXattr(fd.get(), acl);
    if (!status.ok() && !absl::IsUnimplemented(status)) return status;
  }
  SALIUS_RETURN_IF_ERROR(backing.Chmod(fd.get(), 0700));
  return fd;
}

absl::Status CheckNoOtherVolume(Backing& backing, int root_fd, const std::string& path) {
  SALIUS_ASSIGN_OR_RETURN(const struct stat st, backing.StatAt(root_fd, ""));
  SALIUS_ASSIGN_OR_RETURN(const std::string above, VolumeAbove(backing, root_fd, st));
  if (!above.empty()) {
    return absl::FailedPreconditionError(
        absl::StrFormat("%s lies in a volume, %s/%s: one volume cannot be part of another; %s",
                        path, path, above, SeeRunbook("volume-above-or-below")));
  }
  SALIUS_ASSIGN_OR_RETURN(const std::string below, VolumeBelow(backing, root_fd, st.st_dev, ""));
  if (!below.empty()) {
    return absl::FailedPreconditionError(absl::StrFormat(
        "there is a volume in %s, %s/%s: one volume cannot be part of another; if that one is no "
        "longer needed, remove its %s; %s",
        path, path, Printable(below, NewLines::kReplace), kSaliusDir,
        SeeRunbook("volume-above-or-below")));
  }
  return absl::OkStatus();
}

absl::Status StripFileIds(Backing& backing, int dirfd, dev_t device) {
  SALIUS_ASSIGN_OR_RETURN(const std::vector<std::string> names, backing.ListDir(dirfd));
  for (const std::string& name : names) {
    SALIUS_ASSIGN_OR_RETURN(const BackingFd fd, backing.OpenAt(dirfd, name, O_PATH | O_NOFOLLOW));
    SALIUS_ASSIGN_OR_RETURN(const struct stat st, backing.StatAt(fd.get(), ""));
    if (st.st_dev != device) continue;
    const absl::Status id = backing.XattrValue(fd.get(), kFileIdXattr).status();
    if (!id.ok() && StatusErrno(id) != ENODATA) return id;
    // The id of an immutable file cannot be removed.
    const absl::Status removed =
        id.ok() ? backing.RemoveXattr(fd.get(), kFileIdXattr) : absl::OkStatus();
    if (!removed.ok()) {
      return absl::Status(removed.code(),
                          absl::StrFormat("\"%s\" keeps the id that an earlier volume gave it: %s",
                                          Printable(name, NewLines::kReplace), removed.message()));
    }
    if (S_ISDIR(st.st_mode)) SALIUS_RETURN_IF_ERROR(StripFileIds(backing, fd.get(), device));
  }
  return absl::OkStatus();
}

absl::Status CheckTrustedXattrs(Backing& backing, int root_fd) {
  const absl::Status id = backing.XattrValue(root_fd, kFileIdXattr).status();
  if (StatusErrno(id) == ENODATA) return absl::OkStatus();
  if (!absl::IsUnimplemented(id)) return id;
  return absl::FailedPreconditionError(
      "the file system has no trusted extended attributes, which hold the files' ids");
}

absl::Status RemoveTree(Backing& backing, int dirfd, const std::string& name) {
  const absl::Status removed = backing.Unlink(dirfd, name, 0);
  if (removed.ok() || absl::IsNotFound(removed)) return absl::OkStatus();
  if (StatusErrno(removed) != EISDIR && StatusErrno(removed) != EPERM) return removed;
  const absl::Status empty = backing.Unlink(dirfd, name, AT_REMOVEDIR);
  if (empty.ok() || !fs::IsNotEmpty(empty)) return empty;
  {
    SALIUS_ASSIGN_OR_RETURN(const BackingFd dir,
                            backing.OpenAt(dirfd, name, O_PATH | O_DIRECTORY | O_NOFOLLOW));
    SALIUS_ASSIGN_OR_RETURN(const std::vector<std::string> names, backing.ListDir(dir.get()));
    for (const std::string& inner : names) {
      SALIUS_RETURN_IF_ERROR(RemoveTree(backing, dir.get(), inner));
    }
  }
  return backing.Unlink(dirfd, name, AT_REMOVEDIR);
}

}  // namespace salius
