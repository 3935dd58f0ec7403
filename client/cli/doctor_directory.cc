#include <fcntl.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/cli/doctor.h"
#include "client/cli/status.h"
#include "client/cli/status_text.h"
#include "common/check.h"
#include "common/ext4_watch.h"
#include "common/file.h"
#include "common/file_system.h"
#include "common/runbook.h"
#include "common/strings.h"
#include "storage/volume_fs.h"

namespace salius::cli {
namespace {

// Not in <linux/magic.h>.
constexpr int64_t kXfsMagic = 0x58465342;
constexpr int64_t kFuseMagic = 0x65735546;

constexpr char kTrustedProbe[] = "trusted.salius.doctor";
constexpr char kUserProbe[] = "user.salius.doctor";

// The clock readings of a note and of now may differ slightly. A larger difference means that the
// clock went back.
constexpr int64_t kClockSlackNs = 1'000'000'000;

// Tries an xattr on a nameless file, which leaves nothing behind.
absl::Status TryXattr(const std::string& path, const char* name) {
  SALIUS_ASSIGN_OR_RETURN(const UniqueFd file, OpenAt(AT_FDCWD, path, O_TMPFILE | O_RDWR, 0600));
  const std::string_view value = "12345678";
  if (fsetxattr(file.get(), name, value.data(), value.size(), 0) != 0) {
    return ErrnoStatus(errno, name);
  }
  return absl::OkStatus();
}

absl::Status TryHandle(int directory_fd) {
  SALIUS_ASSIGN_OR_RETURN(const FileHandle handle, HandleOf(directory_fd, "", AT_EMPTY_PATH));
  return OpenByHandle(directory_fd, handle, O_RDONLY | O_DIRECTORY).status();
}

void GatherVolume(const std::string& path, int directory_fd, DirectoryFacts& facts) {
  struct stat attr {};
  if (fstatat(directory_fd, kSaliusDir, &attr, AT_SYMLINK_NOFOLLOW) != 0) {
    facts.config_status = VolumeDir::Open(path, /*lock=*/false).status();
    return;
  }
  facts.volume = true;
  const absl::StatusOr<VolumeDir> volume = VolumeDir::Open(path, /*lock=*/false);
  facts.config_status = volume.status();
  if (!volume.ok()) return;
  facts.config = volume->config;
  const absl::StatusOr<OfflineStatus> offline = ReadOfflineStatus(path);
  facts.state_status = offline.status();
  if (offline.ok()) facts.state = offline->state;
  if (offline.ok()) facts.recoveries = offline->recoveries;
  struct stat log {};
  if (fstatat(volume->salius_fd, kStableLogFileName, &log, AT_SYMLINK_NOFOLLOW) != 0) {
    facts.stable_log = ErrnoStatus(errno, kStableLogFileName);
    return;
  }
  facts.stable_log_bytes = static_cast<uint64_t>(log.st_size);
  facts.stable_log_allocated = static_cast<uint64_t>(log.st_blocks) * 512;
}

// Judges what a direct volume needs of the file system instead of root's xattrs and handles.
void JudgeForDirect(const DirectoryFacts& facts, Findings& findings) {
  if (facts.user_xattr.ok()) {
    findings.Ok("user xattrs", "supported");
    return;
  }
  findings.Fail("user xattrs", std::string(facts.user_xattr.message()),
                "run it as the directory's owner, on a file system with extended attributes");
}

void JudgeFileSystem(const DirectoryFacts& facts, Findings& findings) {
  if (facts.fs_type == kFuseMagic || facts.fs_type == NFS_SUPER_MAGIC ||
      facts.fs_type == OVERLAYFS_SUPER_MAGIC) {
    findings.Fail("file system",
                  facts.fs_type == kFuseMagic        ? "FUSE"
                  : facts.fs_type == NFS_SUPER_MAGIC ? "NFS"
                                                     : "overlayfs",
                  "use a directory on a local ext4, xfs or btrfs");
  } else if (facts.fs_type == EXT4_SUPER_MAGIC || facts.fs_type == kXfsMagic ||
             facts.fs_type == BTRFS_SUPER_MAGIC) {
    findings.Ok("file system", facts.fs_type == EXT4_SUPER_MAGIC ? "ext4"
                               : facts.fs_type == kXfsMagic      ? "xfs"
                                                                 : "btrfs");
  } else if (facts.fs_type == TMPFS_MAGIC) {
    findings.Warn("file system", "tmpfs", "nothing here survives a reboot, for tests only");
  } else {
    findings.Warn("file system", absl::StrFormat("type 0x%x", facts.fs_type),
                  "only ext4, xfs and btrfs are tested");
  }
  if (facts.read_only) {
    findings.Fail("writable", "mounted read-only", "remount it read-write");
  } else {
    findings.Ok("writable", "yes");
  }
  if (facts.flushes_nothing) {
    findings.Warn("barriers", "off (nobarrier)",
                  "remount it with barriers, unless the drive's cache has a battery");
  }
  if (facts.ext4_errors > 0) {
    findings.Warn("ext4", absl::StrCat(facts.ext4_errors, " errors since it was last checked"),
                  "unmount it and run e2fsck -f");
  }
  if (IsDirect(facts)) {
    JudgeForDirect(facts, findings);
    return;
  }
  if (facts.trusted_xattr.ok()) {
    findings.Ok("trusted xattrs", "supported");
  } else {
    findings.Fail("trusted xattrs", std::string(facts.trusted_xattr.message()),
                  "run it as root, on a file system with extended attributes and O_TMPFILE");
  }
  if (facts.file_handle.ok()) {
    findings.Ok("file handles", "supported");
  } else {
    findings.Fail("file handles", std::string(facts.file_handle.message()),
                  "run it as root, on a file system with open_by_handle_at(2)");
  }
}

void JudgeSpace(const DirectoryFacts& facts, Findings& findings) {
  // The bytes that may have to be applied before any are freed again.
  const VolumeConfig config = facts.volume ? facts.config : DefaultVolumeConfig();
  const uint64_t needed =
      config.log_max_bytes + (facts.volume ? 0 : config.stable_log_bytes + config.ballast_bytes);
  const std::string free = absl::StrCat(FormatBytes(facts.free_bytes), " free");
  if (facts.free_bytes < needed) {
    findings.Fail("space", free, absl::StrCat("free at least ", FormatBytes(needed)));
  } else if (facts.free_bytes < 4 * needed) {
    findings.Warn("space", free, "writes are refused (ENOSPC) before it is used up; free some");
  } else {
    findings.Ok("space", free);
  }
  if (facts.total_inodes > 0 && facts.free_inodes < facts.total_inodes / 100) {
    findings.Warn("inodes", absl::StrCat(facts.free_inodes, " free"), "fewer than 1% are left");
  }
}

// Returns advice on a volume that cannot be opened.
std::string AdviceOn(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kDataLoss:
      return absl::StrCat(
          "restore .salius/volume.toml from a backup; do not run salius init over it; ",
          SeeRunbook("volume-file-damaged"));
    case absl::StatusCode::kInvalidArgument:
      return "mend what it names in .salius/volume.toml";
    case absl::StatusCode::kPermissionDenied:
      return "run it as root";
    default:
      return "see the other findings, and the kernel's log";
  }
}

void JudgeVolume(const DirectoryFacts& facts, int64_t realtime_ns, Findings& findings) {
  if (!facts.volume && absl::IsDataLoss(facts.config_status)) {
    findings.Fail("volume", std::string(facts.config_status.message()),
                  absl::StrCat("put its .salius directory back; do not run salius init; ",
                               SeeRunbook("volume-directory-missing")));
    return;
  }
  if (!facts.volume) {
    const absl::Status system = CheckNoSystemDirectory(facts.path);
    findings.Warn("volume", "there is none in this directory",
                  system.ok() ? absl::StrCat("make one: salius init ", ShellQuote(facts.path))
                              : std::string(system.message()));
    return;
  }
  if (!facts.config_status.ok()) {
    findings.Fail("volume", std::string(facts.config_status.message()),
                  AdviceOn(facts.config_status));
    return;
  }
  findings.Ok("volume",
              absl::StrCat(facts.config.volume.ToString(), IsDirect(facts) ? ", direct" : ""));
  if (!facts.state_status.ok()) {
    findings.Fail("state", std::string(facts.state_status.message()),
                  absl::StrCat("the volume must not be mounted: its replicas may hold acknowledged "
                               "writes; ",
                               SeeRunbook("volume-file-damaged")));
    return;
  }
  findings.Ok("state", absl::StrFormat("%s, epoch %u", facts.state.open ? "open" : "clean",
                                       facts.state.epoch));
  for (const RecoveryNote& note : facts.recoveries.Unacknowledged()) {
    findings.Warn("recovery",
                  absl::StrFormat("that of epoch %u gave up: %s", note.epoch, GivenUpText(note)),
                  absl::StrCat("when you know of it: salius acknowledge ", ShellQuote(facts.path),
                               "; ", SeeRunbook("records-given-up")));
  }
  if (facts.state.last_timestamp_ns > static_cast<uint64_t>(realtime_ns + kClockSlackNs)) {
    findings.Warn("clock against volume", "the volume's last record is from the future",
                  "the clock went back; order does not depend on it, but look at NTP");
  }
  if (IsDirect(facts)) return;  // it has no stable log
  const uint64_t wanted = facts.config.stable_log_bytes;
  if (!facts.stable_log.ok()) {
    findings.Fail(
        "stable log", std::string(facts.stable_log.message()),
        absl::StrCat(
            facts.state.open
                ? "put it back: without it the volume cannot be recovered, --force or not, and "
                  "data that is not in this directory yet is lost; "
                : "put it back, or make a new volume here: this one is clean and its files "
                  "are all here; ",
            SeeRunbook("volume-file-damaged")));
  } else if (facts.stable_log_bytes < wanted) {
    findings.Fail("stable log",
                  absl::StrFormat("%s, but volume.toml says %s",
                                  FormatBytes(facts.stable_log_bytes), FormatBytes(wanted)),
                  absl::StrCat("put stable_log (and log_max) back to what salius init was "
                               "given; if they were not changed, the log was cut; ",
                               SeeRunbook("stable-log-too-small")));
  } else if (facts.stable_log_allocated < wanted) {
    findings.Fail(
        "stable log",
        absl::StrFormat("only %s of %s are allocated", FormatBytes(facts.stable_log_allocated),
                        FormatBytes(facts.stable_log_bytes)),
        "it was made sparse: appends may fail when the disk is full");
  } else {
    findings.Ok("stable log", absl::StrCat(FormatBytes(facts.stable_log_bytes), ", allocated"));
  }
}

}  // namespace

