// VolumeDir (storage/volume_config.h): opening a volume's directory, with its lock.
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/check.h"
#include "common/file.h"
#include "common/file_system.h"
#include "common/log.h"
#include "common/runbook.h"
#include "common/strings.h"
#include "storage/direct_volume.h"
#include "storage/fs_calls.h"
#include "storage/volume_config.h"
#include "storage/volume_fs.h"

namespace salius {
namespace {

struct RefusedKind {
  int64_t type;
  const char* name;
};
// f_type of fstatfs(2), from <linux/magic.h> and the file systems' own sources.
constexpr std::array<RefusedKind, 9> kRefusedKinds = {{
    {0x65735546, "FUSE"},
    {0x6969, "NFS"},
    {0xFF534D42, "CIFS"},
    {0xFE534D42, "SMB"},
    {0x01021997, "9P"},
    {0x00C36400, "Ceph"},
    {0x5346414F, "AFS"},
    {0x73757245, "Coda"},
    {0x794C7630, "overlayfs"},  // its syncfs reports no error of write-back
}};

// Returns the first line of the lock file, written by its holder; only for a message.
std::string HolderOf(Backing& backing, int salius_fd) {
  const absl::StatusOr<std::string> text = ReadWholeFile(backing, salius_fd, kLockFileName, 4096);
  if (!text.ok()) return "unknown";
  const std::string pid(absl::StripAsciiWhitespace(*text));
  return pid.empty() ? "unknown" : pid;
}

absl::StatusOr<BackingFd> TakeLock(Backing& backing, int salius_fd, const std::string& path) {
  absl::StatusOr<BackingFd> fd = backing.OpenAt(salius_fd, kLockFileName, O_RDWR | O_NOFOLLOW);
  if (absl::IsNotFound(fd.status())) {
    // A new file would not be the one that a holder may have locked.
    return absl::DataLossError(absl::StrFormat("%s/%s/%s is missing; %s", path, kSaliusDir,
                                               kLockFileName, SeeRunbook("volume-file-damaged")));
  }
  SALIUS_RETURN_IF_ERROR(fd.status());
  const absl::Status locked = backing.Lock(fd->get(), kLockFileName);
  if (absl::IsUnavailable(locked)) {
    return absl::UnavailableError(absl::StrFormat("%s is in use by process %s; %s", path,
                                                  HolderOf(backing, salius_fd),
                                                  SeeRunbook("volume-in-use")));
  }
  SALIUS_RETURN_IF_ERROR(locked);
  // The pid is for messages. It overwrites the one before, at the same length, so that a full disk
  // has room for it. Where there is no room all the same, recovery must still begin: it frees the
  // ballast.
  const std::string line = absl::StrFormat("%-15d\n", getpid());
  const absl::Status named = backing.Pwrite(fd->get(), line, 0);
  if (!named.ok() && !absl::IsResourceExhausted(named)) return named;
  SALIUS_RETURN_IF_ERROR(backing.Truncate(fd->get(), named.ok() ? line.size() : 0));
  return std::move(*fd);
}

absl::StatusOr<VolumeConfig> ReadConfig(Backing& backing, int salius_fd, const std::string& path) {
  const std::string source = absl::StrFormat("%s/%s/%s", path, kSaliusDir, kVolumeFileName);
  const absl::StatusOr<std::string> text =
      ReadWholeFile(backing, salius_fd, kVolumeFileName, 1 << 20);
  if (absl::IsNotFound(text.status())) {
    return absl::DataLossError(source + " is missing, though the volume is there; " +
                               SeeRunbook("volume-file-damaged"));
  }
  SALIUS_RETURN_IF_ERROR(text.status());
  return VolumeConfigFromToml(*text, source);
}

}  // namespace

absl::Status CheckNoSystemDirectory(const std::string& path) {
  static constexpr std::array<absl::string_view, 11> kTrees = {
      "/bin",  "/boot", "/etc", "/lib", "/lib32", "/lib64",
      "/libx32", "/proc", "/sbin", "/sys", "/usr"};
  // Directories below these may be a user's.
  static constexpr std::array<absl::string_view, 12> kAlone = {
      "/",    "/dev", "/dev/shm", "/home",    "/root",    "/run",
      "/tmp", "/var", "/var/lib", "/var/log", "/var/run", "/var/tmp"};
  const bool in_tree = std::any_of(kTrees.begin(), kTrees.end(), [&](absl::string_view tree) {
    return path == tree || absl::StartsWith(path, absl::StrCat(tree, "/"));
  });
  if (!in_tree && std::find(kAlone.begin(), kAlone.end(), path) == kAlone.end()) {
    return absl::OkStatus();
  }
  return absl::FailedPreconditionError(absl::StrFormat(
      "%s belongs to the system: as a volume it could only be changed through a mount elsewhere. "
      "Make a directory for the volume; %s",
      path, SeeRunbook("directory-of-the-system")));
}

absl::Status CheckBackingFileSystem(int fd, const std::string& path) {
  SALIUS_ASSIGN_OR_RETURN(const fs::FsKind kind, fs::KindOf(fd));
  return CheckBackingKind(kind, path);
}

absl::Status CheckBackingKind(const fs::FsKind& kind, const std::string& path) {
  for (const RefusedKind& refused : kRefusedKinds) {
    if (kind.type == refused.type) {
      return absl::FailedPreconditionError(
          absl::StrFormat("%s is on %s, which cannot keep Salius's guarantees: the backing "
                          "directory must be on a local file system",
                          path, refused.name));
    }
  }
  if (kind.read_only) {
    return absl::FailedPreconditionError(path + " is on a file system mounted read-only");
  }
  return absl::OkStatus();
}

absl::StatusOr<VolumeKind> KindOfVolume(Backing& backing, int root_fd, const std::string& path) {
  SALIUS_ASSIGN_OR_RETURN(const BackingFd salius,
                          backing.OpenAt(root_fd, kSaliusDir, O_RDONLY | O_DIRECTORY | O_NOFOLLOW));
  SALIUS_ASSIGN_OR_RETURN(const VolumeConfig config, ReadConfig(backing, salius.get(), path));
  return config.kind;
}

absl::StatusOr<VolumeDir> VolumeDir::Open(const std::string& backing, bool lock) {
  SALIUS_ASSIGN_OR_RETURN(const std::string path, fs::RealPath(backing));
  SALIUS_ASSIGN_OR_RETURN(UniqueFd root, salius::OpenAt(AT_FDCWD, path, O_RDONLY | O_DIRECTORY));
  SALIUS_RETURN_IF_ERROR(CheckBackingFileSystem(root.get(), path));
  SALIUS_ASSIGN_OR_RETURN(VolumeDir dir, Open(LinuxBacking(), std::move(root), path, lock));
  if (!lock) return dir;
  dir.ext4 = std::make_unique<Ext4Watch>(dir.root_fd);
  SALIUS_ASSIGN_OR_RETURN(const fs::FsKind kind, fs::KindOf(dir.root_fd));
  if (kind.flushes_nothing) {
    SLOG_WARN(
        "{} is mounted with nobarrier: data reported as on disk may be in the drive cache, and "
        "lost at a power cut; remount it with barriers unless the cache has a battery",
        path);
  }
  return dir;
}

absl::StatusOr<VolumeDir> VolumeDir::Open(Backing& backing, BackingFd root, const std::string& path,
                                          bool lock) {
  absl::StatusOr<BackingFd> salius =
      backing.OpenAt(root.get(), kSaliusDir, O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
  if (absl::IsPermissionDenied(salius.status())) {
    return absl::PermissionDeniedError(
        absl::StrFormat("%s/%s belongs to another user: run this as its owner", path, kSaliusDir));
  }
  if (absl::IsNotFound(salius.status())) {
    const absl::StatusOr<std::string> id = RootIdOf(backing, root.get());
    if (id.ok() && !id->empty()) {
      return absl::DataLossError(
          absl::StrFormat("%s was a volume, or is the copy of one: it has a root's %s, but its %s "
                          "directory is missing. Put that back; do not run `salius init`, which "
                          "forgets what is not on this disk yet; %s",
                          path, *id, kSaliusDir, SeeRunbook("volume-directory-missing")));
    }
    return absl::NotFoundError(
        absl::StrFormat("%s is not a volume%s; %s", path,
                        CheckNoSystemDirectory(path).ok()
                            ? absl::StrFormat("; `salius init %s` makes it one", ShellQuote(path))
                            : "",
                        SeeRunbook("not-a-volume")));
  }
  SALIUS_RETURN_IF_ERROR(salius.status());
  BackingFd lock_fd;
  if (lock) {
    SALIUS_ASSIGN_OR_RETURN(lock_fd, TakeLock(backing, salius->get(), path));
  }
  VolumeDir dir;
  dir.backing = &backing;
  dir.path = path;
  SALIUS_ASSIGN_OR_RETURN(dir.config, ReadConfig(backing, salius->get(), path));
  dir.root_fd = root.Release();
  dir.salius_fd = salius->Release();
  dir.lock_fd = lock_fd.Release();
  return dir;
}

VolumeDir::VolumeDir(VolumeDir&& other) noexcept { *this = std::move(other); }

VolumeDir& VolumeDir::operator=(VolumeDir&& other) noexcept {
  if (this == &other) return *this;
  // Each object closes the descriptor that was here before; the lock last.
  Backing& old = *std::exchange(backing, other.backing);
  const BackingFd old_lock(old, std::exchange(lock_fd, std::exchange(other.lock_fd, -1)));
  const UniqueFd old_claim(std::exchange(claim_fd, std::exchange(other.claim_fd, -1)));
  const BackingFd old_salius(old, std::exchange(salius_fd, std::exchange(other.salius_fd, -1)));
  const BackingFd old_root(old, std::exchange(root_fd, std::exchange(other.root_fd, -1)));
  path = std::move(other.path);
  config = std::move(other.config);
  ext4 = std::move(other.ext4);
  return *this;
}

VolumeDir::~VolumeDir() {
  const BackingFd lock(*backing, lock_fd);
  const UniqueFd claim(claim_fd);
  const BackingFd salius(*backing, salius_fd);
  const BackingFd root(*backing, root_fd);
}

absl::Status RestoreBallast(Backing& backing, int salius_fd, uint64_t bytes) {
  if (bytes == 0) return absl::OkStatus();
  const auto restore = [&]() -> absl::Status {
    absl::StatusOr<BackingFd> fd = backing.OpenAt(salius_fd, kBallastFileName, O_RDWR | O_NOFOLLOW);
    if (absl::IsNotFound(fd.status())) {
      SALIUS_RETURN_IF_ERROR(backing.MakeNode(salius_fd, kBallastFileName, S_IFREG | 0600, 0));
      fd = backing.OpenAt(salius_fd, kBallastFileName, O_RDWR | O_NOFOLLOW);
    }
    SALIUS_RETURN_IF_ERROR(fd.status());
    SALIUS_ASSIGN_OR_RETURN(const struct stat st, backing.Stat(fd->get()));
    const uint64_t size = static_cast<uint64_t>(st.st_size);
    if (size == bytes) return absl::OkStatus();
    const absl::Status allocated = backing.Fallocate(fd->get(), 0, 0, bytes);
    // The remains of a failed fallocate would be held back from users without being of use.
    if (!allocated.ok()) {
      SALIUS_RETURN_IF_ERROR(backing.Truncate(fd->get(), std::min(size, bytes)));
      return allocated;
    }
    SALIUS_RETURN_IF_ERROR(backing.Truncate(fd->get(), bytes));
    return backing.Fsync(fd->get());
  };
  const absl::Status restored = restore();
  if (!restored.ok()) {
    SLOG_WARN("no room for the ballast that a recovery may need: {}", restored.ToString());
  }
  return restored;
}

absl::Status SyncVolume(Backing& backing, int root_fd, int file_fd) {
  const absl::Status synced = backing.SyncFs(root_fd);
  if (StatusErrno(synced) == ENOSPC) {
    // ext4 and xfs have blocks for all data that they take: pwrite(2) would have failed otherwise.
    return absl::Status(synced.code(),
                        absl::StrCat(synced.message(),
                                     " (the disk below the file system is full: a thin pool or a "
                                     "sparse image that cannot grow?)"));
  }
  SALIUS_RETURN_IF_ERROR(synced);
  return backing.Fdatasync(file_fd);
}

}  // namespace salius
