// CreateVolume (storage/volume_config.h): the work of `salius init` on the disk.
//
// Everything is made in `.salius.new` and renamed at the end, so that `.salius` is there whole or
// not at all. The remains of an earlier attempt that crashed are removed first. Nothing is touched
// where files of another volume, or of one that has lost its `.salius`, could lose their ids.
#include <stdio.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <string>

#include "absl/algorithm/container.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "common/bytes.h"
#include "common/check.h"
#include "common/file.h"
#include "common/host.h"
#include "common/runbook.h"
#include "common/strings.h"
#include "log/stable_log.h"
#include "log/state_file.h"
#include "storage/apply.h"
#include "storage/backing.h"
#include "storage/direct_volume.h"
#include "storage/fs_calls.h"
#include "storage/volume_config.h"
#include "storage/volume_fs.h"
#include "storage/volume_tree.h"

namespace salius {
namespace {

constexpr char kNewDir[] = ".salius.new";

absl::StatusOr<VolumeState> InitialState(Backing& backing, int root_fd,
                                         const VolumeConfig& config) {
  VolumeState state;
  state.volume = config.volume;
  state.acks = config.acks;
  state.file_id_limit = kRootFileId + 1;
  SALIUS_ASSIGN_OR_RETURN(state.boot_id, BootId());
  const absl::StatusOr<uint64_t> mount_id = backing.MountIdOf(root_fd);
  if (mount_id.ok()) {
    state.mount_id = *mount_id;
  } else if (!absl::IsUnimplemented(mount_id.status())) {
    return mount_id.status();
  }
  return state;
}

absl::Status MakeBallast(Backing& backing, int dirfd, uint64_t bytes) {
  SALIUS_RETURN_IF_ERROR(backing.MakeNode(dirfd, kBallastFileName, S_IFREG | 0600, 0));
  SALIUS_ASSIGN_OR_RETURN(const BackingFd fd, backing.OpenAt(dirfd, kBallastFileName, O_RDWR));
  if (bytes > 0) SALIUS_RETURN_IF_ERROR(backing.Fallocate(fd.get(), 0, 0, bytes));
  return backing.Fsync(fd.get());
}

// Makes what only a mount volume has in `dirfd`: stable log, ballast and directories.
absl::Status FillForMount(Backing& backing, int dirfd, const VolumeConfig& config) {
  SALIUS_RETURN_IF_ERROR(
      StableLog::Create(backing, dirfd, kStableLogFileName, config.volume, config.stable_log_bytes)
          .status());
  SALIUS_RETURN_IF_ERROR(MakeBallast(backing, dirfd, config.ballast_bytes));
  for (const char* name : {kOpenDirName, kTmpDirName}) {
    SALIUS_ASSIGN_OR_RETURN(const BackingFd dir, MakeOwnDir(backing, dirfd, name));
    SALIUS_RETURN_IF_ERROR(backing.Fsync(dir.get()));
  }
  return absl::OkStatus();
}

// Makes the contents of `.salius` in `dirfd`, synced.
absl::Status FillSaliusDir(Backing& backing, int root_fd, int dirfd, const VolumeConfig& config) {
  SALIUS_RETURN_IF_ERROR(
      WriteFileAtomically(backing, dirfd, kVolumeFileName, AsBytes(VolumeConfigToToml(config))));
  SALIUS_ASSIGN_OR_RETURN(const VolumeState state, InitialState(backing, root_fd, config));
  SALIUS_RETURN_IF_ERROR(StateFile::Create(backing, dirfd, kStateFileName, state).status());
  SALIUS_ASSIGN_OR_RETURN(const BackingFd lock,
                          backing.CreateAt(dirfd, kLockFileName, O_RDWR | O_EXCL, 0600));
  SALIUS_RETURN_IF_ERROR(backing.Fsync(lock.get()));
  if (config.kind == VolumeKind::kMount) {
    SALIUS_RETURN_IF_ERROR(FillForMount(backing, dirfd, config));
  }
  return backing.Fsync(dirfd);
}

// Returns whether an init left `.salius.new` behind, so that it is not a user's own.
absl::StatusOr<bool> IsEarlierAttempt(Backing& backing, int root_fd) {
  const absl::string_view own[] = {kVolumeFileName, kStateFileName,   kStableLogFileName,
                                   kLockFileName,   kBallastFileName, kOpenDirName,
                                   kTmpDirName};
  const absl::StatusOr<BackingFd> dir =
      backing.OpenAt(root_fd, kNewDir, O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
  if (!dir.ok()) return false;
  SALIUS_ASSIGN_OR_RETURN(const struct stat st, backing.StatAt(dir->get(), ""));
  SALIUS_ASSIGN_OR_RETURN(const std::vector<std::string> names, backing.ListDir(dir->get()));
  return st.st_uid == geteuid() && (st.st_mode & 0077) == 0 &&
         std::all_of(names.begin(), names.end(), [&](absl::string_view name) {
           absl::ConsumeSuffix(&name, ".tmp");  // of WriteFileAtomically
           return absl::c_linear_search(own, name);
         });
}

absl::Status CheckLeftover(Backing& backing, int root_fd, const std::string& path) {
  SALIUS_ASSIGN_OR_RETURN(const bool own, IsEarlierAttempt(backing, root_fd));
  if (own) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrFormat(
      "%s/%s is not what an earlier salius init left: move it away", path, kNewDir));
}

// Removes the remains of an earlier init that crashed. Removes the root's id first: without
// `.salius.new` it would indicate a volume that has lost its `.salius`.
absl::Status RemoveEarlierAttempt(Backing& backing, int root_fd, const std::string& path) {
  SALIUS_ASSIGN_OR_RETURN(const std::string id_xattr, RootIdOf(backing, root_fd));
  const absl::Status attempt = backing.StatAt(root_fd, kNewDir).status();
  if (attempt.ok()) {
    SALIUS_RETURN_IF_ERROR(CheckLeftover(backing, root_fd, path));
    if (!id_xattr.empty()) SALIUS_RETURN_IF_ERROR(backing.RemoveXattr(root_fd, id_xattr));
    SALIUS_RETURN_IF_ERROR(backing.Fsync(root_fd));
    return RemoveTree(backing, root_fd, kNewDir);
  }
  if (!absl::IsNotFound(attempt)) return attempt;
  if (id_xattr.empty()) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrFormat(
      "%s was a volume, or is the copy of one: it has a root's %s, but no %s. If that is lost, put "
      "it back. If it was taken away for a new volume here, which forgets what the old one had not "
      "written to this disk: setfattr -x %s %s; %s",
      path, id_xattr, kSaliusDir, id_xattr, path, SeeRunbook("volume-directory-missing")));
}

// Makes a whole `.salius.new`, in a tree without ids except the root's. Ids of a direct volume name
// their volume, so those of an earlier one may stay.
absl::Status PrepareRoot(Backing& backing, int root_fd, const VolumeConfig& config) {
  SALIUS_ASSIGN_OR_RETURN(const BackingFd dir, MakeOwnDir(backing, root_fd, kNewDir));
  SALIUS_RETURN_IF_ERROR(FillSaliusDir(backing, root_fd, dir.get(), config));
  if (config.kind == VolumeKind::kDirect) {
    SALIUS_RETURN_IF_ERROR(MarkDirectRoot(backing, root_fd, config.volume));
    return backing.Fsync(root_fd);
  }
  SALIUS_ASSIGN_OR_RETURN(const struct stat st, backing.StatAt(root_fd, ""));
  SALIUS_RETURN_IF_ERROR(StripFileIds(backing, root_fd, st.st_dev));
  SALIUS_RETURN_IF_ERROR(backing.SyncFs(root_fd));
  SALIUS_RETURN_IF_ERROR(WriteFileId(backing, root_fd, kRootFileId));
  return backing.Fsync(root_fd);
}

// Refuses a directory that has a volume, and names its kind.
absl::Status ExistsAlready(Backing& backing, int root_fd, const std::string& path) {
  const absl::StatusOr<VolumeKind> kind = KindOfVolume(backing, root_fd, path);
  if (!kind.ok()) {
    return absl::AlreadyExistsError(absl::StrFormat("%s is a volume already", path));
  }
  return absl::AlreadyExistsError(
      absl::StrFormat("%s is a %s already; use it with `%s`", path,
                      *kind == VolumeKind::kDirect ? "direct volume" : "volume for a mount",
                      *kind == VolumeKind::kDirect
                          ? absl::StrFormat("salius-run --direct %s -- COMMAND", ShellQuote(path))
                          : absl::StrFormat("salius-mount %s MOUNTPOINT", ShellQuote(path))));
}

absl::Status CheckXattrs(Backing& backing, int root_fd, VolumeKind kind) {
  return kind == VolumeKind::kDirect ? CheckUserXattrs(backing, root_fd)
                                     : CheckTrustedXattrs(backing, root_fd);
}

absl::Status CreateInRoot(Backing& backing, int root_fd, const VolumeConfig& config) {
  SALIUS_RETURN_IF_ERROR(PrepareRoot(backing, root_fd, config));
  return backing.Rename(root_fd, kNewDir, root_fd, kSaliusDir, RENAME_NOREPLACE);
}

// Puts the new `.salius` in the old one's place, and keeps the objects that a recovery had set
// aside.
absl::Status ReplaceSalius(Backing& backing, int root_fd) {
  SALIUS_RETURN_IF_ERROR(backing.Rename(root_fd, kNewDir, root_fd, kSaliusDir, RENAME_EXCHANGE));
  SALIUS_ASSIGN_OR_RETURN(const BackingFd old, backing.OpenAt(root_fd, kNewDir, O_PATH));
  const absl::Status there = backing.StatAt(old.get(), kLostDirName).status();
  if (there.ok()) {
    SALIUS_ASSIGN_OR_RETURN(const BackingFd present, backing.OpenAt(root_fd, kSaliusDir, O_PATH));
    SALIUS_RETURN_IF_ERROR(
        backing.Rename(old.get(), kLostDirName, present.get(), kLostDirName, RENAME_NOREPLACE));
  } else if (!absl::IsNotFound(there)) {
    return there;
  }
  SALIUS_RETURN_IF_ERROR(backing.Fsync(root_fd));
  return RemoveTree(backing, root_fd, kNewDir);
}

}  // namespace