bool IsDirect(const DirectoryFacts& facts) {
  return facts.volume && facts.config_status.ok() && facts.config.kind == VolumeKind::kDirect;
}

absl::StatusOr<DirectoryFacts> GatherDirectoryFacts(const std::string& path) {
  DirectoryFacts facts;
  facts.path = path;
  SALIUS_ASSIGN_OR_RETURN(const UniqueFd directory, OpenAt(AT_FDCWD, path, O_RDONLY | O_DIRECTORY));
  SALIUS_ASSIGN_OR_RETURN(const fs::FsKind kind, fs::KindOf(directory.get()));
  facts.fs_type = kind.type;
  facts.read_only = kind.read_only;
  facts.flushes_nothing = kind.flushes_nothing;
  facts.ext4_errors = Ext4Errors(directory.get()).value_or(0);
  SALIUS_ASSIGN_OR_RETURN(const FsSpace space, StatfsFree(directory.get()));
  facts.free_bytes = space.bytes_avail;
  facts.free_inodes = space.inodes_free;
  facts.total_inodes = space.inodes_total;
  facts.trusted_xattr = TryXattr(path, kTrustedProbe);
  facts.user_xattr = TryXattr(path, kUserProbe);
  facts.file_handle = TryHandle(directory.get());
  GatherVolume(path, directory.get(), facts);
  return facts;
}

void JudgeDirectory(const DirectoryFacts& facts, int64_t realtime_ns, Findings& findings) {
  JudgeFileSystem(facts, findings);
  JudgeSpace(facts, findings);
  JudgeVolume(facts, realtime_ns, findings);
}

}  // namespace salius::cli
