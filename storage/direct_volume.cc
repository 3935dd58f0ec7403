#include "storage/direct_volume.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "absl/strings/str_format.h"
#include "common/check.h"
#include "common/file.h"
#include "common/file_system.h"
#include "common/strings.h"
#include "storage/apply.h"
#include "storage/direct_id.h"
#include "storage/fs_calls.h"

namespace salius {
namespace {

constexpr char kProbeXattr[] = "user.salius.probe";

// f_type of fstatfs(2), from <linux/magic.h>.
constexpr std::array<int64_t, 2> kVolatileKinds = {0x01021994 /* tmpfs */, 0x858458F6 /* ramfs */};

}  // namespace

absl::Status CheckNotVolatile(int fd, const std::string& path) {
  SALIUS_ASSIGN_OR_RETURN(const fs::FsKind kind, fs::KindOf(fd));
  if (std::find(kVolatileKinds.begin(), kVolatileKinds.end(), kind.type) != kVolatileKinds.end()) {
    return absl::FailedPreconditionError(
        absl::StrFormat("%s is on tmpfs, which forgets everything at a power cut: make the volume "
                        "in a directory on a disk",
                        path));
  }
  return absl::OkStatus();
}

absl::Status CheckDirectPlace(int fd, const std::string& path) {
  SALIUS_RETURN_IF_ERROR(CheckNotVolatile(fd, path));
  SALIUS_ASSIGN_OR_RETURN(const struct stat st, fs::StatAt(fd, ""));
  if (st.st_uid != geteuid()) {
    return absl::FailedPreconditionError(absl::StrFormat(
        "%s belongs to user %d, not to user %d: run `salius init --direct` as its owner, or give "
        "it to this user with `chown %d %s`",
        path, st.st_uid, geteuid(), geteuid(), ShellQuote(path)));
  }
  constexpr mode_t kOwnerWrites = S_IWUSR | S_IXUSR;
  if (geteuid() == 0 || (st.st_mode & kOwnerWrites) == kOwnerWrites) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrFormat(
      "%s cannot be written by its owner: run `chmod u+wx %s` first", path, ShellQuote(path)));
}

absl::Status CheckDirectOwner(const VolumeDir& dir) {
  if (dir.config.kind != VolumeKind::kDirect) return absl::OkStatus();
  SALIUS_ASSIGN_OR_RETURN(const struct stat st, dir.backing->StatAt(dir.salius_fd, ""));
  if (st.st_uid == geteuid()) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrFormat("%s is a direct volume of user %d: run this as that user (sudo -u '#%d' ...)",
                      dir.path, st.st_uid, st.st_uid));
}

absl::Status CheckUserXattrs(Backing& backing, int root_fd) {
  const absl::Status set = backing.SetXattr(root_fd, kProbeXattr, "1");
  if (absl::IsUnimplemented(set)) {
    return absl::FailedPreconditionError(
        "the file system has no extended attributes in the user. namespace, which hold the files' "
        "ids: mount it with user_xattr, or make the volume on ext4, XFS or btrfs");
  }
  SALIUS_RETURN_IF_ERROR(set);
  const absl::StatusOr<std::string> value = backing.XattrValue(root_fd, kProbeXattr);
  SALIUS_RETURN_IF_ERROR(backing.RemoveXattr(root_fd, kProbeXattr));
  SALIUS_RETURN_IF_ERROR(value.status());
  if (*value == "1") return absl::OkStatus();
  return absl::FailedPreconditionError(
      "the file system does not keep extended attributes in the user. namespace, which hold the "
      "files' ids");
}

absl::Status MarkDirectRoot(Backing& backing, int root_fd, const VolumeId& volume) {
  SALIUS_ASSIGN_OR_RETURN(const struct stat st, backing.StatAt(root_fd, ""));
  DirectId id;
  id.file_id = kRootFileId;
  id.inode = st.st_ino;
  std::copy_n(volume.bytes.begin(), sizeof(id.volume), id.volume);
  std::array<uint8_t, kDirectIdBytes> value;
  EncodeDirectId(id, value.data());
  return backing.SetXattr(
      root_fd, kDirectIdXattr,
      std::string_view(reinterpret_cast<const char*>(value.data()), value.size()));
}

std::string RootIdXattr(VolumeKind kind) {
  return kind == VolumeKind::kDirect ? kDirectIdXattr : kFileIdXattr;
}

absl::StatusOr<std::string> RootIdOf(Backing& backing, int root_fd) {
  const absl::StatusOr<FileId> id = ReadFileId(backing, root_fd);
  if (!id.ok() && !absl::IsUnimplemented(id.status())) return id.status();
  if (id.ok() && *id == kRootFileId) return std::string(kFileIdXattr);
  const absl::StatusOr<std::string> value = backing.XattrValue(root_fd, kDirectIdXattr);
  if (StatusErrno(value.status()) == ENODATA || absl::IsUnimplemented(value.status())) return "";
  SALIUS_RETURN_IF_ERROR(value.status());
  DirectId direct;
  const bool root =
      DecodeDirectId(value->data(), value->size(), &direct) && direct.file_id == kRootFileId;
  return root ? std::string(kDirectIdXattr) : "";
}

}  // namespace salius