absl::Status CreateVolume(const std::string& backing, const VolumeConfig& config) {
  SALIUS_RETURN_IF_ERROR(ValidateVolumeConfig(config));
  SALIUS_ASSIGN_OR_RETURN(const UniqueFd root, OpenAt(AT_FDCWD, backing, O_RDONLY | O_DIRECTORY));
  SALIUS_RETURN_IF_ERROR(CheckBackingFileSystem(root.get(), backing));
  SALIUS_ASSIGN_OR_RETURN(const std::string real, fs::RealPath(backing));
  SALIUS_RETURN_IF_ERROR(CheckNoSystemDirectory(real));
  if (config.kind == VolumeKind::kDirect) {
    SALIUS_RETURN_IF_ERROR(CheckDirectPlace(root.get(), backing));
  }
  return CreateVolume(LinuxBacking(), root.get(), backing, config);
}

absl::Status CreateVolume(Backing& backing, int root_fd, const std::string& path,
                          const VolumeConfig& config) {
  SALIUS_RETURN_IF_ERROR(ValidateVolumeConfig(config));
  // If two inits of one directory run at once, the second gives up.
  SALIUS_RETURN_IF_ERROR(backing.Lock(root_fd, path));
  const absl::StatusOr<struct stat> existing = backing.StatAt(root_fd, kSaliusDir);
  if (existing.ok()) return ExistsAlready(backing, root_fd, path);
  if (!absl::IsNotFound(existing.status())) return existing.status();

  SALIUS_RETURN_IF_ERROR(CheckXattrs(backing, root_fd, config.kind));
  SALIUS_RETURN_IF_ERROR(CheckNoOtherVolume(backing, root_fd, path));
  SALIUS_RETURN_IF_ERROR(RemoveEarlierAttempt(backing, root_fd, path));
  const absl::Status status = CreateInRoot(backing, root_fd, config);
  if (!status.ok()) {
    // The first error is the one to report; the next init removes all that cannot be removed here.
    backing.RemoveXattr(root_fd, RootIdXattr(config.kind)).IgnoreError();
    RemoveTree(backing, root_fd, kNewDir).IgnoreError();
    return status;
  }
  return backing.Fsync(root_fd);
}

absl::Status MakeCopyItsOwn(const VolumeDir& dir, const VolumeConfig& config) {
  SALIUS_CHECK(dir.lock_fd >= 0 && config.volume != dir.config.volume,
               "a volume in use, or the same one");
  Backing& backing = *dir.backing;
  SALIUS_RETURN_IF_ERROR(ValidateVolumeConfig(config));
  SALIUS_RETURN_IF_ERROR(CheckXattrs(backing, dir.root_fd, config.kind));
  SALIUS_RETURN_IF_ERROR(CheckNoOtherVolume(backing, dir.root_fd, dir.path));
  if (backing.StatAt(dir.root_fd, kNewDir).ok()) {
    SALIUS_RETURN_IF_ERROR(CheckLeftover(backing, dir.root_fd, dir.path));
    SALIUS_RETURN_IF_ERROR(RemoveTree(backing, dir.root_fd, kNewDir));
  }
  const absl::Status prepared = PrepareRoot(backing, dir.root_fd, config);
  if (prepared.ok()) return ReplaceSalius(backing, dir.root_fd);
  RemoveTree(backing, dir.root_fd, kNewDir).IgnoreError();  // the next init removes it otherwise
  return prepared;
}

}  // namespace salius
