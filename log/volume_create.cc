// CreateVolume (log/volume_config.h): what `salius init` puts on the disk.
//
// Everything is made in `.salius.new` and renamed at the end, so that `.salius` is there whole or
// not at all; what a crash left of an earlier attempt is removed first.
#include <fcntl.h>
#include <sys/stat.h>

#include <string>

#include "absl/strings/str_format.h"
#include "common/bytes.h"
#include "common/check.h"
#include "common/file.h"
#include "common/host.h"
#include "common/strings.h"
#include "log/apply.h"
#include "log/fs_calls.h"
#include "log/stable_log.h"
#include "log/state_file.h"
#include "log/volume_config.h"
#include "log/volume_fs.h"

namespace salius {
namespace {

constexpr char kNewDir[] = ".salius.new";

// A directory of ours: for root only, and without the ACLs and the setgid bit that a parent passes
// on, which every object made in it would get too.
absl::StatusOr<UniqueFd> MakeOwnDir(int dirfd, const std::string& name) {
  SALIUS_RETURN_IF_ERROR(MkdirAt(dirfd, name, 0700));
  SALIUS_ASSIGN_OR_RETURN(UniqueFd fd, OpenAt(dirfd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW));
  for (const char* acl : {"system.posix_acl_default", "system.posix_acl_access"}) {
    const absl::Status status = fs::RemoveXattr(fd.get(), acl);
    if (!status.ok() && !absl::IsUnimplemented(status)) return status;
  }
  SALIUS_RETURN_IF_ERROR(fs::Chmod(fd.get(), 0700));
  return fd;
}

absl::StatusOr<VolumeState> InitialState(int root_fd, const VolumeConfig& config) {
  VolumeState state;
  state.volume = config.volume;
  state.acks = config.acks;
  state.file_id_limit = kRootFileId + 1;
  SALIUS_ASSIGN_OR_RETURN(state.boot_id, BootId());
  const absl::StatusOr<uint64_t> mount_id = UniqueMountId(root_fd);
  if (mount_id.ok()) {
    state.mount_id = *mount_id;
  } else if (!absl::IsUnimplemented(mount_id.status())) {
    return mount_id.status();
  }
  return state;
}

absl::Status MakeBallast(int dirfd, uint64_t bytes) {
  SALIUS_ASSIGN_OR_RETURN(const UniqueFd fd,
                          OpenAt(dirfd, kBallastFileName, O_RDWR | O_CREAT | O_EXCL, 0600));
  if (bytes > 0) SALIUS_RETURN_IF_ERROR(fs::Fallocate(fd.get(), 0, 0, bytes));
  return FsyncFd(fd.get());
}

// All of `.salius` in `dirfd`, synced.
absl::Status FillSaliusDir(int root_fd, int dirfd, const VolumeConfig& config) {
  SALIUS_RETURN_IF_ERROR(
      WriteFileAtomically(dirfd, kVolumeFileName, AsBytes(VolumeConfigToToml(config)), 0600));
  SALIUS_ASSIGN_OR_RETURN(const VolumeState state, InitialState(root_fd, config));
  SALIUS_RETURN_IF_ERROR(StateFile::Create(dirfd, kStateFileName, state).status());
  SALIUS_RETURN_IF_ERROR(
      StableLog::Create(dirfd, kStableLogFileName, config.volume, config.stable_log_bytes)
          .status());
  SALIUS_ASSIGN_OR_RETURN(const UniqueFd lock,
                          OpenAt(dirfd, kLockFileName, O_RDWR | O_CREAT | O_EXCL, 0600));
  SALIUS_RETURN_IF_ERROR(FsyncFd(lock.get()));
  SALIUS_RETURN_IF_ERROR(MakeBallast(dirfd, config.ballast_bytes));
  for (const char* name : {kOpenDirName, kTmpDirName}) {
    SALIUS_ASSIGN_OR_RETURN(const UniqueFd dir, MakeOwnDir(dirfd, name));
    SALIUS_RETURN_IF_ERROR(FsyncFd(dir.get()));
  }
  return FsyncFd(dirfd);
}

// Takes the ids of an earlier volume off everything below `dirfd` that lies on the same file
// system: they would be handed out a second time.
absl::Status StripFileIds(int dirfd, dev_t device) {
  SALIUS_ASSIGN_OR_RETURN(const std::vector<std::string> names, fs::ListDir(dirfd));
  for (const std::string& name : names) {
    SALIUS_ASSIGN_OR_RETURN(const UniqueFd fd, OpenAt(dirfd, name, O_PATH | O_NOFOLLOW));
    SALIUS_ASSIGN_OR_RETURN(const struct stat st, fs::StatAt(fd.get(), ""));
    if (st.st_dev != device) continue;
    bool has_id = false;
    SALIUS_RETURN_IF_ERROR(fs::GetXattr(fd.get(), kFileIdXattr, &has_id).status());
    // Of an immutable file it cannot be taken.
    const absl::Status removed =
        has_id ? fs::RemoveXattr(fd.get(), kFileIdXattr) : absl::OkStatus();
    if (!removed.ok()) {
      return absl::Status(removed.code(),
                          absl::StrFormat("\"%s\" keeps the id that an earlier volume gave it: %s",
                                          name, removed.message()));
    }
    if (S_ISDIR(st.st_mode)) SALIUS_RETURN_IF_ERROR(StripFileIds(fd.get(), device));
  }
  return absl::OkStatus();
}

absl::Status CheckTrustedXattrs(int root_fd) {
  bool found = false;
  const absl::Status status = fs::GetXattr(root_fd, kFileIdXattr, &found).status();
  if (!absl::IsUnimplemented(status)) return status;
  return absl::FailedPreconditionError(
      "the file system has no trusted extended attributes, which hold the files' ids");
}

absl::Status CreateInRoot(int root_fd, const VolumeConfig& config) {
  SALIUS_RETURN_IF_ERROR(fs::RemoveTree(root_fd, kNewDir));
  SALIUS_ASSIGN_OR_RETURN(const UniqueFd dir, MakeOwnDir(root_fd, kNewDir));
  SALIUS_RETURN_IF_ERROR(FillSaliusDir(root_fd, dir.get(), config));
  SALIUS_ASSIGN_OR_RETURN(const struct stat st, fs::StatAt(root_fd, ""));
  SALIUS_RETURN_IF_ERROR(StripFileIds(root_fd, st.st_dev));
  SALIUS_RETURN_IF_ERROR(SyncFs(root_fd));
  SALIUS_RETURN_IF_ERROR(WriteFileId(root_fd, kRootFileId));
  SALIUS_RETURN_IF_ERROR(FsyncFd(root_fd));
  return fs::RenameNoReplace(root_fd, kNewDir, kSaliusDir);
}

}  // namespace

absl::Status CreateVolume(const std::string& backing, const VolumeConfig& config) {
  SALIUS_RETURN_IF_ERROR(ValidateVolumeConfig(config));
  SALIUS_ASSIGN_OR_RETURN(const UniqueFd root, OpenAt(AT_FDCWD, backing, O_RDONLY | O_DIRECTORY));
  SALIUS_RETURN_IF_ERROR(CheckBackingFileSystem(root.get(), backing));
  // Two inits of one directory take turns, or rather the second gives up.
  SALIUS_RETURN_IF_ERROR(LockExclusive(root.get(), backing));
  const absl::StatusOr<struct stat> existing = fs::StatAt(root.get(), kSaliusDir);
  if (existing.ok()) {
    return absl::AlreadyExistsError(absl::StrFormat("%s is a volume already", backing));
  }
  if (!absl::IsNotFound(existing.status())) return existing.status();

  SALIUS_RETURN_IF_ERROR(CheckTrustedXattrs(root.get()));
  const absl::Status status = CreateInRoot(root.get(), config);
  if (!status.ok()) {
    // The first error is the one to report; whatever cannot be removed is removed by the next init.
    fs::RemoveTree(root.get(), kNewDir).IgnoreError();
    fs::RemoveXattr(root.get(), kFileIdXattr).IgnoreError();
    return status;
  }
  return FsyncFd(root.get());
}

}  // namespace salius
